"""Summarise the variants of a grid: means over seeds, tests against the baseline, curves.

A variant is a system trained with several seeds; each of its evaluations was made for every seed.
Variants are compared with the baseline

    in one evaluation   both with the same settings, seeds and utterances
    at equal latency    for each point of the baseline, the best point of the variant with no higher
                        latency (Zaidi et al. 2022, table 4), and on the straight lines of both
                        curves, where they overlap; of the seeds that all points have
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from simuljax.eval.curves import Point, frontier, quality_at
from simuljax.eval.logs import RecordError
from simuljax.eval.significance import Cache, Comparison, are_split, compare_seeds
from simuljax.report.collect import Evaluated, policy_of
from simuljax.report.results import Latency

BETWEEN = 5  # latencies at which two curves are compared
# Settings of the utterances and of the clock, which do not change what is decided.
OF_THE_TEST = ("run", "weights", "mode", "first", "repeats", "name", "steps", "frames")
# The least gap between two groups of seeds: BLEU, and milliseconds.
LEAST_BLEU, LEAST_MS = 2.0, 250.0


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A mean over seeds and the standard deviation of one seed; NaN with one seed."""

    mean: float
    deviation: float
    values: tuple[float, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Summarise one value per seed; a value that is NaN makes the mean NaN."""
        given = tuple(values)
        known = len(given) > 1 and all(map(math.isfinite, given))
        deviation = statistics.stdev(given) if known else math.nan
        return cls(mean=math.fsum(given) / len(given), deviation=deviation, values=given)

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "-"
        digits = 0 if abs(self.mean) >= 100 else 2
        large = max(map(abs, self.values)) >= 100  # a latency
        if are_split(self.values, LEAST_MS if large else LEAST_BLEU):
            return " / ".join(f"{value:.{digits}f}" for value in sorted(self.values))
        spread = f" ± {self.deviation:.{digits}f}" if len(self.values) > 1 else ""
        return f"{self.mean:.{digits}f}{spread}"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One evaluation of a variant, for every seed."""

    name: str  # of the evaluation, after the variant that continues this one, if it is one
    by_seed: Mapping[int, Evaluated]

    @property
    def first(self) -> Evaluated:
        """Return that of the first seed; settings are the same for all."""
        return next(iter(self.by_seed.values()))

    def spread(self, score: str) -> Spread:
        return Spread.of(float(each.scores[score]) for each in self.by_seed.values())

    @property
    def is_streamed(self) -> bool:
        """Return True if it has a latency in milliseconds."""
        first = self.first
        return not first.is_offline and not first.is_control and first.unit == "ms"

    @property
    def is_clocked(self) -> bool:
        """Return True if it was played in real time."""
        return self.first.config.get("mode") == "live"

    @property
    def utterances(self) -> int:
        return max(len(each.records) for each in self.by_seed.values())

    @property
    def test_set(self) -> str:
        """Return the corpus and the split; "" if the run's own corpus was used."""
        corpus = self.first.config.get("corpus")
        return f"{Path(corpus).name}, {self.first.config.get('split', 'test')}" if corpus else ""

    def point(self, latency: Latency, *, clock: bool = False) -> Point:
        """Return the means over seeds; NaN where computation was not measured."""
        times = [each.latency(latency, clock=clock) for each in self.by_seed.values()]
        quality = self.spread("BLEU")
        weight = self.name.partition("/")[0].replace("lambda_", "λ=") if "/" in self.name else ""
        return Point(
            latency_ms=Spread.of(times).mean,
            quality=quality.mean,
            label=", ".join(filter(None, [weight, self.first.setting])),
            seeds=tuple(zip(times, quality.values, strict=True)),
        )

    def computation_ms(self, latency: Latency) -> float:
        """Return what computation adds to a latency; NaN where it was not measured."""
        return self.point(latency, clock=True).latency_ms - self.point(latency).latency_ms

    def decides_like(self, other: "Measured") -> bool:
        """Return True if both differ at most in the test set and in the clock."""
        pairs = [(e, other.by_seed[s]) for s, e in self.by_seed.items() if s in other.by_seed]
        return bool(pairs) and all(
            one.run == two.run and _deciding(one) == _deciding(two) for one, two in pairs
        )

    def of_seeds(self, seeds: Iterable[int]) -> "Measured":
        return replace(self, by_seed={seed: self.by_seed[seed] for seed in seeds})


def _deciding(evaluated: Evaluated) -> dict[str, Any]:
    """Return the settings that decide; options newer than the evaluation are absent."""
    items = evaluated.config.items()
    return {name: value for name, value in items if name not in OF_THE_TEST and value is not None}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A system of the grid: its evaluations by name."""

    name: str
    evaluations: Mapping[str, Measured]

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for each in self.evaluations.values() for seed in each.by_seed})

    def of_seeds(self, seeds: Sequence[int]) -> "Variant":
        """Return the same with these seeds alone, without evaluations that lack one of them."""
        items = self.evaluations.items()
        own = {k: e.of_seeds(seeds) for k, e in items if e.by_seed.keys() >= {*seeds}}
        return Variant(name=self.name, evaluations=own)

    def on(self, test_set: str) -> "Variant":
        """Return the same with the evaluations on one test set alone."""
        own = {name: e for name, e in self.evaluations.items() if e.test_set == test_set}
        return replace(self, evaluations=own)

    def streamed(self, *, clock: bool = False) -> list[Measured]:
        """Return the evaluations with a latency, all of the whole test set.

        Evaluations in real time are returned for the clock, and without it only if there are no
        others: as a rule they play a part of the test set.
        """
        every = [each for each in self.evaluations.values() if each.is_streamed]
        clocked = [each for each in every if each.is_clocked]
        return clocked if clock else _whole([e for e in every if not e.is_clocked] or clocked)

    def whole(self, branch: str) -> Spread | None:
        """Return the best BLEU of a branch with the whole source; None if it was not evaluated.

        Variants that continue this one and evaluations of a part of the test set do not count.
        """
        own = [
            each
            for name, each in self.evaluations.items()
            if "/" not in name
            and each.first.is_offline
            and not each.first.is_control
            and each.first.config.get("branch", "speech") == branch
        ]
        spreads = [each.spread("BLEU") for each in _whole(own)]
        return max(spreads, key=lambda spread: spread.mean, default=None)

    def curve(self, latency: Latency) -> list[Point]:
        """Return its streamed points, those of variants that continue it included."""
        points = [each.point(latency) for each in self.streamed()]
        return sorted(point for point in points if not math.isnan(point.latency_ms))

    def lines(self, latency: Latency, *, clock: bool = False) -> dict[str, list[Point]]:
        """Return the same for a figure: one line per policy if there are several."""
        every = [each for each in self.evaluations.values() if each.is_streamed]
        several = len({policy_of(each.first.config) for each in every}) > 1
        found: dict[str, list[Point]] = {}
        for each in self.streamed(clock=clock):
            point = self._played(each, latency) if clock else each.point(latency)
            if not math.isnan(point.latency_ms):
                policy = policy_of(each.first.config) or "its own"
                found.setdefault(self.name + f", {policy}" * several, []).append(point)
        return {name: sorted(points) for name, points in found.items()}

    def _played(self, played: Measured, latency: Latency) -> Point:
        """Return the point of the whole test set, later by what computation took on the part."""
        for whole in self.streamed():
            if whole is not played and whole.decides_like(played):
                both = sorted(whole.by_seed.keys() & played.by_seed.keys())
                point = whole.of_seeds(both).point(latency)
                took = played.of_seeds(both).computation_ms(latency)
                return replace(point, latency_ms=point.latency_ms + took)
        return played.point(latency, clock=True)


def _whole(measured: Sequence[Measured]) -> list[Measured]:
    """Return the evaluations with the most utterances."""
    most = max((each.utterances for each in measured), default=0)
    return [each for each in measured if each.utterances == most]


def share_of_text(variant: Variant, variants: Iterable[Variant]) -> float:
    """Return its BLEU from speech over the best BLEU that any variant has from text; or NaN."""
    speech = variant.whole("speech")
    text = [spread for each in variants if (spread := each.whole("text"))]
    return speech.mean / max(each.mean for each in text) if speech and text else math.nan


def compare(
    variant: Variant, baseline: Variant, evaluation: str, cache: Cache | None = None
) -> Comparison | None:
    """Compare one evaluation over the seeds that both have; None if there are none."""
    own, base = variant.evaluations.get(evaluation), baseline.evaluations.get(evaluation)
    if own is None or base is None or variant.name == baseline.name:
        return None
    seeds = sorted(set(own.by_seed) & set(base.by_seed))
    first, second = ([each.by_seed[seed].records for seed in seeds] for each in (base, own))
    return compare_seeds(first, second, cache=cache) if seeds else None


class AtEqualLatency(NamedTuple):
    """A variant's curve against the baseline's: latencies, with differences in quality there."""

    no_later: list[tuple[float, float]]  # of the variant's best point with no higher latency
    between: list[tuple[float, float]]  # on straight lines
    seeds: list[int]  # of which both curves are means


def at_equal_latency(
    variant: Variant, baseline: Variant, latency: Latency
) -> AtEqualLatency | None:
    """Compare two curves; None if one has no point, or if no seed has all points."""
    points = [*variant.streamed(), *baseline.streamed()]
    seeds = sorted(set.intersection(*({*each.by_seed} for each in points))) if points else []
    if not seeds or variant.name == baseline.name:
        return None
    new, old = (each.of_seeds(seeds).curve(latency) for each in (variant, baseline))
    if not new or not old:
        return None
    no_later = []
    for than in old:
        early = [point.quality for point in new if point.latency_ms <= than.latency_ms]
        no_later += [(than.latency_ms, max(early) - than.quality)] if early else []
    return AtEqualLatency(no_later, _between(frontier(new), frontier(old)), seeds)


def _between(new: Sequence[Point], old: Sequence[Point]) -> list[tuple[float, float]]:
    """Return the difference at a few latencies that both curves cover."""
    low = max(new[0].latency_ms, old[0].latency_ms)
    high = min(new[-1].latency_ms, old[-1].latency_ms)
    if high <= low:
        return []
    places = [min(high, low + (high - low) * i / (BETWEEN - 1)) for i in range(BETWEEN)]
    found = [(place, quality_at(new, place) - quality_at(old, place)) for place in places]
    return [(place, difference) for place, difference in found if not math.isnan(difference)]


def list_test_sets(variants: Sequence[Variant]) -> list[str]:
    """Return the test sets on which a variant was streamed, in the order of the evaluations."""
    every = [each for variant in variants for each in variant.evaluations.values()]
    return list(dict.fromkeys(each.test_set for each in every if each.is_streamed))


def check_same_test(variants: Sequence[Variant]) -> None:
    """Reject variants whose utterances or references differ in one evaluation."""
    seen: dict[str, tuple] = {}
    for variant in variants:
        for name, measured in variant.evaluations.items():
            for each in measured.by_seed.values():
                test = tuple((record.index, record.reference) for record in each.records)
                if seen.setdefault(name, test) != test:
                    raise RecordError(
                        f"{each.run}: {name} has other utterances than in the other variants"
                    )
