"""Join words as their script is written: with spaces, or without in Han, kana, Thai, Lao, Burmese.

Hangul has spaces. A log of a text without spaces has one delay per character.
"""

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")

# Ranges of a regular expression; Thai and Lao, Burmese, and what is as wide as Han but no Hangul.
UNSPACED_CHARACTERS = (
    "\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f"
    "\u2e80-\u312f\u3190-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff01-\uff9f\U00020000-\U0003ffff"
)
_MARKS = "“”‘’…—·"  # of both kinds of script
_END = re.compile(rf"[{UNSPACED_CHARACTERS}][{_MARKS}]*\Z")
_START = re.compile(rf"[{_MARKS}]*[{UNSPACED_CHARACTERS}]")
_ONE = re.compile(rf"[{UNSPACED_CHARACTERS}]")
_PAIR = re.compile(rf"[{UNSPACED_CHARACTERS}](?=[{UNSPACED_CHARACTERS}])")
_PARTED = re.compile(rf"[{UNSPACED_CHARACTERS}](?=\s+[{UNSPACED_CHARACTERS}])")


def space_between(before: str, after: str) -> str:
    """Return a space unless there is no word before, or both neighbours are written without."""
    return "" if not before or (_END.search(before) and _START.match(after)) else " "


def join_words(words: Iterable[str]) -> str:
    """Return words as a text."""
    known = ["", *filter(None, words)]
    return "".join(space_between(a, b) + b for a, b in pairwise(known))


def is_unspaced(text: str) -> bool:
    """Return True if most characters are of such a script, and at most 1 in 4 stands apart."""
    ones, pairs, parted = (len(each.findall(text)) for each in (_ONE, _PAIR, _PARTED))
    return 2 * ones > sum(map(len, text.split())) and pairs >= 3 * parted


def are_unspaced(references: Iterable[str]) -> bool | None:
    """Return True if references are written without spaces; None if there are no words."""
    text = "".join(references)
    return is_unspaced(text) if text.strip() else None


def timed_units(
    words: Iterable[tuple[str, T]], unspaced: bool | None = None
) -> tuple[str, list[T]]:
    """Return the prediction of a log and the time of each of its units, words or characters.

    Args:
        words: Words, each with its time; one with spaces inside is several.
        unspaced: True if the references are written without spaces; None: look at the words.
    """
    pieces = [(piece, time) for word, time in words for piece in word.split()]
    text = join_words(piece for piece, _ in pieces)
    if is_unspaced(text) if unspaced is None else unspaced:
        return text, [time for piece, time in pieces for _ in piece]
    return " ".join(piece for piece, _ in pieces), [time for _, time in pieces]
