"""Hypotheses of Whisper for a buffer of sound, and guards against text that nobody said.

Times are seconds of the buffer. Whisper was trained on subtitles: of silence it writes "you", of
noise "Thank you.", and a text that begins to repeat itself goes on doing so, because it is the
prompt of what follows.

    before the model   sound that is quiet, or as loud all the time, holds no speech
    after it           P(no speech) is high and the text a guess; the text repeats itself
    before a commit    the words repeat those committed last
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from simuljax.audio import RATE
from simuljax.config.fields import Checked, setting
from simuljax.decode.policies import Hypotheses, Policy, Step
from simuljax.decode.stammer import MARKS, plain, run_length
from simuljax.eval import spacing
from simuljax.models.whisper import Decoded, Tokenizer
from simuljax.models.whisper.decoding import compression_ratio
from simuljax.models.whisper.tokenizer import UNSPACED

FRAME = RATE // 20  # 50 ms
_LEAST = RATE  # sound that shows if loudness moves
_SPELLED = re.compile(rf"[^\s{spacing.UNSPACED_CHARACTERS}]{{2}}")  # letters or digits of one word
Part = tuple[list[int], list[float], float, float]  # ids, their log P, start, end


@dataclass(frozen=True, kw_only=True)
class SpelledWord:
    """A word as it is shown, the ids it is spelt with, and the state it is aligned with."""

    text: str
    ids: tuple[int, ...] = ()
    state: int = 0  # the latest encoder state that one of its ids attends to most, from 0
    mark: str = ""  # punctuation at its end
    mark_ids: int = 0  # ids of it

    @property
    def without_mark(self) -> "SpelledWord":
        return SpelledWord(
            text=self.text.removesuffix(self.mark),
            ids=self.ids[: len(self.ids) - self.mark_ids],
            state=self.state,
        )


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Words between two timestamps."""

    words: tuple[SpelledWord, ...]
    start: float
    end: float
    log_probability: float = 0.0  # mean of its own tokens
    no_speech: float = 0.0  # of the whole window

    @cached_property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """All that was written for a window, with the words that are committed already."""

    segments: tuple[Segment, ...] = ()
    states: int = 0  # of real sound, 20 ms each
    no_speech: float = 0.0
    log_probability: float = 0.0  # mean of all its tokens
    language: str | None = None  # that was spoken, where it was guessed

    @cached_property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @cached_property
    def words(self) -> tuple[SpelledWord, ...]:
        return tuple(itertools.chain.from_iterable(segment.words for segment in self.segments))

    def words_in(self, segments: int) -> int:
        """Return the number of words in the first so many segments."""
        return sum(len(segment.words) for segment in self.segments[:segments])

    def segments_in(self, words: int) -> int:
        """Return the number of segments that are whole in the first so many words."""
        ends = itertools.accumulate(len(segment.words) for segment in self.segments)
        return sum(end <= words for end in ends)

    def end_of(self, segments: int) -> float:
        """Return the end of the first so many segments."""
        return self.segments[segments - 1].end if segments else 0.0

    def without(self, words: int) -> "Hypothesis":
        """Return what is left without the first words; times stay as they were."""
        rest = []
        for segment in self.segments:
            kept = segment.words[words:]
            words = max(0, words - len(segment.words))
            if kept:
                rest.append(replace(segment, words=kept))
        return replace(self, segments=tuple(rest))

    @property
    def without_last_mark(self) -> "Hypothesis":
        *others, last = self.segments
        words = (*last.words[:-1], last.words[-1].without_mark)
        return replace(self, segments=(*others, replace(last, words=words)))


