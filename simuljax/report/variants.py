"""Summarise the variants of a grid: means over seeds, tests against the baseline, curves.

A variant is a system trained with several seeds; each of its evaluations was made for every seed.
Variants are compared with the baseline

    in one evaluation   both with the same settings, seeds and utterances
    at equal latency    for each point of the baseline, the best point of the variant with no higher
                        latency (Zaidi et al. 2022, table 4); on the straight lines of both curves,
                        where they overlap; and by the area that each curve dominates

A report of runs and logs without a grid tests its systems against each other on one test set.
"""

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from simuljax.eval.curves import Point, best_per_regime, frontier, hypervolume, quality_at
from simuljax.eval.logs import RecordError
from simuljax.eval.significance import (
    Cache,
    Comparison,
    Measure,
    are_split,
    compare_all,
    compare_seeds,
    corrected,
)
from simuljax.report.collect import (
    Comparable,
    Computation,
    Evaluated,
    Latency,
    policy_of,
    read_published,
)
from simuljax.report.page import Table, make_table, number, p_value
from simuljax.report.results import Results

BETWEEN = 5  # latencies at which two curves are compared
# Settings of the utterances and of the clock, which do not change what is decided.
OF_THE_TEST = ("run", "mode", "first", "repeats", "name", "steps", "frames")
# The least gap between two groups of seeds: BLEU, and milliseconds.
LEAST_BLEU, LEAST_MS = 2.0, 250.0
PAIRS = 3  # systems of which all pairs are shown; of more, the best against each other one


@dataclass(frozen=True, kw_only=True)
class Tested:
    """A test between two systems, in a regime or offline."""

    first: Evaluated
    second: Evaluated
    where: str  # "low latency", "offline"
    best: Evaluated  # of all systems there
    comparison: Comparison

    @property
    def has_best(self) -> bool:
        return self.best in (self.first, self.second)


def compare_systems(comparable: Comparable, latency: Latency) -> list[Tested]:
    """Test all pairs of systems: offline, and by their best evaluations in every regime.

    p-values are corrected by Holm for all these pairs, for quality and for latency apart. Of more
    than three systems, only the best against every other one is returned. Without BLEU there are
    no tests.
    """
    if any(math.isnan(each.scores["BLEU"]) for each in comparable.evaluated):
        return []
    names = list(dict.fromkeys([*comparable.streamed(), *comparable.offline()]))
    best = {name: _best(comparable, name, latency) for name in names}
    found: list[Tested] = []
    for metric in ("BLEU", latency):
        tests: list[Tested] = []
        for where in dict.fromkeys(itertools.chain.from_iterable(best.values())):
            systems = {name: best[name][where] for name in names if where in best[name]}
            if len(systems) > 1 and not (metric != "BLEU" and where == "offline"):
                tests += _pairs(systems, where, metric)
        adjusted = corrected([each.comparison for each in tests])
        found += [replace(t, comparison=c) for t, c in zip(tests, adjusted, strict=True)]
    return found if len(names) <= PAIRS else [each for each in found if each.has_best]


def _pairs(systems: dict[str, Evaluated], where: str, metric: str) -> list[Tested]:
    profile = next(iter(systems.values())).scores["profile"]
    measure = Measure(metric=metric, profile=profile)  # pyright: ignore[reportArgumentType]
    logs = {name: each.records for name, each in systems.items()}
    shared = {"where": where, "best": representative([*systems.values()])}
    return [
        Tested(first=systems[one], second=systems[other], comparison=comparison, **shared)
        for (one, other), comparison in compare_all(logs, measure).items()
    ]


def _best(comparable: Comparable, name: str, latency: Latency) -> dict[str, Evaluated]:
    """Return a system's evaluation of best quality in every regime, and offline."""
    streamed, offline = (of.get(name, []) for of in (comparable.streamed(), comparable.offline()))
    whole = {"offline": representative(offline)} if offline else {}
    if comparable.unit == "words":  # has no regimes
        return ({"streamed": representative(streamed)} if streamed else {}) | whole
    points = {each.point(latency): each for each in reversed(streamed)}
    best = best_per_regime(point for point in points if point is not None)
    return {f"{regime} latency": points[point] for regime, point in best.items()} | whole


def representative(evaluated: Sequence[Evaluated]) -> Evaluated:
    """Return the evaluation of best quality; of equal ones the first."""
    bleu = [each.scores["BLEU"] for each in evaluated]
    return evaluated[max(range(len(bleu)), key=lambda i: (not math.isnan(bleu[i]), bleu[i]))]


