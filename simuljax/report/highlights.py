"""What a report looks at more closely: some utterances, and whether two systems differ."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from simuljax.eval.curves import best_per_regime
from simuljax.eval.logs import Record, RecordError, find_unit
from simuljax.eval.scores import latencies
from simuljax.eval.significance import Comparison, Measure, paired_bootstrap
from simuljax.report.collect import Comparable, Evaluated, Latency

Reason = Literal["best", "worst", "latest", "middle"]


@dataclass(frozen=True, kw_only=True)
class Utterance:
    """One of an evaluation's, with its own scores."""

    record: Record
    chrf: float  # NaN without a reference
    latencies: dict[str, float]  # empty for one without a word


@dataclass(frozen=True, kw_only=True)
class Highlight:
    """An utterance that is shown, and what for."""

    key: int  # its index, or its place in a log without
    reason: Reason


@dataclass(frozen=True, kw_only=True)
class Versus:
    """Two evaluations side by side."""

    first: Evaluated
    second: Evaluated
    where: str  # "low latency", "offline"
    comparisons: tuple[Comparison, ...]  # of quality and, if both are streamed, of latency


def utterances_of(evaluated: Evaluated) -> dict[int, Utterance]:
    """All of them, by index."""
    import sacrebleu

    metric, records = sacrebleu.CHRF(), evaluated.records
    each = latencies(records, profile=evaluated.scores["profile"], unit=find_unit(records))
    return {
        place if record.index is None else record.index: Utterance(
            record=record,
            chrf=math.nan
            if record.reference is None
            else metric.sentence_score(record.prediction, [record.reference]).score,
            latencies=values or {},
        )
        for place, (record, values) in enumerate(zip(records, each, strict=True))
    }


def choose(utterances: dict[int, Utterance], count: int, latency: Latency) -> list[Highlight]:
    """A quarter each of the best and the worst by chrF and of the latest; the rest near the median.

    Of equals the longer ones come first, since they show more. None is taken twice.
    """
    of: dict[int, Reason] = {}

    def take(keys: Sequence[int], reason: Reason, many: int) -> None:
        of.update(dict.fromkeys([key for key in keys if key not in of][: max(0, many)], reason))

    def late(key: int) -> float:
        value = utterances[key].latencies.get(latency, math.nan)
        return -math.inf if math.isnan(value) else value

    longer = sorted(utterances, key=lambda key: -utterances[key].record.source_length)
    scored = [key for key in longer if not math.isnan(utterances[key].chrf)]
    best = sorted(scored, key=lambda key: -utterances[key].chrf)
    take(best, "best", count // 4)
    take(sorted(scored, key=lambda key: utterances[key].chrf), "worst", count // 4)
    take(sorted(longer, key=lambda key: -late(key)), "latest", count // 4)
    ranks = {key: abs(rank - (len(best) - 1) / 2) for rank, key in enumerate(best)}
    middle = sorted(longer, key=lambda key: ranks.get(key, math.inf))
    take(middle, "middle", count - len(of))
    return [Highlight(key=key, reason=reason) for key, reason in of.items()]


def representative(evaluated: Sequence[Evaluated]) -> Evaluated:
    """Of the settings of a system, the one of best quality; of equals the soonest."""
    return max(evaluated, key=lambda each: _or_low(each.scores["BLEU"]))


def compare(comparable: Comparable, latency: Latency) -> tuple[Versus, ...]:
    """The two systems of a test set: offline, and their best in every regime that both have.

    Refuses more or fewer systems than two.
    """
    names = list(dict.fromkeys([*comparable.streamed(), *comparable.offline()]))
    if len(names) != 2:
        raise RecordError(f"two systems can be compared here, not {len(names)}")
    first, second = (_best(comparable, name, latency) for name in names)
    return tuple(
        _versus(first[where], second[where], where, latency) for where in first if where in second
    )


def _best(comparable: Comparable, name: str, latency: Latency) -> dict[str, Evaluated]:
    """A system's evaluation of best quality in every regime, and offline."""
    streamed, offline = (of.get(name, []) for of in (comparable.streamed(), comparable.offline()))
    whole = {"offline": representative(offline)} if offline else {}
    if comparable.unit == "words":  # has no regimes
        return ({"streamed": representative(streamed)} if streamed else {}) | whole
    points = {each.point(latency): each for each in reversed(streamed)}
    best = best_per_regime(point for point in points if point is not None)
    return {f"{regime} latency": points[point] for regime, point in best.items()} | whole


def _versus(first: Evaluated, second: Evaluated, where: str, latency: Latency) -> Versus:
    profile = first.scores["profile"]
    measures = [Measure(metric="BLEU", profile=profile)]
    if where != "offline":
        measures.append(Measure(metric=latency, profile=profile))
    comparisons = (paired_bootstrap(first.records, second.records, m) for m in measures)
    return Versus(first=first, second=second, where=where, comparisons=tuple(comparisons))


def _or_low(value: float) -> float:
    return -math.inf if math.isnan(value) else value