def hypotheses_for(
    policy: Policy,
    now: Hypothesis,
    before: Sequence[Hypothesis],
    *,
    committed: int = 0,
    words_before: int = 0,
    samples: int = 0,
) -> Hypotheses:
    """Return the input of the policy: the words, or segments, of the last hypotheses.

    The first `committed` words are committed already; `words_before` the buffer are too. `samples`
    of the stream were read. Attention is 1 on the state that a word is aligned with.
    """
    by_segment = policy.unit == "segment"
    recent = [*before[max(0, len(before) - policy.looks_back) :], now]
    texts = [
        tuple(unit.text for unit in (each.segments if by_segment else each.words))
        for each in recent
    ]
    numbers: dict[str, int] = {}
    units = np.full((1, policy.looks_back + 1, max(map(len, texts))), -1)
    for row, each in zip(units[0, -len(texts) :], texts, strict=True):
        row[: len(each)] = [numbers.setdefault(plain(text), len(numbers)) for text in each]

    repeats = [1 if by_segment else len(segment.words) for segment in now.segments]
    place, attention = np.arange(sum(repeats)), None
    if "attention" in policy.needs:
        attention = np.zeros((1, 1, len(place), 1, max(now.states, 1)))
        states = [min(word.state, attention.shape[-1] - 1) for word in now.words]
        attention[0, 0, place, 0, states] = 1

    def spread(values: Iterator[float]) -> np.ndarray:
        return np.repeat(np.fromiter(values, float), repeats)[None]

    step = Step(
        ended=np.zeros((1, len(place)), bool),
        states=np.full((1, len(place)), now.states),
        since_read=(place - (0 if by_segment else committed))[None],
        samples=np.full((1, len(place)), samples),
        words=(words_before + place)[None],
        begins_word=np.ones((1, len(place)), bool),
        attention=attention,
        log_probability=spread(segment.log_probability for segment in now.segments),
        no_speech=spread(segment.no_speech for segment in now.segments),
    )
    return Hypotheses(units=units, step=step, texts=tuple(texts))


def judge(
    policy: Policy,
    hypothesis: Hypothesis,
    before: Sequence[Hypothesis],
    *,
    committed: int = 0,
    least_s: float = 0.0,
    words_before: int = 0,
    samples: int = 0,
) -> tuple[int, int]:
    """Return how many words of a hypothesis are committed, and how many segments are settled.

    Where words are judged, a segment is settled when all its words are and another follows it.
    Segments of the first `least_s` must be settled, because the buffer is full, and all when the
    sound has ended. If the policy refuses, all but the last are, which the end of the buffer may
    have cut; or if that is not enough, all.
    """
    count = len(hypothesis.segments)
    known = {"committed": committed, "words_before": words_before, "samples": samples}
    units = int(policy.commit(hypotheses_for(policy, hypothesis, before, **known))[0])
    words, done = committed, units
    if policy.unit == "word":
        words = max(committed, units)
        done = min(hypothesis.segments_in(words), max(0, count - 1))
    ways = (done, max(done, count - 1))
    done = next((way for way in ways if hypothesis.end_of(way) >= least_s), count)
    return max(words, hypothesis.words_in(done)), done


def split_segments(tokenizer: Tokenizer, decoded: Decoded, seconds: float) -> Iterator[Part]:
    """Yield ids of text and their log P between timestamps, and these, up to the end of the sound.

    Text after the last timestamp goes to the end.
    """
    ids: list[int] = []
    log_probs: list[float] = []
    start = 0.0
    for token, log_prob in zip(decoded.tokens, decoded.log_probs, strict=False):
        if token < tokenizer.end:
            ids.append(token)
            log_probs.append(log_prob)
        elif token >= tokenizer.timestamps.start:
            now = min(tokenizer.seconds(token), seconds)
            if ids:
                yield ids, log_probs, start, now
                ids, log_probs = [], []
            start = now
    if ids:
        yield ids, log_probs, start, seconds


def words_of(
    tokenizer: Tokenizer, ids: Sequence[int], states: Sequence[int] | np.ndarray, language: str
) -> list[SpelledWord]:
    """Return words as they are separated by spaces; in a language without, characters.

    Letters and digits of another script stay together there. Marks of punctuation belong to the
    word before them, and their attention, which is anywhere, to none.
    """
    words: list[SpelledWord] = []
    states, place = [int(state) for state in states], 0
    for unit in tokenizer.words(ids, language):
        is_mark = is_punctuation(unit.text)
        state = 0 if is_mark else max(states[place : place + len(unit.tokens)])
        place += len(unit.tokens)
        spaced = unit.text.startswith(" ")
        if language in UNSPACED and words:
            spaced = not is_mark and not _SPELLED.match(words[-1].text[-1:] + unit.text[:1])
        if spaced or not words:
            words.append(SpelledWord(text=unit.text, ids=unit.tokens, state=state))
            continue
        word = words.pop()
        has_mark = is_mark and not is_punctuation(word.text)
        words.append(
            SpelledWord(
                text=word.text + unit.text,
                ids=word.ids + unit.tokens,
                state=max(word.state, state),
                mark=(word.mark + unit.text).rstrip() if has_mark else "",
                mark_ids=word.mark_ids + len(unit.tokens) if has_mark else 0,
            )
        )
    return [replace(word, text=word.text.strip()) for word in words if word.text.strip()]


def is_punctuation(text: str) -> bool:
    """Return True if a text has marks and spaces alone."""
    return not text.strip(f"{MARKS} ")


