"""Group evaluations by their test set, and test the systems of a group against each other.

Runs called NAME_lambda_X are one system, and NAME is its X = 0. Evaluations are compared with each
other only if their references are the same.
"""

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from simuljax.eval.curves import best_per_regime
from simuljax.eval.significance import Comparison, Measure, compare_all, corrected
from simuljax.report.collect import Evaluated
from simuljax.report.page import Table, make_table, number, p_value
from simuljax.report.results import Latency

FAMILY = re.compile(r"(?P<name>.+)_lambda_(?P<value>[0-9.]+(?:e-?[0-9]+)?)")
PAIRS = 3  # systems of which all pairs are shown; of more, the best against each other one


@dataclass(frozen=True, kw_only=True)
class Comparable:
    """Evaluations with the same references and the same unit of latency."""

    name: str
    unit: Literal["ms", "words"]
    evaluated: tuple[Evaluated, ...]  # by system, then latency

    def systems(self, *, offline: bool) -> dict[str, list[Evaluated]]:
        """Return the streamed or the offline evaluations of every system, without controls."""
        found: dict[str, list[Evaluated]] = {}
        for each in self.evaluated:
            if each.is_offline == offline and not each.is_control:
                found.setdefault(each.system, []).append(each)
        return found


def group(evaluated: Iterable[Evaluated], latency: Latency = "AL") -> list[Comparable]:
    """Group evaluations of the same test set; runs that sweep a training weight become one."""

    def order(each: Evaluated) -> tuple[str, float, str]:
        late = each.latency(latency)
        return each.system, math.inf if math.isnan(late) else late, each.name

    groups: dict[object, list[Evaluated]] = {}
    for each in _join_families([*evaluated]):
        test = tuple(sorted((str(r.index), r.reference or "") for r in each.records))
        groups.setdefault((test, each.unit), []).append(each)
    found = []
    for members in groups.values():
        unit = members[0].unit
        splits = dict.fromkeys(str(e.config["split"]) for e in members if "split" in e.config)
        name = (" = ".join(splits) or members[0].name) + ", from text" * (unit == "words")
        ordered = tuple(sorted(members, key=order))
        found.append(Comparable(name=name, unit=unit, evaluated=ordered))
    return found


def _join_families(evaluated: Sequence[Evaluated]) -> list[Evaluated]:
    """Turn runs called NAME_lambda_X into settings of NAME."""
    runs = {each.run for each in evaluated if each.run}
    swept = {run: match for run in runs if (match := FAMILY.fullmatch(run.name))}
    weights = {run: match["value"] for run, match in swept.items()}
    bases = {run.with_name(match["name"]) for run, match in swept.items()}
    weights |= dict.fromkeys(bases & runs, "0")
    joined = []
    for each in evaluated:
        if each.run in weights:
            weight = weights[each.run]
            setting = ", ".join(filter(None, [f"λ={weight}", each.setting]))
            system = each.system.replace(f"_lambda_{weight}", "", 1)
            each = replace(each, system=system, setting=setting)
        joined.append(each)
    return joined


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
    if any(math.isnan(each.bleu) for each in comparable.evaluated):
        return []
    streamed, offline = (comparable.systems(offline=whole) for whole in (False, True))
    best = {
        name: _best(streamed.get(name, []), offline.get(name, []), comparable.unit, latency)
        for name in dict.fromkeys([*streamed, *offline])
    }
    found: list[Tested] = []
    for metric in ("BLEU", latency):
        tests: list[Tested] = []
        for where in dict.fromkeys(itertools.chain.from_iterable(best.values())):
            systems = {name: places[where] for name, places in best.items() if where in places}
            if len(systems) > 1 and (metric == "BLEU" or where != "offline"):
                tests += _test_pairs(systems, where, metric)
        adjusted = corrected([each.comparison for each in tests])
        found += [replace(t, comparison=c) for t, c in zip(tests, adjusted, strict=True)]
    return found if len(best) <= PAIRS else [each for each in found if each.has_best]


