"""Words from marks: every case by hand."""

import pytest

from data_pipelines.synthesis.boundaries import Mark, spread_ties, word_spans
from data_pipelines.utterance import Span


def phonemes(*durations: float, pauses: dict[int, float] | None = None) -> list[Span]:
    """Phonemes one behind the other; `pauses[i]` is the silence before number i."""
    spans, at = [], 0.0
    for i, duration in enumerate(durations):
        at += (pauses or {}).get(i, 0.0)
        spans.append(Span(text="a", start_ms=at, end_ms=at + duration))
        at += duration
    return spans


def marks(*pairs: tuple[int, int]) -> list[Mark]:
    return [Mark(position=position, phoneme=phoneme) for position, phoneme in pairs]


def times(text: str, marked: list[Mark], spoken: list[Span]) -> list[tuple[str, float, float]]:
    return [(w.text, w.start_ms, w.end_ms) for w in word_spans(text, marked, spoken)]


def test_a_mark_for_each_word():
    spoken = phonemes(10, 20, 30, 40, pauses={2: 100})
    assert times("to me", marks((0, 0), (3, 2)), spoken) == [("to", 0, 30), ("me", 130, 200)]


def test_several_marks_in_one_word():
    spoken = phonemes(10, 10, 10, 10)
    got = times("23 cats", marks((0, 0), (1, 1), (3, 2)), spoken)
    assert got == [("23", 0, 20), ("cats", 20, 40)]


def test_joined_words_share_whole_phonemes_by_letters():
    spoken = phonemes(23, 64, 46, 67, 10)
    got = times("in the x", marks((0, 0), (7, 4)), spoken)
    assert got == [("in", 0, 87), ("the", 87, 200), ("x", 200, 210)]


def test_a_word_joined_to_the_last_part_of_another():
    """Of "23" only the "3" shares with "of"."""
    spoken = phonemes(10, 10, 10, 10, 10)
    assert times("23 of", marks((0, 0), (1, 2)), spoken) == [("23", 0, 30), ("of", 30, 50)]


def test_more_joined_words_than_phonemes_share_the_time():
    got = times("a b cd", marks((0, 0)), phonemes(40))
    assert got == [("a", 0, 10), ("b", 10, 20), ("cd", 20, 40)]


def test_every_joined_word_gets_a_phoneme():
    got = times("antidisestablishment a b", marks((0, 0)), phonemes(10, 10, 10))
    assert got == [("antidisestablishment", 0, 10), ("a", 10, 20), ("b", 20, 30)]


def test_silent_words_are_empty_and_in_order():
    spoken = phonemes(10, 10, pauses={1: 50})
    got = times("( a < b .", marks((2, 0), (6, 1)), spoken)
    assert got == [("(", 0, 0), ("a", 0, 10), ("<", 10, 10), ("b", 60, 70), (".", 70, 70)]


def test_a_hyphen_leaves_its_mark_to_the_next_word():
    got = times("a - bc", marks((0, 0), (2, 1)), phonemes(10, 10))
    assert got == [("a", 0, 10), ("-", 10, 10), ("bc", 10, 20)]


def test_a_mark_behind_an_opening_quote_is_not_shared():
    got = times('c "ok"', marks((0, 0), (3, 2)), phonemes(10, 10, 10, 10))
    assert got == [("c", 0, 20), ('"ok"', 20, 40)]


def test_phonemes_before_the_first_mark_and_marks_without_sound():
    got = times("um ok no", marks((0, 0), (3, 1), (6, 1)), phonemes(10, 10))
    assert got[0] == ("um", 0, 10 / 2)  # "ok" is joined to it
    assert got[2] == ("no", 10, 20)


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
