"""One stream of Whisper: sound in, windows out; hypotheses in, words out. No model, no threads.

The buffer is the sound since the point up to which all is settled, at most `most_s` of it. A window
is the buffer with `window_s` more. When segments are committed, the buffer is trimmed at the end of
the last one, and their text becomes the prompt. Where words are judged, those committed of a
segment that is not settled stay in the buffer, and the next hypothesis begins with them. The model
may stop before the sound does: what is left when nothing more will come is written again.

Sound leaves the buffer with segments that are committed, because it is silent, because its text was
refused as an echo, or because the buffer is full without text.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from simuljax.audio import RATE
from simuljax.config.decoding import Stammer
from simuljax.config.fields import ConfigError, check, setting
from simuljax.decode.policies import Consensus, Policy
from simuljax.decode.stammer import RepetitionFilter, plain
from simuljax.eval.spacing import join_words
from simuljax.models.whisper import Decoding
from simuljax.models.whisper.config import WINDOW_S
from simuljax.models.whisper.tokenizer import Task, language_code
from simuljax.serve.session import Session
from simuljax.serve.whisper.hypothesis import (
    Guards,
    Hypothesis,
    Loudness,
    SpelledWord,
    is_echo,
    judge,
    nobody_speaks,
    repeats_itself,
    silent_samples,
)
from simuljax.text.sentences import ends_sentence

_MARGIN = RATE // 2  # silence that is kept before what may be the beginning of speech
_LEAST = RATE // 10  # sound of which anything can be written
_REST = RATE  # sound after the last text in which more may have been said
_LANGUAGE = 5 * RATE  # sound after which the guess of a language stays
_FORCED = 200  # tokens that a window may begin with: Whisper writes 448 in all
_MARK_AFTER = RATE  # sound without another word that confirms the end of a sentence
_REMEMBERED = 256  # words that echoes are looked for in


@dataclass(frozen=True, kw_only=True)
class WhisperStreaming:
    """Settings of a Whisper stream; `Translator.stream` takes these by name.

    Texts are drawn at temperature 0 alone: what is sampled differs from window to window, and from
    one batch to another.
    """

    policy: Policy = field(default_factory=Consensus)
    window_s: float = setting(1.0, help="Sound from one hypothesis to the next.", low=0.1, high=15)
    most_s: float = setting(30.0, help="Sound in the buffer.", high=WINDOW_S)
    task: Task = "translate"  # write English, or the language that is spoken
    language: str | None = None  # that is spoken; None: the likeliest at first
    decoding: Decoding = field(default_factory=lambda: Decoding(temperatures=(0.0,)))
    prompt_tokens: int = setting(56, help="Committed tokens that the next text follows on.", low=0)
    padding: Literal["full", "short"] = "full"  # to 30 s, or to 10, 15, ... s: faster and less sure
    behind: Literal["every", "latest"] = "every"  # write every window, or leave out late ones
    # Commit . ? or ! at the end of the sound with its word; or after it, as a word, once another
    # follows or a second has passed.
    marks: Literal["guessed", "confirmed"] = "guessed"
    guards: Guards = field(default_factory=Guards)
    stammer: Stammer = field(default_factory=Stammer)
    rate: int = setting(RATE, help="Rate of the samples that are pushed.", low=1)

    def __post_init__(self) -> None:
        check(self)
        if self.most_s < 2 * self.window_s:
            raise ConfigError(f"most_s is {self.most_s}; it must hold two windows")
        if self.decoding.timestamps != "predict":
            raise ConfigError("decoding.timestamps is 'none'; segments need 'predict'")
        if self.language is not None:
            try:
                language_code(self.language)
            except ValueError as error:
                raise ConfigError(f"language: {error}") from None


@dataclass(frozen=True, kw_only=True, eq=False)
class Window:
    """A window of sound that the model is to write."""

    samples: np.ndarray  # int16: the whole buffer
    prompt: tuple[int, ...] = ()  # text before the buffer
    forced: tuple[int, ...] = ()  # the beginning of its own text
    language: str | None = None  # that is spoken; None: guess
    settings: WhisperStreaming = field(default_factory=WhisperStreaming)


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Punctuation after a word that was committed without."""

    text: str  # as in the last hypothesis; may be none
    samples: int  # read when the word was committed


