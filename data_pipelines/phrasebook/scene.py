"""Random choices, and the German form of you."""

import hashlib
import random
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

T = TypeVar("T")
Address = Literal["du", "Sie", "ihr"]


class Dice:
    """Random choices that come out the same on every Python version.

    They use `random.Random.random` alone, the one method whose sequence Python promises to keep;
    `choice` and `randrange` may change.
    """

    def __init__(self, seed: str) -> None:
        digest = hashlib.sha256(seed.encode()).digest()
        self._random = random.Random(int.from_bytes(digest[:8], "big")).random

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._random() < probability

    def below(self, bound: int) -> int:
        """Draw from 0 ... bound - 1."""
        return int(self._random() * bound)

    def between(self, low: int, high: int) -> int:
        """Draw from low ... high."""
        return low + self.below(high - low + 1)

    def pick(self, options: Sequence[T]) -> T:
        """Draw one of the options, all equally likely."""
        return options[self.below(len(options))]

    def weighted(self, options: Sequence[T], weights: Sequence[float]) -> T:
        """Draw one of the options with probability proportional to its weight."""
        point = self._random() * sum(weights)
        for option, weight in zip(options, weights, strict=True):
            point -= weight
            if point < 0:
                return option
        return options[-1]

    def stepped(self, options: Sequence[T], ladder: Sequence[float]) -> T:
        """Draw one of many options; `ladder` is the running total of their weights."""
        return options[bisect(ladder, self._random() * ladder[-1], hi=len(options) - 1)]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The state that a sentence is drawn with; `address` is the German for you."""

    dice: Dice
    address: Address = "du"
