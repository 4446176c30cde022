"""Chance, and who is being spoken to."""

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
        """True so often."""
        return self._random() < probability

    def below(self, bound: int) -> int:
        """One of 0 ... bound - 1."""
        return int(self._random() * bound)

    def between(self, low: int, high: int) -> int:
        """One of low ... high."""
        return low + self.below(high - low + 1)

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, each as likely as the others."""
        return options[self.below(len(options))]

    def weighted(self, options: Sequence[T], weights: Sequence[float]) -> T:
        """One of the options, as likely as its weight."""
        point = self._random() * sum(weights)
        for option, weight in zip(options, weights, strict=True):
            point -= weight
            if point < 0:
                return option
        return options[-1]

    def stepped(self, options: Sequence[T], ladder: Sequence[float]) -> T:
        """One of many options, whose running total of weights is `ladder`."""
        return options[bisect(ladder, self._random() * ladder[-1], hi=len(options) - 1)]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What a sentence is drawn with: `address` is the German for you."""

    dice: Dice
    address: Address = "du"
