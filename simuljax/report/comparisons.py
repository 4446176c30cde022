"""Test systems against each other on one test set, and say in a sentence what came out."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from simuljax.eval.curves import best_per_regime
from simuljax.eval.resampling import Measure
from simuljax.eval.significance import Comparison, compare_all, corrected
from simuljax.report.collect import Comparable, Evaluated, Latency
from simuljax.report.page import Table, number, p_value

PAIRS = 3  # systems of which all pairs are shown; of more, the best against each other one


@dataclass(frozen=True, kw_only=True)
class Tested:
    """A test between two systems, in a regime or offline."""

    first: Evaluated
    second: Evaluated
    where: str  # "low latency", "offline"
    comparison: Comparison


def compare_systems(comparable: Comparable, latency: Latency) -> list[Tested]:
    """Test all pairs of systems: offline, and by their best evaluations in every regime.

    p-values are corrected by Holm for all these pairs, for quality and for latency apart. Of more
    than three systems, only the best against every other one is returned.
    """
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
    return [each for each in found if len(names) <= PAIRS or _has_best(each, best)]


def _pairs(systems: dict[str, Evaluated], where: str, metric: str) -> list[Tested]:
    profile = next(iter(systems.values())).scores["profile"]
    measure = Measure(metric=metric, profile=profile)  # pyright: ignore[reportArgumentType]
    logs = {name: each.records for name, each in systems.items()}
    return [
        Tested(first=systems[one], second=systems[other], where=where, comparison=comparison)
        for (one, other), comparison in compare_all(logs, measure).items()
    ]


def _has_best(test: Tested, best: dict[str, dict[str, Evaluated]]) -> bool:
    here = representative([own[test.where] for own in best.values() if test.where in own])
    return here in (test.first, test.second)


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
    return max(evaluated, key=lambda each: _or_low(each.scores["BLEU"]))


def _or_low(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def has_several(comparable: Comparable) -> bool:
    """Return True if several systems have a BLEU."""
    scored = [e for e in comparable.evaluated if e.scores["BLEU"] == e.scores["BLEU"]]  # no NaN
    known = len(scored) == len(comparable.evaluated)
    return known and len({*comparable.streamed(), *comparable.offline()}) > 1


def verdict_of(comparable: Comparable, tested: Sequence[Tested], latency: Latency) -> list[str]:
    """Say in one sentence per regime, or of the only system, what came out."""
    quality = [each for each in tested if each.comparison.metric == "BLEU"]
    said = []
    for where in dict.fromkeys(each.where for each in quality):
        here = [each for each in quality if each.where == where]
        best = representative([e for t in here for e in (t.first, t.second)])
        for each in here:
            if best in (each.first, each.second):
                said.append(_sentence(each, best))
    if said or tested:
        return said
    found = [(name, representative(each)) for name, each in comparable.streamed().items()]
    return [_alone(comparable, name, each, latency) for name, each in found]


def _sentence(tested: Tested, best: Evaluated) -> str:
    other = tested.first if best is tested.second else tested.second
    c, turned = tested.comparison, -1 if best is tested.first else 1
    value = turned * c.difference.value + 0.0  # no -0
    ends = sorted(turned * end + 0.0 for end in (c.difference.low, c.difference.high))
    found = "has higher BLEU than" if c.adjusted < 0.05 else "is not shown to differ from"
    return (
        f"{tested.where.capitalize()}: {name_of(best)} {found} {name_of(other)}: {value:+.2f} "
        f"(95 % CI {ends[0]:.2f} to {ends[1]:.2f}, p = {p_value(c.adjusted)} after Holm)."
    )


def _alone(comparable: Comparable, name: str, each: Evaluated, latency: Latency) -> str:
    digits = 0 if comparable.unit == "ms" else 2
    said = (
        f"{name_of(each)} reaches {number(each.scores['BLEU'], 1)} BLEU at {latency} "
        f"{number(each.latency(latency), digits)} {comparable.unit}"
    )
    whole = comparable.offline().get(name)
    if whole:
        said += f"; with the whole source {representative(whole).scores['BLEU']:.1f}"
    control = [e for e in comparable.evaluated if e.is_control]
    if control:
        said += f", with the wrong audio {max(e.scores['BLEU'] for e in control):.1f}"
    return said + "."


def name_of(each: Evaluated) -> str:
    """Return the name of a system with its setting."""
    return ", ".join(filter(None, [each.system, each.setting]))


def comparison_table(tested: Sequence[Tested]) -> list[Table]:
    """Return the tests as a table; nothing if there are none."""
    if not tested:
        return []
    rows = []
    for each in tested:
        c = each.comparison
        digits = 2 if c.metric == "BLEU" or each.first.unit == "words" else 0
        low, high = (number(edge, digits) for edge in (c.difference.low, c.difference.high))
        names = (each.where, c.metric, name_of(each.second), name_of(each.first))
        ps = (p_value(c.p_value), p_value(c.adjusted))
        rows.append((*names, number(c.difference.value, digits), f"{low} to {high}", *ps, str(c.n)))
    heads = ("where", "metric", "system", "less", "difference", "95 % interval", "p", "p (Holm)")
    note = (
        "Paired bootstrap with 1000 samples of the utterances, the same for all systems; of each "
        "system the evaluation of best BLEU in the regime. p (Holm) is corrected for all pairs "
        "and regimes; of more than three systems the best is shown against each of the others."
    )
    title = "Tests between systems"
    return [Table(title=title, heads=(*heads, "n"), rows=tuple(rows), note=note, left=4)]