def _test_pairs(systems: dict[str, Evaluated], where: str, metric: str) -> list[Tested]:
    best = representative([*systems.values()])
    profile = next(iter(systems.values())).scores["profile"]
    measure = Measure(metric=metric, profile=profile)  # pyright: ignore[reportArgumentType]
    pairs = compare_all({name: each.records for name, each in systems.items()}, measure)
    return [
        Tested(first=systems[a], second=systems[b], where=where, best=best, comparison=comparison)
        for (a, b), comparison in pairs.items()
    ]


def _best(
    streamed: Sequence[Evaluated], offline: Sequence[Evaluated], unit: str, latency: Latency
) -> dict[str, Evaluated]:
    """Return a system's evaluation of best quality in every regime, and offline."""
    whole = {"offline": representative(offline)} if offline else {}
    if unit == "words":  # has no regimes
        return ({"streamed": representative(streamed)} if streamed else {}) | whole
    points = {each.point(latency): each for each in reversed(streamed)}
    best = best_per_regime(point for point in points if point is not None)
    return {f"{regime} latency": points[point] for regime, point in best.items()} | whole


def representative(evaluated: Sequence[Evaluated]) -> Evaluated:
    """Return the evaluation of best quality; of equal ones the first."""
    return max(evaluated, key=lambda each: (not math.isnan(each.bleu), each.bleu))


def verdict_of(comparable: Comparable, tested: Sequence[Tested], latency: Latency) -> list[str]:
    """Say in one sentence per regime, or of the only system, what came out."""
    if not tested:
        return [
            _describe_alone(comparable, name, representative(each), latency)
            for name, each in comparable.systems(offline=False).items()
        ]
    sentences = []
    for each in tested:
        c, best = each.comparison, each.best
        if c.metric != "BLEU" or not each.has_best:
            continue
        other, turned = (each.first, 1) if best is each.second else (each.second, -1)
        value = turned * c.difference.value + 0.0  # no -0
        ends = sorted(turned * end + 0.0 for end in (c.difference.low, c.difference.high))
        found = "has higher BLEU than" if c.adjusted < 0.05 else "is not shown to differ from"
        sentences.append(
            f"{each.where.capitalize()}: {best} {found} {other}: {value:+.2f} "
            f"(95 % CI {ends[0]:.2f} to {ends[1]:.2f}, p = {p_value(c.adjusted)} after Holm)."
        )
    return sentences


def _describe_alone(comparable: Comparable, name: str, each: Evaluated, latency: Latency) -> str:
    if each.scores["skipped"] == each.scores["n"]:
        return f"{each} wrote no word."
    digits, late = 0 if comparable.unit == "ms" else 2, each.latency(latency)
    sentence = f"{each} reaches {number(each.bleu, 1)} BLEU"
    if not math.isnan(late):
        sentence += f" at {latency} {number(late, digits)} {comparable.unit}"
    if whole := comparable.systems(offline=True).get(name):
        sentence += f"; with the whole source {representative(whole).bleu:.1f}"
    if control := [e.bleu for e in comparable.evaluated if e.is_control]:
        sentence += f", with the wrong audio {max(control):.1f}"
    return sentence + "."


def comparison_table(tested: Sequence[Tested]) -> Table:
    """Return the tests as a table."""
    rows = []
    for each in tested:
        c = each.comparison
        digits = 2 if c.metric == "BLEU" or each.first.unit == "words" else 0
        found = (c.difference.value, c.difference.low, c.difference.high)
        value, low, high = (number(part, digits) for part in found)
        names = (each.where, c.metric, str(each.second), str(each.first))
        ps = (p_value(c.p_value), p_value(c.adjusted))
        rows.append((*names, value, f"{low} to {high}", *ps, str(c.n)))
    return make_table("systems", rows)
