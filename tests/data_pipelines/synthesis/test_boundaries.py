"""Words from marks: every case by hand."""

import pytest

from data_pipelines.synthesis.espeak import Mark, spread_ties, word_spans
from data_pipelines.utterance import Span
from tests.helpers.corpora import spans


def phonemes(*durations: float, pauses: dict[int, float] | None = None) -> list[Span]:
    """Phonemes one behind the other; `pauses[i]` is the silence before number i."""
    spoken, at = [], 0.0
    for i, duration in enumerate(durations):
        at += (pauses or {}).get(i, 0.0)
        spoken.append(Span(text="a", start_ms=at, end_ms=at + duration))
        at += duration
    return spoken


CASES = {
    "a mark for each word": (
        *("to me", [(0, 0), (3, 2)], phonemes(10, 20, 30, 40, pauses={2: 100})),
        [("to", 0, 30), ("me", 130, 200)],
    ),
    "several marks in one word": (
        *("23 cats", [(0, 0), (1, 1), (3, 2)], phonemes(10, 10, 10, 10)),
        [("23", 0, 20), ("cats", 20, 40)],
    ),
    "joined words share whole phonemes by letters": (
        *("in the x", [(0, 0), (7, 4)], phonemes(23, 64, 46, 67, 10)),
        [("in", 0, 87), ("the", 87, 200), ("x", 200, 210)],
    ),
    "of 23 only the 3 shares with of": (
        *("23 of", [(0, 0), (1, 2)], phonemes(10, 10, 10, 10, 10)),
        [("23", 0, 30), ("of", 30, 50)],
    ),
    "more joined words than phonemes share the time": (
        *("a b cd", [(0, 0)], phonemes(40)),
        [("a", 0, 10), ("b", 10, 20), ("cd", 20, 40)],
    ),
    "every joined word gets a phoneme": (
        *("antidisestablishment a b", [(0, 0)], phonemes(10, 10, 10)),
        [("antidisestablishment", 0, 10), ("a", 10, 20), ("b", 20, 30)],
    ),
    "silent words are empty and in order": (
        *("( a < b .", [(2, 0), (6, 1)], phonemes(10, 10, pauses={1: 50})),
        [("(", 0, 0), ("a", 0, 10), ("<", 10, 10), ("b", 60, 70), (".", 70, 70)],
    ),
    "a hyphen leaves its mark to the next word": (
        *("a - bc", [(0, 0), (2, 1)], phonemes(10, 10)),
        [("a", 0, 10), ("-", 10, 10), ("bc", 10, 20)],
    ),
    "a mark behind an opening quote is not shared": (
        *('c "ok"', [(0, 0), (3, 2)], phonemes(10, 10, 10, 10)),
        [("c", 0, 20), ('"ok"', 20, 40)],
    ),
    "a mark without sound joins its word to the one before": (
        *("um ok no", [(0, 0), (3, 1), (6, 1)], phonemes(10, 10)),
        [("um", 0, 5), ("ok", 5, 10), ("no", 10, 20)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_words_from_marks(case):
    text, marks, spoken, expected = CASES[case]
    marked = [Mark(position=position, phoneme=phoneme) for position, phoneme in marks]
    assert spans(word_spans(text, marked, spoken)) == expected


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        ([0, 10, 20], [0, 10, 20]),
        ([0, 10, 10, 30], [0, 10, 20, 30]),
        ([5, 5, 5], [5, 20, 35]),
        ([50, 50], [50, 50]),
        ([], []),
    ],
)
def test_ties_are_spread(starts, expected):
    assert spread_ties(starts, 50) == expected