def verdict_of(comparable: Comparable, tested: Sequence[Tested], latency: Latency) -> list[str]:
    """Say in one sentence per regime, or of the only system, what came out."""
    if tested:
        quality = [each for each in tested if each.comparison.metric == "BLEU"]
        return [_sentence(each) for each in quality if each.has_best]
    found = [(name, representative(each)) for name, each in comparable.streamed().items()]
    return [_alone(comparable, name, each, latency) for name, each in found]


def _sentence(tested: Tested) -> str:
    c, best = tested.comparison, tested.best
    other = tested.first if best is tested.second else tested.second
    turned = -1 if best is tested.first else 1
    value = turned * c.difference.value + 0.0  # no -0
    ends = sorted(turned * end + 0.0 for end in (c.difference.low, c.difference.high))
    found = "has higher BLEU than" if c.adjusted < 0.05 else "is not shown to differ from"
    return (
        f"{tested.where.capitalize()}: {name_of(best)} {found} {name_of(other)}: {value:+.2f} "
        f"(95 % CI {ends[0]:.2f} to {ends[1]:.2f}, p = {p_value(c.adjusted)} after Holm)."
    )


def _alone(comparable: Comparable, name: str, each: Evaluated, latency: Latency) -> str:
    digits, late = 0 if comparable.unit == "ms" else 2, each.latency(latency)
    sentence = f"{name_of(each)} reaches {number(each.scores['BLEU'], 1)} BLEU"
    if each.scores["skipped"] == each.scores["n"]:
        return f"{name_of(each)} wrote no word."
    if not math.isnan(late):
        sentence += f" at {latency} {number(late, digits)} {comparable.unit}"
    whole = comparable.offline().get(name)
    if whole:
        sentence += f"; with the whole source {representative(whole).scores['BLEU']:.1f}"
    control = [e for e in comparable.evaluated if e.is_control]
    if control:
        sentence += f", with the wrong audio {max(e.scores['BLEU'] for e in control):.1f}"
    return sentence + "."


def name_of(each: Evaluated) -> str:
    """Return the name of a system with its setting."""
    return ", ".join(filter(None, [each.system, each.setting]))


def comparison_table(tested: Sequence[Tested]) -> Table:
    """Return the tests as a table."""
    rows = []
    for each in tested:
        c = each.comparison
        digits = 2 if c.metric == "BLEU" or each.first.unit == "words" else 0
        found = (c.difference.value, c.difference.low, c.difference.high)
        value, low, high = (number(part, digits) for part in found)
        names = (each.where, c.metric, name_of(each.second), name_of(each.first))
        ps = (p_value(c.p_value), p_value(c.adjusted))
        rows.append((*names, value, f"{low} to {high}", *ps, str(c.n)))
    return make_table("systems", rows)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A mean over seeds and the standard deviation of one seed; NaN with one seed."""

    mean: float
    deviation: float
    seeds: int
    values: tuple[float, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Summarise one value per seed; a value that is NaN makes the mean NaN."""
        given = tuple(values)
        known = len(given) > 1 and all(map(math.isfinite, given))
        deviation = statistics.stdev(given) if known else math.nan
        mean = math.fsum(given) / len(given)
        return cls(mean=mean, deviation=deviation, seeds=len(given), values=given)

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "-"
        digits = 0 if abs(self.mean) >= 100 else 2
        large = max(map(abs, self.values), default=0.0) >= 100  # a latency
        if are_split(self.values, LEAST_MS if large else LEAST_BLEU):
            return " / ".join(f"{value:.{digits}f}" for value in sorted(self.values))
        spread = f" ± {self.deviation:.{digits}f}" if self.seeds > 1 else ""
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
        return Spread.of(self.values(score))

    def values(self, score: str) -> list[float]:
        return [float(each.scores[score]) for each in self.by_seed.values()]

    @property
    def is_streamed(self) -> bool:
        """Return True if it has a latency in milliseconds."""
        return (
            self.first.mode == "streamed" and not self.first.is_control and self.first.unit == "ms"
        )

    @property
    def is_clocked(self) -> bool:
        """Return True if it was played in real time."""
        return self.first.config.get("mode") == "live"

    @property
    def whole_branch(self) -> str | None:
        """Return the branch that had the whole source before it wrote, if one had."""
        whole = self.first.mode == "offline" and not self.first.is_control
        return self.first.config.get("branch", "speech") if whole else None

    @property
    def utterances(self) -> int:
        return max(len(each.records) for each in self.by_seed.values())

    @property
    def test_set(self) -> str:
        """Return the corpus and the split; "" if the run's own corpus was used."""
        corpus = self.first.config.get("corpus")
        return f"{Path(corpus).name}, {self.first.config.get('split', 'test')}" if corpus else ""

    def point(self, latency: Latency, *, computation: Computation = "free") -> Point:
        """Return the means over seeds; NaN where computation was not measured."""
        times = [e.latency(latency, computation=computation) for e in self.by_seed.values()]
        return Point(
            latency_ms=Spread.of(times).mean,
            quality=self.spread("BLEU").mean,
            label=self.label,
            seeds=tuple(zip(times, self.values("BLEU"), strict=True)),
        )

    def computation_ms(self, latency: Latency) -> float:
        """Return what computation adds to a latency; NaN where it was not measured."""
        counted = self.point(latency, computation="counted")
        return counted.latency_ms - self.point(latency).latency_ms

    @property
    def policy(self) -> str:
        """Return the policy and its units, or "its own" if the model itself decides."""
        return policy_of(self.first.config) or "its own"

    @property
    def label(self) -> str:
        """Return a short label for a figure."""
        weight = self.name.partition("/")[0] if "/" in self.name else ""
        weight = weight.replace("lambda_", "λ=")
        return ", ".join(filter(None, [weight, self.first.setting]))

    def decides_like(self, other: "Measured") -> bool:
        """Return True if both differ at most in the test set and in the clock."""
        seeds = self.by_seed.keys() & other.by_seed.keys()
        return bool(seeds) and all(
            self.by_seed[seed].run == other.by_seed[seed].run
            and _deciding(self.by_seed[seed]) == _deciding(other.by_seed[seed])
            for seed in seeds
        )

    def of_seeds(self, seeds: Iterable[int]) -> "Measured":
        return replace(self, by_seed={seed: self.by_seed[seed] for seed in seeds})


