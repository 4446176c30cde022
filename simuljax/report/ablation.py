"""What the rows of an ablation say: means over seeds, tests against the baseline, curves.

A row is a system trained with several seeds; each of its evaluations (a setting) was made for every
seed. Rows are compared with the baseline

    as they are        the same setting of both, with the same seeds and utterances
    at equal latency   for each point of the baseline, the best of the row that is no later
                       (Zaidi et al. 2022, table 4); on the straight lines of both curves, where
                       they overlap; and by the area that each curve dominates
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simuljax.eval.curves import Point, frontier, hypervolume, quality_at
from simuljax.eval.logs import Record, RecordError
from simuljax.eval.significance import Comparison, Measure, bootstrap_of_seeds, t_test_of_seeds
from simuljax.report.collect import Computation, Evaluated, Latency, policy_of

BETWEEN = 5  # latencies at which two curves are compared
# What an evaluation says of its utterances and of the clock, and not of what decides.
GIVEN = ("run", "mode", "first", "repeats", "name", "steps", "frames")


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A mean over seeds, and the standard deviation of a seed; NaN with one seed."""

    mean: float
    deviation: float
    seeds: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Of one value a seed; values that are not known leave no mean."""
        given = [*values]
        known = len(given) > 1 and all(map(math.isfinite, given))
        deviation = statistics.stdev(given) if known else math.nan
        return cls(mean=math.fsum(given) / len(given), deviation=deviation, seeds=len(given))

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "-"
        digits = 0 if abs(self.mean) >= 100 else 2
        apart = f" ± {self.deviation:.{digits}f}" if self.seeds > 1 else ""
        return f"{self.mean:.{digits}f}{apart}"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One way to evaluate a row, for every seed."""

    name: str  # of the evaluation's folder, and of the row that continues the row, if it is one
    by_seed: Mapping[int, Evaluated]

    def spread(self, score: str) -> Spread:
        """Of a score over the seeds."""
        return Spread.of(self.values(score))

    def values(self, score: str) -> list[float]:
        """Of a score, one a seed."""
        return [float(each.scores[score]) for each in self.by_seed.values()]

    @property
    def is_streamed(self) -> bool:
        """Whether it has a latency to speak of, in milliseconds."""
        first = next(iter(self.by_seed.values()))
        return first.mode == "streamed" and not first.is_control and first.unit == "ms"

    @property
    def is_clocked(self) -> bool:
        """Whether it was played with the clock running."""
        return next(iter(self.by_seed.values())).told.get("mode") == "live"

    def is_whole(self, branch: str) -> bool:
        """Whether this branch had all of the source before it wrote."""
        first = next(iter(self.by_seed.values()))
        heard = first.told.get("branch", "speech") == branch
        return heard and first.mode == "offline" and not first.is_control

    @property
    def utterances(self) -> int:
        """That it was given."""
        return max(len(each.records) for each in self.by_seed.values())

    def logs(self, seeds: Iterable[int]) -> list[Sequence[Record]]:
        """Of all these seeds."""
        return [self.by_seed[seed].records for seed in seeds]

    def point(self, latency: Latency, *, computation: Computation = "free") -> Point:
        """The means over seeds; with computation counted, NaN where nobody looked at the clock."""
        times = [e.latency(latency, computation=computation) for e in self.by_seed.values()]
        return Point(
            latency_ms=Spread.of(times).mean,
            quality=self.spread("BLEU").mean,
            label=self.label,
            seeds=tuple(zip(times, self.values("BLEU"), strict=True)),
        )

    def took_ms(self, latency: Latency) -> float:
        """What computation adds; NaN where nobody looked at the clock."""
        counted = self.point(latency, computation="counted")
        return counted.latency_ms - self.point(latency).latency_ms

    @property
    def policy(self) -> str:
        """What decided: a policy and its units, or the model itself."""
        return policy_of(next(iter(self.by_seed.values())).told) or "its own"

    @property
    def label(self) -> str:
        """Short, for a figure."""
        return next(iter(self.by_seed.values())).setting

    def decides_like(self, other: "Setting") -> bool:
        """Whether both differ at most in what they were given, and in who looked at the clock."""
        seeds = self.by_seed.keys() & other.by_seed.keys()
        return bool(seeds) and all(
            self.by_seed[seed].run == other.by_seed[seed].run
            and _decides(self.by_seed[seed]) == _decides(other.by_seed[seed])
            for seed in seeds
        )

    def of_seeds(self, seeds: Iterable[int]) -> "Setting":
        """The same of these seeds alone."""
        return replace(self, by_seed={seed: self.by_seed[seed] for seed in seeds})


