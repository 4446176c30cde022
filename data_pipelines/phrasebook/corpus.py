"""Sentences of a split, as many as wanted.

A sentence belongs to a split by what it says, not by when it was drawn: both its English and its
German text are hashed, and it is kept only where both hashes name the split asked for. So no two
splits can share a text on either side, whatever their sizes and seeds.
"""

import hashlib
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Literal, get_args

from data_pipelines.utterance import CorpusError

from .constructions import SHARED, TEST_ONLY
from .lexemes import MEN, SURNAMES, WOMEN
from .scene import Dice, Scene

PHRASEBOOK_VERSION = 1
"""Rises with every change of the grammar that changes any sentence."""

Split = Literal["train", "valid", "test"]

_SPLITS: tuple[Split, ...] = get_args(Split)
_BYTES_BELOW = (176, 216)  # the first byte of a text's hash: below 176 train, below 216 valid
_HELD_OUT_SHARE = 0.5
_NAMES = frozenset(WOMEN + MEN + SURNAMES)
_SHARED_LADDER = tuple(accumulate(c.weight for c in SHARED))
_TEST_ONLY_LADDER = tuple(accumulate(c.weight for c in TEST_ONLY))
_KNOWN_SAMPLE, _KNOWN_TIMES = 20_000, 3


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A sentence, its translation, and the construction it was built by."""

    english: str
    german: str
    construction: str


def sentences(split: Split, count: int, seed: int = 0) -> Iterator[Pair]:
    """Return the first `count` pairs of a split.

    A larger count continues the same list. Every seed gives another list of the same split. The
    test split holds about as many pairs of the constructions in `HELD_OUT`, which train and valid
    lack, as of the others; all of its words occur in train.
    """
    if split not in _SPLITS:
        raise CorpusError(f"split is {split!r}: choose one of {', '.join(_SPLITS)}")
    if count < 0:
        raise CorpusError(f"{split} is {count} sentences; it must be 0 or more")
    return _first(split, count, seed)


def check_counts(counts: Mapping[Split, int]) -> None:
    """Raise CorpusError for a negative count, and for a corpus without sentences."""
    for split, count in counts.items():
        sentences(split, count)
    if not any(counts.values()):
        raise CorpusError(f"no sentence is asked for: set one of {', '.join(counts)} to 1 or more")


def words(text: str) -> list[str]:
    """Return the words of a sentence without punctuation; the first one keeps its capital."""
    return [word.strip(".,;:?!") for word in text.split()]


def _first(split: Split, count: int, seed: int) -> Iterator[Pair]:
    dice = Dice(f"phrasebook {split} {seed}")
    seen: set[bytes] = set()
    while len(seen) < count:
        pair = _draw(dice, split)
        key = _digest(pair.english)
        if key in seen or split != _home(pair.english) or split != _home(pair.german):
            continue
        if _repeats_a_name(pair.english) or (split == "test" and not _is_known(pair)):
            continue
        seen.add(key)
        yield pair


def _repeats_a_name(english: str) -> bool:
    """Return True for "Lena wants to know whether Lena ...", which nobody says."""
    names = [w for w in words(english.replace("'s", "")) if w in _NAMES]
    return len(set(names)) < len(names)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=12).digest()


def _home(text: str) -> Split:
    return _SPLITS[bisect(_BYTES_BELOW, _digest(text)[0])]


def _draw(dice: Dice, split: Split) -> Pair:
    """Draw a sentence that the constructions of the split can make."""
    held_out = split == "test" and dice.chance(_HELD_OUT_SHARE)
    if held_out:
        chosen = dice.stepped(TEST_ONLY, _TEST_ONLY_LADDER)
    else:
        chosen = dice.stepped(SHARED, _SHARED_LADDER)
    said = chosen.build(Scene(dice=dice))
    return Pair(
        english=said.english[0].upper() + said.english[1:],
        german=said.german[0].upper() + said.german[1:],
        construction=chosen.name,
    )


@cache
def _known_words() -> tuple[frozenset[str], frozenset[str]]:
    """Return the words of both languages that are frequent at the start of train."""
    english: Counter[str] = Counter()
    german: Counter[str] = Counter()
    for pair in _first("train", _KNOWN_SAMPLE, 0):
        english.update(words(pair.english))
        german.update(words(pair.german))
    return _frequent(english), _frequent(german)


def _frequent(counts: Counter[str]) -> frozenset[str]:
    return frozenset(word for word, times in counts.items() if times >= _KNOWN_TIMES)


def _is_known(pair: Pair) -> bool:
    english, german = _known_words()
    return english.issuperset(words(pair.english)) and german.issuperset(words(pair.german))
