"""Latency against quality."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simuljax.eval import curves
from simuljax.eval.curves import Point

ZAIDI = [(7.9, 765), (11.4, 1089), (16.13, 1504), (17.24, 1781), (19.39, 2113), (20.97, 2614)]


def points(pairs):
    return [Point(latency_ms=latency, quality=quality) for quality, latency in pairs]


some_points = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 60).map(lambda x: x * 50)), min_size=1
).map(points)
cheap = settings(max_examples=50, deadline=None, derandomize=True, database=None)


def test_regimes_and_the_best_of_each():
    names = [curves.regime(latency) for latency in (-200, 999.9, 1000, 1999, 2000, 9000)]
    assert names == ["low", "low", "medium", "medium", "high", "high"]
    with pytest.raises(ValueError, match="no regime"):
        curves.regime(math.nan)
    best = curves.best_per_regime(points([*ZAIDI, (17.24, 1900)]))
    found = {name: (point.quality, point.latency_ms) for name, point in best.items()}
    assert found == {"low": (7.9, 765), "medium": (17.24, 1781), "high": (20.97, 2614)}


def test_the_best_of_every_bucket():
    best = curves.best_per_bucket(
        points([*ZAIDI, (16.5, 1999), (3.0, 499), (9.0, 500), (9.0, 700)])
    )
    assert [(p.quality, p.latency_ms) for p in best] == [
        (3.0, 499),
        (9.0, 500),
        (11.4, 1089),
        (17.24, 1781),
        (19.39, 2113),
        (20.97, 2614),
    ]


@given(some_points, st.floats(0, 3000))
@cheap
def test_interpolation_is_numpys(line, latency):
    """Of several points at one latency the best counts; outside of the curve there is nothing."""
    best = {}
    for point in line:
        best[point.latency_ms] = max(point.quality, best.get(point.latency_ms, 0))
    x = sorted(best)
    for at in (latency, x[0], x[-1] + 1):
        expected = np.interp(at, x, [best[i] for i in x], left=np.nan, right=np.nan)
        assert curves.quality_at(line, at) == pytest.approx(expected, nan_ok=True)


@given(some_points)
@cheap
def test_the_frontier_is_what_nothing_beats(line):
    front = curves.frontier(line)
    held = {(p.latency_ms, p.quality) for p in front}
    for point in line:
        beaten = any(
            p.latency_ms <= point.latency_ms and p.quality >= point.quality and p != point
            for p in line
        )
        assert beaten or (point.latency_ms, point.quality) in held
    assert front == sorted(front)


@given(some_points)
@cheap
def test_the_hypervolume_counts_dominated_squares(line):
    """Latencies are multiples of 50 ms and qualities whole, so squares of that size are exact."""
    dominated = sum(
        any(p.latency_ms <= 50 * column and p.quality > row for p in line)
        for column in range(40)
        for row in range(3, 41)
    )
    area = curves.hypervolume(line, latency_ms=2000, quality=3)
    assert area == pytest.approx(50 * dominated)
    assert curves.hypervolume([], latency_ms=3000) == 0
