"""Sentences of a split, as many as wanted.

A sentence belongs to a split by what it says, not by when it was drawn: both its English and its
German text are hashed, and it is kept only where both hashes name the split asked for. So no two
splits can share a text on either side, whatever their sizes and seeds.
"""

import hashlib
from bisect import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, get_args

from data_pipelines.utterance import CorpusError

from .constructions import SHARED, TEST_ONLY
from .draw import Scene, seeded
from .lexemes import MEN, SURNAMES, WOMEN, table

PHRASEBOOK_VERSION = 1
"""Rises with every change of the grammar that changes any sentence."""

Split = Literal["train", "valid", "test"]

_SPLITS: tuple[Split, ...] = get_args(Split)
_BYTES_BELOW = (176, 216)  # the first byte of a text's hash: below 176 train, below 216 valid
_HELD_OUT_SHARE = 0.5
_NAMES = frozenset(WOMEN + MEN + SURNAMES)
_SHARED, _TEST_ONLY = ((c, [*accumulate(each.weight for each in c)]) for c in (SHARED, TEST_ONLY))
# Words that are frequent at the start of train, for the test split.
_ENGLISH, _GERMAN = (frozenset(row["words"]) for row in table("known", "words"))


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
    scene, seen = Scene(seeded(f"phrasebook {split} {seed}")), set[bytes]()
    while len(seen) < count:
        pair = _draw(scene, split)
        key = _digest(pair.english)
        if key in seen or {_home(pair.english), _home(pair.german)} != {split}:
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


def _draw(scene: Scene, split: Split) -> Pair:
    """Draw a sentence that the constructions of the split can make."""
    held_out = split == "test" and scene.chance(_HELD_OUT_SHARE)
    options, ladder = _TEST_ONLY if held_out else _SHARED
    chosen = options[bisect(ladder, scene.random() * ladder[-1], hi=len(options) - 1)]
    said = chosen.build(scene)
    english, german = (side[0].upper() + side[1:] for side in (said.english, said.german))
    return Pair(english=english, german=german, construction=chosen.name)


def _is_known(pair: Pair) -> bool:
    return _ENGLISH.issuperset(words(pair.english)) and _GERMAN.issuperset(words(pair.german))