def _deciding(evaluated: Evaluated) -> dict[str, Any]:
    """Return the settings that decide; options newer than the evaluation are absent."""
    items = evaluated.config.items()
    return {name: value for name, value in items if name not in OF_THE_TEST and value is not None}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A system of the grid: its evaluations by name, and what a training cost per seed."""

    name: str
    evaluations: Mapping[str, Measured]
    minutes: Spread | None = None  # of training
    kilojoules: Spread | None = None

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for each in self.evaluations.values() for seed in each.by_seed})

    def of_seed(self, seed: int) -> "Variant":
        own = {
            name: each.of_seeds([seed])
            for name, each in self.evaluations.items()
            if seed in each.by_seed
        }
        return Variant(name=self.name, evaluations=own)

    def on(self, test_set: str) -> "Variant":
        """Return the same with the evaluations on one test set alone."""
        own = {name: e for name, e in self.evaluations.items() if e.test_set == test_set}
        return replace(self, evaluations=own)

    def streamed(self, computation: Computation) -> list[Measured]:
        """Return the evaluations with a latency, all of the whole test set.

        Evaluations in real time are returned for "counted", and for "free" only if there are no
        others: as a rule they play a part of the test set.
        """
        every = [each for each in self.evaluations.values() if each.is_streamed]
        clocked = [each for each in every if each.is_clocked]
        if computation == "counted":
            return clocked
        free = [each for each in every if not each.is_clocked] or clocked
        most = max((each.utterances for each in free), default=0)
        return [each for each in free if each.utterances == most]

    def whole(self, branch: str) -> Spread | None:
        """Return the best BLEU of a branch with the whole source; None if it was not evaluated.

        Variants that continue this one and evaluations of a part of the test set do not count.
        """
        own = [each for name, each in self.evaluations.items() if "/" not in name]
        found = [each for each in own if each.whole_branch == branch]
        most = max((each.utterances for each in found), default=0)
        spreads = [each.spread("BLEU") for each in found if each.utterances == most]
        return max(spreads, key=lambda spread: spread.mean, default=None)

    def curve(self, latency: Latency) -> list[Point]:
        """Return its streamed points, those of variants that continue it included."""
        points = [each.point(latency) for each in self.streamed("free")]
        return sorted(point for point in points if not math.isnan(point.latency_ms))

    def lines(
        self, latency: Latency, *, computation: Computation = "free"
    ) -> dict[str, list[Point]]:
        """Return the same for a figure: one line per policy if there are several."""
        every = [each for each in self.evaluations.values() if each.is_streamed]
        several = len({each.policy for each in every}) > 1
        found: dict[str, list[Point]] = {}
        for each in self.streamed(computation):
            free = computation == "free"
            point = each.point(latency) if free else self._played(each, latency)
            if not math.isnan(point.latency_ms):
                name = f"{self.name}, {each.policy}" if several else self.name
                found.setdefault(name, []).append(point)
        return {name: sorted(points) for name, points in found.items()}

    def _played(self, played: Measured, latency: Latency) -> Point:
        """Return the point of the whole test set, later by what computation took on the part."""
        for whole in self.streamed("free"):
            if whole is not played and whole.decides_like(played):
                both = sorted(whole.by_seed.keys() & played.by_seed.keys())
                point = whole.of_seeds(both).point(latency)
                took = played.of_seeds(both).computation_ms(latency)
                return replace(point, latency_ms=point.latency_ms + took)
        return played.point(latency, computation="counted")


def read_variants(folder: Path, results: Results) -> list[Variant]:
    """Return the variants of a grid's published results."""
    order = results.grid.variants if results.grid else ()
    found: dict[str, dict[str, dict[int, Evaluated]]] = {name: {} for name in order}
    for each in results.evaluations:
        own = found.setdefault(each.variant, {}).setdefault(each.setting, {})
        own[each.seed or 0] = read_published(folder, each)
    spent: dict[str, list[Mapping[str, Any]]] = {}
    for run in results.runs:
        if run.spent and run.spent.get("training"):
            spent.setdefault(run.variant, []).append(run.spent["training"])
    return [make_variant(name, own, spent.get(name, [])) for name, own in found.items() if own]


