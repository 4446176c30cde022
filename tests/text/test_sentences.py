"""Ends of sentences, and full stops that are none."""

import pytest

from simuljax.text.sentences import ABBREVIATIONS, ends_sentence

ENDS = [
    "so.",
    "so?",
    'so!"',
    "so.”",
    "so.)",
    "so.“",
    "so!‘",
    "so?«",
    "I.",
    "1961.",
    "Strasse.",
    "他。",
    "他！」",
    ".",
    "Mr?",
    "no.",
]
NO_ENDS = ["so", "so,", "so...", "3.5", ".com", "so:", "Mr.", "(Dr.", "„Prof.", "z.", "B.", "F."]
NO_ENDS += ["e.g.", "z.B.", "U.S.", "bzw.", "Ä."]


@pytest.mark.parametrize("word", ENDS)
def test_a_mark_ends_a_sentence(word):
    assert ends_sentence(word)


@pytest.mark.parametrize("word", NO_ENDS)
def test_other_marks_do_not(word):
    assert not ends_sentence(word)


def test_abbreviations_are_compared_without_capitals():
    assert all(each == each.casefold() and each.isalpha() for each in ABBREVIATIONS)
