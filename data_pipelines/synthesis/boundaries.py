"""Word and phoneme times from the events of a synthesiser."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

from data_pipelines.utterance import Span


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Phonemes from number `phoneme` on, up to the next mark, say the text from `position` on."""

    position: int  # in characters from the start of the text
    phoneme: int


@dataclass(frozen=True, kw_only=True)
class _Word:
    text: str
    start: int  # in characters
    stop: int


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
    words = [
        _Word(text=m.group(), start=m.start(), stop=m.end()) for m in re.finditer(r"\S+", text)
    ]
    parts: list[list[Span]] = [[] for _ in words]
    for (position, spoken), after in _spoken_marks(marks, phonemes, len(text)):
        first = max(bisect_right(words, position, key=lambda word: word.start) - 1, 0)
        after_first = range(first + 1, bisect_right(words, after, key=lambda word: word.stop))
        sharers = [first, *(i for i in after_first if _letters(words[i]))]
        if len(sharers) > 1 and set(words[first].text) == {"-"}:
            sharers = sharers[1:]
        weights = [_letters(words[i], since=position) or 1 for i in sharers]
        for i, share in zip(sharers, _shares(spoken, weights), strict=True):
            parts[i].append(share)
    return _joined(words, parts)


def _spoken_marks(marks: Sequence[Mark], phonemes: Sequence[Span], length: int):
    """Yield ((position, phonemes), next position) for each mark that has phonemes."""
    bounds = [mark.phoneme for mark in marks] + [len(phonemes)]
    spoken_marks = [
        (mark.position, phonemes[start:stop])
        for mark, (start, stop) in zip(marks, pairwise(bounds), strict=True)
        if stop > start
    ]
    return zip(spoken_marks, [position for position, _ in spoken_marks[1:]] + [length], strict=True)


def _letters(word: _Word, since: int = 0) -> int:
    return sum(c.isalnum() for c in word.text[max(since - word.start, 0) :])


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


def _joined(words: Sequence[_Word], parts: Sequence[Sequence[Span]]) -> tuple[Span, ...]:
    spans: list[Span] = []
    last = 0.0
    for word, own in zip(words, parts, strict=True):
        start = max(own[0].start_ms, last) if own else last
        last = max(own[-1].end_ms, start) if own else last
        spans.append(Span(text=word.text, start_ms=start, end_ms=last))
    return tuple(spans)