def make_variant(
    name: str,
    evaluations: Mapping[str, Mapping[int, Evaluated]],
    spent: Sequence[Mapping[str, Any]] = (),
) -> Variant:
    """Return a variant from its evaluations by name and seed, and from what its trainings cost."""
    joules = [each["joules"] for each in spent if each["joules"] is not None]
    return Variant(
        name=name,
        evaluations={k: Measured(name=k, by_seed=v) for k, v in evaluations.items()},
        minutes=Spread.of(each["seconds"] / 60 for each in spent) if spent else None,
        kilojoules=Spread.of(each / 1000 for each in joules) if joules else None,
    )


def share_of_text(variant: Variant, variants: Iterable[Variant]) -> float:
    """Return its BLEU from speech over the best BLEU that any variant has from text; or NaN."""
    speech = variant.whole("speech")
    text = [spread for each in variants if (spread := each.whole("text"))]
    return speech.mean / max(each.mean for each in text) if speech and text else math.nan


@dataclass(frozen=True, kw_only=True)
class AtEqualLatency:
    """A variant's curve against the baseline's: latencies, with differences in quality there."""

    no_later: tuple[tuple[float, float], ...]  # of the variant's best point with no higher latency
    between: tuple[tuple[float, float], ...]  # on straight lines
    area: float  # that the variant's curve dominates, over the baseline's


def compare(
    variant: Variant, baseline: Variant, evaluation: str, *, cache: Cache | None = None
) -> Comparison | None:
    """Compare one evaluation over the seeds that both have; None if there are none."""
    own, base = variant.evaluations.get(evaluation), baseline.evaluations.get(evaluation)
    if own is None or base is None or variant.name == baseline.name:
        return None
    seeds = sorted(set(own.by_seed) & set(base.by_seed))
    first, second = ([each.by_seed[seed].records for seed in seeds] for each in (base, own))
    return compare_seeds(first, second, cache=cache) if seeds else None


def at_equal_latency(
    variant: Variant, baseline: Variant, latency: Latency
) -> AtEqualLatency | None:
    """Compare two curves; None if one of them has no point."""
    new, old = variant.curve(latency), baseline.curve(latency)
    if not new or not old or variant.name == baseline.name:
        return None
    end = max(point.latency_ms for point in [*new, *old]) + 1.0
    areas = [hypervolume(points, latency_ms=end) for points in (new, old)]
    return AtEqualLatency(
        no_later=tuple(_no_later(new, old)),
        between=tuple(_between(frontier(new), frontier(old))),
        area=areas[0] / areas[1] if areas[1] else math.nan,
    )


def _no_later(new: Sequence[Point], old: Sequence[Point]) -> Iterator[tuple[float, float]]:
    for than in old:
        early = [point.quality for point in new if point.latency_ms <= than.latency_ms]
        if early:
            yield than.latency_ms, max(early) - than.quality


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
