"""Speech by eSpeak NG: 16 kHz, with the times of words and phonemes."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

from data_pipelines.synthesis.speech import Speech, to_16_khz
from data_pipelines.utterance import Span, Voice
from simuljax.text.phonemes import RATE as ENGINE_RATE
from simuljax.voice.base import VoiceError, shown
from simuljax.voice.espeak import WORD, Synthesis, utter

UP, DOWN = 320, 441  # 16,000 / 22,050


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Phonemes from number `phoneme` on, up to the next mark, say the text from `position` on."""

    position: int  # in characters from the start of the text
    phoneme: int


def speak(text: str, voice: Voice) -> Speech:
    """Say the text; markup, phoneme codes and control characters have no effect."""
    if not text.strip():
        raise VoiceError("there is no text to say: leave empty transcripts out")
    output = utter(
        text,
        voice.language,
        voice.variant,
        words_per_minute=voice.words_per_minute,
        pitch=voice.pitch,
    )
    samples = output.samples
    marks, phonemes = _phonemes(output, len(samples))
    if not phonemes:
        raise VoiceError(f"eSpeak finds nothing to say in {shown(text)}: leave it out")
    return Speech(
        samples=to_16_khz(samples, UP, DOWN),
        words=word_spans(text, marks, phonemes),
        phonemes=tuple(phonemes),
    )


def _phonemes(output: Synthesis, samples: int) -> tuple[list[Mark], list[Span]]:
    """Return the mark of each word, and the phonemes with their times, without pauses.

    A phoneme's event comes with its burst, a word's with the closure before: the first phoneme
    takes the closure in. A word's event that coincides with the phoneme before it has overtaken
    that phoneme, and only the first phoneme's own event gives the start of the word.
    """
    starts: list[int] = []
    names: list[str] = []  # a pause has none
    marks: list[Mark] = []
    spoken = 0
    opened: int | None = None
    for kind, position, sample, name in output.events:
        if kind == WORD:
            marks.append(Mark(position=position, phoneme=spoken))
            opened = sample
            continue
        overtaken = opened is None or bool(starts and names[-1] and opened <= starts[-1])
        start = sample if overtaken else min(opened or 0, sample)
        start = min(max(start, starts[-1] if starts else 0), samples)
        if starts and not names[-1] and starts[-1] == start:  # a pause of no length
            starts.pop()
            names.pop()
        starts.append(start)
        names.append(name)
        spoken += bool(name)
        opened = None
    edges = [1000 * at / ENGINE_RATE for at in [*spread_ties(starts, samples), samples]]
    return marks, [
        Span(text=name, start_ms=start, end_ms=end)
        for name, (start, end) in zip(names, pairwise(edges), strict=True)
        if name
    ]


def spread_ties(starts: Sequence[float], end: float) -> list[float]:
    """Give phonemes that share a start equal parts of the time to the next one.

    Synthesisers that blend neighbouring sounds (the l and n of "well-known") report one time for
    both.
    """
    runs = [(start, len(list(run))) for start, run in groupby(starts)]
    nexts = [*(start for start, _ in runs), end][1:]
    return [
        start + (after - start) * i / count
        for (start, count), after in zip(runs, nexts, strict=True)
        for i in range(count)
    ]


def word_spans(text: str, marks: Sequence[Mark], phonemes: Sequence[Span]) -> tuple[Span, ...]:
    """Return a span for every word of the text.

    A mark belongs to the word that its position falls into; a word may have several ("23"). A
    word without any was joined to the one before, as "the" is in "in the": they share that
    mark's phonemes in proportion to their letters. A word without letters or a mark of its own
    is silent: its span is empty and at the end of the word before. So is a lone hyphen, whose
    mark is that of the next word.
    """
    words = [*re.finditer(r"\S+", text)]
    parts: list[list[Span]] = [[] for _ in words]
    for (position, spoken), after in _spoken_marks(marks, phonemes, len(text)):
        first = max(bisect_right(words, position, key=re.Match.start) - 1, 0)
        after_first = range(first + 1, bisect_right(words, after, key=re.Match.end))
        sharers = [first, *(i for i in after_first if _letters(words[i]))]
        if len(sharers) > 1 and set(words[first].group()) == {"-"}:
            sharers = sharers[1:]
        weights = [_letters(words[i], since=position) or 1 for i in sharers]
        for i, share in zip(sharers, _shares(spoken, weights), strict=True):
            parts[i].append(share)
    spans: list[Span] = []
    last = 0.0
    for word, own in zip(words, parts, strict=True):
        start = max(own[0].start_ms, last) if own else last
        last = max(own[-1].end_ms, start) if own else last
        spans.append(Span(text=word.group(), start_ms=start, end_ms=last))
    return tuple(spans)


def _spoken_marks(marks: Sequence[Mark], phonemes: Sequence[Span], length: int):
    """Yield ((position, phonemes), next position) for each mark that has phonemes."""
    bounds = [mark.phoneme for mark in marks] + [len(phonemes)]
    spoken_marks = [
        (mark.position, phonemes[start:stop])
        for mark, (start, stop) in zip(marks, pairwise(bounds), strict=True)
        if stop > start
    ]
    return zip(spoken_marks, [position for position, _ in spoken_marks[1:]] + [length], strict=True)


def _letters(word: re.Match[str], since: int = 0) -> int:
    return sum(c.isalnum() for c in word.group()[max(since - word.start(), 0) :])


def _shares(phonemes: Sequence[Span], weights: Sequence[int]) -> list[Span]:
    """Divide the phonemes in order: whole ones if there are enough, else parts of them."""
    count, total = len(phonemes), sum(weights)
    cuts = [0.0] + [count * part / total for part in accumulate(weights)]
    if count >= len(weights):
        for i in range(1, len(cuts) - 1):  # at least one phoneme for each
            cuts[i] = min(max(round(cuts[i]), cuts[i - 1] + 1), count - (len(cuts) - 1 - i))
    return [
        Span(text="", start_ms=_time(phonemes, a, "start"), end_ms=_time(phonemes, b, "end"))
        for a, b in pairwise(cuts)
    ]


def _time(phonemes: Sequence[Span], cut: float, side: str) -> float:
    """Return the time of a cut: the start of the next phoneme or the end of the one before."""
    i, fraction = int(cut), cut % 1
    if not fraction:
        return phonemes[i].start_ms if side == "start" else phonemes[i - 1].end_ms
    return phonemes[i].start_ms + fraction * (phonemes[i].end_ms - phonemes[i].start_ms)