class WhisperSession(Session):
    """The state of one stream; bounded, however long it is."""

    def __init__(
        self, settings: WhisperStreaming, check: Callable[[WhisperStreaming], None] = check
    ):
        """Use the settings; `check` refuses those that the model cannot have."""
        super().__init__(rate=settings.rate)
        self.check = check
        self.settings = self.following = settings  # of this window, and of those after it
        self.language = settings.language
        self.buffer, self.loudness = self.waiting, Loudness()
        self.committed: tuple[SpelledWord, ...] = ()  # words of the buffer that are committed
        self.open: tuple[SpelledWord, ...] = ()  # words of the last hypothesis that are not
        self.before: list[Hypothesis] = []  # the latest last
        self.prompt: tuple[int, ...] = ()
        self.last_words: list[str] = []  # without capitals and marks
        self.unrepeated = RepetitionFilter(limits=settings.stammer)
        self.settled = 0  # samples that left the buffer
        self.settled_words = 0  # committed words that left the buffer
        self.guessed = 0  # samples of windows of which the language was guessed
        self.again = False  # the same window is written once more
        self.refused = False  # words of the buffer were refused
        self.unmarked: Mark | None = None  # that may follow the last committed word

    @property
    def pending(self) -> str:
        return join_words(word.text for word in self.open)

    @property
    def settled_s(self) -> float:
        return self.settled / RATE

    @property
    def size(self) -> int:
        return round(self.settings.window_s * RATE)

    @property
    def ready(self) -> bool:
        """Return True if there is a window to write, or silence to skip."""
        return not self.finished and (self.again or self.ended or not self.missing)

    @property
    def missing(self) -> int:
        return max(0, round(self.following.window_s * RATE) - len(self.waiting))

    def change(self, settings: WhisperStreaming) -> None:
        self.check(settings)
        self.following = settings

    def next(self) -> Window | None:
        """Return what is to be written next, if there is sound for it."""
        if self.again:
            self.again = False
            return self._window()
        if self.following.language != self.settings.language:
            self.language, self.guessed = self.following.language, 0
        self.settings = self.following
        while (count := self._due()) is not None:
            self.buffer = np.concatenate([self.buffer, self._read(count)])
            if self._has_speech():
                return self._window()
            self.before, self.open = [], ()
            self.finished = self._is_last
        return None

    def commit(self, written: Hypothesis) -> list[str]:
        """Return the words that the policy commits of what the model wrote for the window."""
        guards = self.settings.guards
        if nobody_speaks(written, guards):
            return self._skip_silence()
        self.guessed += self.size
        if self.language is None and self.guessed >= _LANGUAGE:  # of enough speech
            self.language = written.language
        if repeats_itself(written.text, guards):
            if self.prompt:  # which may have begun it: the same sound is written without
                self.prompt, self.again = (), True
                return []
            if not self._least_s:
                self.before, self.open = [], ()
                return []
        return self._commit(written)

    @property
    def _most(self) -> int:
        return round(self.settings.most_s * RATE)

    @property
    def _is_last(self) -> bool:
        """Return True if all sound is in the buffer and none will come."""
        return self.ended and not len(self.waiting)

    @property
    def _least_s(self) -> float:
        """Return the sound that has to leave the buffer before the next window."""
        if self._is_last:
            return math.inf
        if sum(len(word.ids) for word in self.committed) > _FORCED:
            return 1 / RATE
        return max(0, len(self.buffer) + self.size - self._most) / RATE

    def _due(self) -> int | None:
        """Return the samples that the next window adds; None if it has to wait."""
        if self.finished:
            return None
        waits, size = len(self.waiting), self.size
        if waits < size and not self.ended:
            return None
        room = max(0, self._most - len(self.buffer))  # less than a window only after a change
        if self.settings.behind == "latest":
            size = max(size, min(waits, room) // size * size)
        return min(waits, size, room)

    def _has_speech(self) -> bool:
        """Let silence at the beginning of the buffer go; return True if anything is after it."""
        silence = silent_samples(self.buffer, self.settings.guards, self.loudness)
        everything = silence == len(self.buffer)
        if everything or not self.committed:
            self._let_go(silence - _MARGIN)
        return not everything and len(self.buffer) >= _LEAST

    def _window(self) -> Window:
        limit = self.settings.prompt_tokens
        return Window(
            samples=self.buffer,
            prompt=self.prompt[-limit:] if limit else (),
            forced=tuple(i for word in self.committed for i in word.ids),
            language=self.language,
            settings=self.settings,
        )

    def _skip_silence(self) -> list[str]:
        """Keep the buffer for a while, because the beginning of speech is easily missed."""
        self.before, self.open = [], ()
        self.finished = self._is_last
        given_up = len(self.buffer) >= self.settings.guards.silent_s * RATE
        if self._least_s or given_up:
            self._let_go(len(self.buffer) - self.size)
        return self._take_mark() if given_up or self.finished else []

    def _commit(self, hypothesis: Hypothesis) -> list[str]:
        known = len(self.committed)
        last, segments = judge(
            *(self.settings.policy, hypothesis, self.before),
            committed=known,
            least_s=self._least_s,
            words_before=self.settled_words,
            samples=self.read_samples,
        )
        words, done = hypothesis.words, hypothesis.words_in(segments)
        texts = self._late_mark(words[:known], is_followed=last > known or done >= known)
        guess = words[-1].mark if self._is_guess(words, known, last, done) else ""
        if guess:
            hypothesis = hypothesis.without_last_mark
            words = hypothesis.words
        if last > known:
            waits = self.settings.marks == "confirmed" and not words[last - 1].mark
            self.unmarked = Mark(text=guess, samples=self.read_samples) if waits else None
        texts += self._accepted(hypothesis, known, last)
        self._remember(words[:done])
        self.committed, self.open = words[done:last], words[last:]
        self.settled_words += done
        hypotheses = [h.without(done) for h in (*self.before, hypothesis)]
        self.before = hypotheses[max(0, len(hypotheses) - self.settings.policy.looks_back) :]
        before = len(self.buffer)
        if count := round(hypothesis.end_of(segments) * RATE):
            self._trim(count)
            self.prompt = () if self.refused else self.prompt  # begins anew after refused text
            self.refused = False
        if self._least_s:  # no text is left: of the rest nothing was written
            self._let_go(len(self.buffer) + self.size - self._most)
        shorter = len(self.buffer) < before
        self.finished = self._is_last and not (shorter and len(self.buffer) >= _REST)
        return texts

    def _late_mark(self, words: Sequence[SpelledWord], *, is_followed: bool) -> list[str]:
        """Return the mark after the last committed word, if it came later and is no guess."""
        if self.unmarked is None:
            return []
        self.unmarked = replace(self.unmarked, text=words[-1].mark if words else "")
        is_late = self.read_samples - self.unmarked.samples >= _MARK_AFTER
        return self._take_mark() if is_followed or (is_late and self.unmarked.text) else []

    def _take_mark(self) -> list[str]:
        mark, self.unmarked = self.unmarked, None
        return [mark.text] if mark and mark.text else []

    def _is_guess(self, words: Sequence[SpelledWord], known: int, last: int, done: int) -> bool:
        """Return True if the last word is committed, but not the mark that ends its sentence.

        Whisper takes the end of the sound for the end of the sentence.
        """
        at_end = done < last == len(words) and (last > known or self.unmarked is not None)
        if self.settings.marks == "guessed" or not at_end:
            return False
        return bool(words[-1].mark) and ends_sentence(words[-1].text)

    def _accepted(self, hypothesis: Hypothesis, first: int, last: int) -> list[str]:
        """Return the texts of words `first` to `last`, less those of segments that are refused."""
        guards = self.settings.guards
        accepted, place = [], 0
        for segment in hypothesis.segments:
            start, end = max(first, place), min(last, place + len(segment.words))
            place += len(segment.words)
            texts = [word.text for word in hypothesis.words[start:end]]
            bare = [plain(text) for text in texts]
            loops = bool(texts) and repeats_itself(segment.text, guards)
            if loops or is_echo(bare, self.last_words, guards):
                self.refused = True
                continue
            self.unrepeated, kept = self.unrepeated.push(texts)
            accepted += filter(None, kept)
            self.last_words = [*self.last_words, *bare][-_REMEMBERED:]
        return accepted

    def _remember(self, words: Sequence[SpelledWord]) -> None:
        """Append words to the prompt of what follows."""
        ids = tuple(i for word in words for i in word.ids)
        limit = self.settings.prompt_tokens
        self.prompt = (*self.prompt, *ids)[-limit:] if limit else ()

    def _let_go(self, count: int) -> None:
        """Drop sound for which no more words will come."""
        if count > 0:
            self._remember(self.committed)
            self.settled_words += len(self.committed)
            self.committed, self.refused = (), False
            self._trim(count)

    def _trim(self, count: int) -> None:
        count = min(count, len(self.buffer))
        self.buffer = self.buffer[count:]
        self.loudness.trim(count)
        self.settled += count