def _decides(evaluated: Evaluated) -> dict[str, Any]:
    """What it says of that; options that are younger than it were not given."""
    told = evaluated.told.items()
    return {name: value for name, value in told if name not in GIVEN and value is not None}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A system of the ablation; its settings by name, and what it took per seed."""

    name: str
    settings: Mapping[str, Setting]
    minutes: Spread | None = None  # of training
    kilojoules: Spread | None = None

    @property
    def seeds(self) -> list[int]:
        """Of any of its settings."""
        return sorted({seed for setting in self.settings.values() for seed in setting.by_seed})

    def of_seed(self, seed: int) -> "Row":
        """What one seed says."""
        own = {
            name: Setting(name=name, by_seed={seed: setting.by_seed[seed]})
            for name, setting in self.settings.items()
            if seed in setting.by_seed
        }
        return Row(name=self.name, settings=own)

    def streamed(self, computation: Computation) -> list[Setting]:
        """Settings with a latency; what was played for the clock is there for that, if others are.

        It is played to a part of the test set only, as a rule. What else was given less than others
        were is no point of their curve.
        """
        every = [setting for setting in self.settings.values() if setting.is_streamed]
        clocked = [setting for setting in every if setting.is_clocked]
        if computation == "counted":
            return clocked
        free = [setting for setting in every if not setting.is_clocked] or clocked
        most = max((setting.utterances for setting in free), default=0)
        return [setting for setting in free if setting.utterances == most]

    def whole(self, branch: str) -> Spread | None:
        """BLEU of a branch that has all of the source, at its best; none if nobody asked.

        Rows that continue this one do not count, nor does what was given less than others were.
        """
        own = [setting for name, setting in self.settings.items() if "/" not in name]
        asked = [setting for setting in own if setting.is_whole(branch)]
        most = max((setting.utterances for setting in asked), default=0)
        found = [setting.spread("BLEU") for setting in asked if setting.utterances == most]
        return max(found, key=lambda spread: spread.mean, default=None)

    def curve(self, latency: Latency) -> list[Point]:
        """Its streamed settings, those of rows that continue it included."""
        points = [setting.point(latency) for setting in self.streamed("free")]
        return sorted(point for point in points if not math.isnan(point.latency_ms))

    def lines(
        self, latency: Latency, *, computation: Computation = "free"
    ) -> dict[str, list[Point]]:
        """The same for a figure: a line for every policy, if several decided for the row."""
        every = [setting for setting in self.settings.values() if setting.is_streamed]
        several = len({setting.policy for setting in every}) > 1
        found: dict[str, list[Point]] = {}
        for setting in self.streamed(computation):
            free = computation == "free"
            point = setting.point(latency) if free else self._played(setting, latency)
            if not math.isnan(point.latency_ms):
                name = f"{self.name}, {setting.policy}" if several else self.name
                found.setdefault(name, []).append(point)
        return {name: sorted(points) for name, points in found.items()}

    def _played(self, setting: Setting, latency: Latency) -> Point:
        """What was played, in its place: later than the same setting by what computation took.

        That setting was evaluated on all of the test set, as a rule, and this one on a part of it.
        """
        for whole in self.streamed("free"):
            if whole is not setting and whole.decides_like(setting):
                both = sorted(whole.by_seed.keys() & setting.by_seed.keys())
                point, took = whole.of_seeds(both).point(latency), setting.of_seeds(both).took_ms
                return replace(point, latency_ms=point.latency_ms + took(latency))
        return setting.point(latency, computation="counted")


def share_of_text(row: Row, rows: Iterable[Row]) -> float:
    """What it gives from speech, of the best that any row gives from text; NaN if not known."""
    heard, read = row.whole("speech"), [spread for each in rows if (spread := each.whole("text"))]
    return heard.mean / max(each.mean for each in read) if heard and read else math.nan


@dataclass(frozen=True, kw_only=True)
class Against:
    """One setting of a row against the same of the baseline."""

    row: str
    setting: str
    bootstrap: Comparison
    t_test: Comparison


@dataclass(frozen=True, kw_only=True)
class AtEqualLatency:
    """A row's curve against the baseline's."""

    row: str
    no_later: tuple[tuple[Point, Point | None], ...]  # a point of the baseline, the row's best
    between: tuple[tuple[float, float], ...]  # latency, difference in quality on straight lines
    area: float  # that the row's curve dominates, over the baseline's


def compare(
    row: Row,
    baseline: Row,
    measure: Measure | None = None,
    *,
    settings: Iterable[str] | None = None,
) -> list[Against]:
    """Every setting that both have, or those of these names, over the seeds that both have."""
    found = []
    for name in row.settings if settings is None else settings:
        setting, base = row.settings.get(name), baseline.settings.get(name)
        if setting is None or base is None or row.name == baseline.name:
            continue
        seeds = sorted(set(setting.by_seed) & set(base.by_seed))
        if not seeds:
            continue
        pair = base.logs(seeds), setting.logs(seeds)
        found.append(
            Against(
                row=row.name,
                setting=name,
                bootstrap=bootstrap_of_seeds(*pair, measure),
                t_test=t_test_of_seeds(*pair, measure),
            )
        )
    return found


def at_equal_latency(row: Row, baseline: Row, latency: Latency) -> AtEqualLatency | None:
    """None without a curve of both."""
    new, old = row.curve(latency), baseline.curve(latency)
    if not new or not old or row.name == baseline.name:
        return None
    end = max(point.latency_ms for point in [*new, *old]) + 1.0
    areas = [hypervolume(points, latency_ms=end) for points in (new, old)]
    return AtEqualLatency(
        row=row.name,
        no_later=tuple((point, _no_later(new, point)) for point in old),
        between=tuple(_between(frontier(new), frontier(old))),
        area=areas[0] / areas[1] if areas[1] else math.nan,
    )


def _no_later(points: Sequence[Point], than: Point) -> Point | None:
    """The best point whose latency is not above another's."""
    early = [point for point in points if point.latency_ms <= than.latency_ms]
    return max(early, key=lambda point: point.quality, default=None)


def _between(new: Sequence[Point], old: Sequence[Point]) -> list[tuple[float, float]]:
    """The difference where both curves are known, at a few latencies."""
    low = max(new[0].latency_ms, old[0].latency_ms)
    high = min(new[-1].latency_ms, old[-1].latency_ms)
    if high <= low:
        return []
    places = [min(high, low + (high - low) * i / (BETWEEN - 1)) for i in range(BETWEEN)]
    found = [(place, quality_at(new, place) - quality_at(old, place)) for place in places]
    return [(place, difference) for place, difference in found if not math.isnan(difference)]


def same_test(rows: Sequence[Row]) -> None:
    """Refuses rows whose utterances or references differ."""
    seen: dict[str, tuple] = {}
    for row in rows:
        for name, setting in row.settings.items():
            for each in setting.by_seed.values():
                heard = tuple((record.index, record.reference) for record in each.records)
                if seen.setdefault(name, heard) != heard:
                    raise RecordError(
                        f"{each.run}: {name} is of other utterances than in the other rows"
                    )