@dataclass(frozen=True, kw_only=True)
class Guards(Checked):
    """Limits; one that is out of reach holds nothing back."""

    quiet_db: float = setting(-60.0, help="Level of 50 ms below which is silence.", high=0)
    steady_db: float = setting(3.0, help="Loudest above the quiet tenth; else noise.", low=0)
    no_speech: float = 0.6  # P(no speech) above which unlikely text is dropped
    log_probability: float = -0.5  # mean log P below which text is unlikely
    surely_no_speech: float = 0.9  # P(no speech) above which any text is dropped
    silent_s: float = 5.0  # length of a buffer without speech that is let go
    compression: float = 2.4  # by zlib, above which text repeats itself
    echo_words: int = setting(4, help="Words that repeat those before: an echo.", low=1)


def levels(samples: np.ndarray) -> np.ndarray:
    """Return decibels of full scale of each 50 ms of samples, the last frame perhaps shorter."""
    if not len(samples):
        return np.zeros(0)
    starts = np.arange(0, len(samples), FRAME)
    energy = np.add.reduceat(np.square(samples / 32768), starts)
    counts = np.diff(starts, append=len(samples))
    return 10 * np.log10(np.maximum(energy / counts, 1e-12))


class Loudness:
    """Levels of a buffer and of its differences; those of whole frames are computed once."""

    def __init__(self) -> None:
        self.sound = self.differences = np.zeros(0)

    def of(self, samples: np.ndarray) -> np.ndarray:
        """Return the levels of the buffer, which begins as it did before."""
        found = np.concatenate([self.sound, levels(samples[len(self.sound) * FRAME :])])
        self.sound = found[: len(samples) // FRAME]
        return found

    def of_differences(self, samples: np.ndarray) -> np.ndarray:
        new = samples[len(self.differences) * FRAME :].astype(np.int32)
        found = np.concatenate([self.differences, levels(np.diff(new))])
        self.differences = found[: max(0, len(samples) - 1) // FRAME]
        return found

    def trim(self, count: int) -> None:
        """Forget so many samples at the beginning of the buffer."""
        first = count // FRAME if count % FRAME == 0 else len(self.sound)  # or all begin elsewhere
        self.sound, self.differences = self.sound[first:], self.differences[first:]


def silent_samples(samples: np.ndarray, guards: Guards, loudness: Loudness | None = None) -> int:
    """Return the number of samples at the beginning without speech: before the first loud one.

    All of them, if loudness does not move at all: speech comes in syllables, noise does not. That
    is seen in the differences of samples, so that a rumble, which moves slowly, does not count.
    """
    loudness = loudness or Loudness()
    if len(samples) >= _LEAST:
        db = loudness.of_differences(samples)
        if db.max() - np.percentile(db, 10) < guards.steady_db:
            return len(samples)
    loud = np.flatnonzero(loudness.of(samples) >= guards.quiet_db)
    return int(loud[0]) * FRAME if len(loud) else len(samples)


def nobody_speaks(hypothesis: Hypothesis, guards: Guards) -> bool:
    """Return True if the model itself detects no speech."""
    is_unlikely = hypothesis.log_probability < guards.log_probability
    return hypothesis.no_speech > guards.surely_no_speech or (
        is_unlikely and hypothesis.no_speech > guards.no_speech
    )


def repeats_itself(text: str, guards: Guards) -> bool:
    """Return True if zlib compresses the text too well, or it ends in a phrase said three times.

    The latter catches loops when they begin: "for the recipe" three times, a word five times.
    """
    if compression_ratio(spacing.join_words(text.split())) > guards.compression:
        return True
    words = [plain(word) for word in text.split()]
    return any(
        run_length(words, period) >= max(2 * period, guards.echo_words)
        for period in _periods(words, len(words) // 3)
    )


def is_echo(words: Sequence[str], before: Sequence[str], guards: Guards) -> bool:
    """Return True if words only continue a loop of the words before them.

    That is, for a period p: from some place on every word, these included, is the one p before it;
    the run has at least `echo_words` words, p of them (a whole round) and all of these.
    """
    if not words:
        return False
    text, least = [*before, *words], max(guards.echo_words, len(words))
    return any(
        run_length(text, period) >= max(least, period) for period in _periods(text, len(before))
    )


def _periods(words: Sequence[str], most: int) -> list[int]:
    """Return the periods up to `most` after which the last word is said again."""
    return [period for period in range(1, most + 1) if words[-1 - period] == words[-1]]
