"""Word error rate of transcripts, and the lag of written words behind speech.

Texts are normalised before they are compared. `normalise`:

    NFKC, lower case, ’ becomes '
    removes <...> and [...], the marks of a transcriber
    splits words at hyphens and dashes; removes other punctuation, but for ' inside a word and
    . , between digits
    removes hesitations (uh, um, uhm, hm, hmm, mm, mmm, mhm, er, erm, eh)

Numbers stay as they are written: "7" is not "seven".
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

HESITATIONS = frozenset(("uh", "um", "uhm", "hm", "hmm", "mm", "mmm", "mhm", "er", "erm", "eh"))

_MARKS = re.compile(r"<[^>]*>|\[[^\]]*\]")
_NO_SPACE = re.compile(r"\S")
_WORD = re.compile(r"\d+(?:[.,]\d+)*|[^\W_]+(?:'[^\W_]+)*")


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """Normalised words, each with a time if it is known."""

    words: tuple[str, ...]
    times_ms: tuple[float, ...] = ()


def normalise(text: str) -> list[str]:
    """Return the normalised words of a text."""
    plain = _MARKS.sub(" ", unicodedata.normalize("NFKC", text).lower().replace("’", "'"))
    return [word for word in _WORD.findall(plain) if word not in HESITATIONS]


def transcript(text: str, times_ms: Sequence[float] = ()) -> Transcript:
    """Return the normalised words, each with the time of the written word that it comes from.

    A mark of several words may have a time for each of them, or one for all.
    """
    if not times_ms:
        return Transcript(words=tuple(normalise(text)))
    written = _MARKS.sub(lambda mark: _NO_SPACE.sub("-", mark[0]), text).split()
    if len(written) != len(times_ms):
        written = _MARKS.sub("-", text).split()
    if len(written) != len(times_ms):
        raise ValueError(f"there are {len(written)} words but {len(times_ms)} times")
    pairs = zip(written, times_ms, strict=True)
    kept = [(word, time) for one, time in pairs for word in normalise(one)]
    return Transcript(words=tuple(w for w, _ in kept), times_ms=tuple(t for _, t in kept))


def word_error_rate(pairs: Iterable[tuple[Sequence[str], Sequence[str]]]) -> float:
    """Return the edits of all (reference, hypothesis) pairs in percent of the reference words."""
    errors = words = 0
    for reference, hypothesis in pairs:
        errors += edits(reference, hypothesis)
        words += len(reference)
    return 100 * errors / words if words else math.nan


def edits(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """Return the least number of substitutions, deletions and insertions."""
    return int(_distances(reference, hypothesis)[-1, -1])


def lags(reference: Transcript, hypothesis: Transcript) -> list[float]:
    """Return the time from speech to text of every correct word, in ms."""
    return [
        hypothesis.times_ms[j] - reference.times_ms[i]
        for i, j in matches(reference.words, hypothesis.words)
    ]


def matches(reference: Sequence[str], hypothesis: Sequence[str]) -> list[tuple[int, int]]:
    """Return places of equal words in an alignment of the fewest edits; of several, the latest."""
    table = _distances(reference, hypothesis)
    i, j, found = len(reference), len(hypothesis), []
    while i and j:
        equal = reference[i - 1] == hypothesis[j - 1]
        if equal and table[i, j] == table[i - 1, j - 1]:
            i, j = i - 1, j - 1
            found.append((i, j))
        elif table[i, j] == table[i - 1, j - 1] + 1:
            i, j = i - 1, j - 1
        elif table[i, j] == table[i - 1, j] + 1:
            i -= 1
        else:
            j -= 1
    return found[::-1]


def _distances(reference: Sequence[str], hypothesis: Sequence[str]) -> np.ndarray:
    """Return [i, j]: edits from i words of the reference to j words of the hypothesis.

    One row at a time: x_j = min(y_j, x_{j-1} + 1) is min_{k <= j} (y_k - k) + j.
    """
    numbers: dict[str, int] = {}
    spelled = np.array([numbers.setdefault(word, len(numbers)) for word in hypothesis], np.int64)
    places = np.arange(len(hypothesis) + 1)
    table = np.empty((len(reference) + 1, len(hypothesis) + 1), np.int32)
    table[0] = places
    for i, word in enumerate(reference, start=1):
        before = table[i - 1]
        changed = before[:-1] + (spelled != numbers.get(word, -1))
        row = np.concatenate([[i], np.minimum(changed, before[1:] + 1)])
        table[i] = np.minimum.accumulate(row - places) + places
    return table
