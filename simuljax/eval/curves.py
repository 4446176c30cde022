"""Curves of quality against latency, made of the points of several evaluations.

Latency is in milliseconds, and lower is better; quality is BLEU or the like, and higher is better.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypeVar

K = TypeVar("K", bound=Hashable)
Regime = Literal["low", "medium", "high"]


@dataclass(frozen=True, kw_only=True, order=True)
class Point:
    """One system at one setting."""

    latency_ms: float
    quality: float
    label: str = ""  # of the setting: "k=3", "lambda=0.1"
    seeds: tuple[tuple[float, float], ...] = field(default=(), compare=False)  # if it is a mean


def regime(latency_ms: float) -> Regime:
    """Return low below 1 s, medium below 2 s, high from there on."""
    if math.isnan(latency_ms):
        raise ValueError("latency_ms is NaN; a point without a latency is in no regime")
    return "low" if latency_ms < 1000 else "medium" if latency_ms < 2000 else "high"


def best_per_regime(points: Iterable[Point]) -> dict[Regime, Point]:
    """Return the point of best quality in each regime that has one."""
    return _best(points, lambda point: regime(point.latency_ms))


def best_per_bucket(points: Iterable[Point], width_ms: float = 500.0) -> list[Point]:
    """Return the point of best quality in each latency bucket [i width, (i+1) width), in order.

    See figure 3 of Ma et al. 2020.
    """
    return [*_best(points, lambda point: math.floor(point.latency_ms / width_ms)).values()]


def _best(points: Iterable[Point], place: Callable[[Point], K]) -> dict[K, Point]:
    """Return the best point of each place, in order of latency; of equal ones the first."""
    best: dict[K, Point] = {}
    for point in sorted(points):
        if point.quality > best.setdefault(place(point), point).quality:
            best[place(point)] = point
    return best


def frontier(points: Iterable[Point]) -> list[Point]:
    """Return the Pareto-optimal points in order of latency."""
    front: list[Point] = []
    for point in sorted(points, key=lambda p: (p.latency_ms, -p.quality)):
        if not front or point.quality > front[-1].quality:
            front.append(point)
    return front


def quality_at(points: Sequence[Point], latency_ms: float) -> float:
    """Return the quality at a latency, on straight lines between the points; NaN outside.

    Of several points at one latency the best counts.
    """
    best: dict[float, float] = {}
    for point in sorted(points):
        best[point.latency_ms] = point.quality
    if latency_ms in best:
        return best[latency_ms]
    for (left, low), (right, high) in pairwise(best.items()):
        if left < latency_ms < right:
            return low + (high - low) * (latency_ms - left) / (right - left)
    return math.nan
