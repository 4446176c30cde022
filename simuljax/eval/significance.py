"""Test whether systems differ, from their logs of the same utterances.

    confidence_interval   one system alone, by bootstrap
    paired_bootstrap      draw utterances with replacement, the same for both (Koehn 2004)
    compare_all           every pair of several systems, with Holm's correction
    compare_seeds         several logs per system: a t-interval over seeds and utterances
    judge                 the verdicts on several claims, with Holm's correction

A seed's difference on a test set is modelled as D_s = delta + a_s + u + w_s: a_s is the seed's own,
u that of the utterances, the same for all seeds, and w_s what this seed makes of these utterances.
Then

    Var(mean D) = s^2 / S + sigma_u^2

with s^2 the sample variance of D over S seeds, which holds a and w, and sigma_u^2 the covariance of
two seeds' differences when utterances are drawn anew. Seeds may agree by chance, so sigma_u^2 is at
least what makes the sum the variance that utterances alone give the mean. Degrees of freedom:
Satterthwaite (1946).

Latency is a mean over utterances. BLEU is of the whole corpus: the bootstrap adds up the n-gram
counts of the drawn utterances. All results are deterministic.
"""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from simuljax.eval.latency import DEFAULT, Profile
from simuljax.eval.logs import Record, RecordError, as_records, find_unit
from simuljax.eval.scores import Entries, default_tokenizer, latencies

Metric = Literal["BLEU", "AL", "LAAL", "AP", "DAL", "ATD", "YAAL", "RTF"]
Verdict = Literal["supported", "contradicted", "inconclusive", "not testable here"]
Cache = dict[tuple[int, "Measure"], tuple[object, np.ndarray]]
SAMPLES, CONFIDENCE = 1000, 0.95


@dataclass(frozen=True, kw_only=True)
class Measure:
    """The score that is compared."""

    metric: Metric = "BLEU"
    profile: Profile = DEFAULT


BLEU = Measure()


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value and the interval that holds it with 95 % confidence."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Second system against first: `difference` = second - first, with its interval."""

    metric: Metric
    first: float
    second: float
    difference: Interval
    p_value: float  # two-sided
    n: int  # utterances compared
    adjusted: float = math.nan  # p, corrected for the other comparisons that were made
    made: int = 1  # comparisons that p is corrected for
    error: float = math.nan  # standard error of the difference
    freedom: float = math.nan  # its degrees of freedom
    by_seed: tuple[float, ...] = ()  # the difference of every seed

    def detectable(self, rule: "Rule") -> float:
        """Return the smallest true difference that the rule would find with its power.

        Correction is taken at its strictest, that for the smallest p of all comparisons made.
        """
        from scipy import stats

        reach = stats.t.ppf([1 - rule.alpha / self.made / 2, rule.power], self.freedom)
        return float(reach.sum()) * self.error


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The rule for verdicts on claims; it is fixed before the grid runs.

    A claim says that one variant is better than another by more than 0. It is *supported* if the
    corrected p-value is below `alpha` and the difference is positive. It is *contradicted* if the
    difference is negative in the same way, or if `margin` could have been found and is rejected at
    the same level; None stands for the published difference of each claim, 0 where there is none.
    It is *inconclusive* otherwise, and *not testable here* with fewer than `seeds` seeds, without
    any difference (two models that write nothing), or if the experiment lacks its conditions.
    """

    alpha: float = 0.05
    power: float = 0.8
    margin: float | None = None
    seeds: int = 2

    def __post_init__(self) -> None:
        if not (0 < self.alpha < 1 and 0 < self.power < 1 and self.seeds >= 2):
            raise ValueError(f"alpha and power must be within (0, 1), seeds at least 2: {self}")


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The verdict on a claim, and the comparison that it rests on."""

    verdict: Verdict
    comparison: Comparison | None = None
    reason: str = ""  # why it is not testable


def confidence_interval(
    records: Entries, measure: Measure = BLEU, samples: int = SAMPLES
) -> Interval:
    """Return a system's score with its bootstrap interval (percentiles)."""
    scores = _sample_scores(as_records(records), measure, samples)
    return _percentiles(float(scores[0]), scores[1:])


def paired_bootstrap(
    first: Entries, second: Entries, measure: Measure = BLEU, samples: int = SAMPLES
) -> Comparison:
    """Test how often other utterances would give a difference as large.

    p = (1 + #{|D_b - mean D| >= |D|}) / (1 + samples), D_b the difference on sample b.
    """
    (found,) = compare_all({"first": first, "second": second}, measure, samples).values()
    return replace(found, adjusted=math.nan)


def compare_all(
    logs: Mapping[str, Entries], measure: Measure = BLEU, samples: int = SAMPLES
) -> dict[tuple[str, str], Comparison]:
    """Compare every pair of systems by paired bootstrap; `adjusted` is Holm's p-value."""
    order = as_records(next(iter(logs.values())))
    scores = {
        name: _sample_scores(_in_order(order, log), measure, samples) for name, log in logs.items()
    }
    found = {}
    for one, other in itertools.combinations(scores, 2):
        first, second = float(scores[one][0]), float(scores[other][0])
        differences, value = (scores[other] - scores[one])[1:], second - first
        extreme = np.abs(differences - np.nanmean(differences)) >= abs(value) - 1e-12
        found[one, other] = Comparison(
            metric=measure.metric,
            first=first,
            second=second,
            difference=_percentiles(value, differences),
            p_value=(1 + int(extreme.sum())) / (1 + samples),
            n=len(order),
        )
    return dict(zip(found, corrected([*found.values()]), strict=True))


def compare_seeds(
    first: Sequence[Entries],
    second: Sequence[Entries],
    measure: Measure = BLEU,
    samples: int = SAMPLES,
    cache: Cache | None = None,
) -> Comparison:
    """Compare two systems that were trained with the same seeds; see the head of this file.

    With one seed, only the choice of utterances counts. `cache` saves work where one log takes
    part in several comparisons of the same utterances.
    """
    from scipy import stats

    if not first or len(first) != len(second):
        raise RecordError(f"{len(first)} and {len(second)} seeds: both systems need the same")
    order, cache = as_records(first[0]), {} if cache is None else cache

    def scores(log: Entries) -> np.ndarray:
        key = id(log), measure
        if key not in cache:  # it holds the log, so that its id stays its own
            cache[key] = log, _sample_scores(_in_order(order, log), measure, samples)
        return cache[key][1]

    one, other = (np.stack([scores(log) for log in logs]) for logs in (first, second))
    values, sampled = (other - one)[:, 0], (other - one)[:, 1:]
    error, freedom = _standard_error(values, sampled, len(order))
    value = float(values.mean())
    reach = float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom)) * error
    return Comparison(
        metric=measure.metric,
        first=float(one[:, 0].mean()),
        second=float(other[:, 0].mean()),
        difference=Interval(value=value, low=value - reach, high=value + reach),
        p_value=_p_value(value, error, freedom),
        n=len(order),
        error=error,
        freedom=freedom,
        by_seed=tuple(map(float, values)),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number (Holm 1979).

    The i-th smallest of m becomes max_{j <= i} min(1, (m - j + 1) p_(j)).
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def corrected(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons with `adjusted` p-values."""
    p_values = holm([each.p_value for each in comparisons])
    made = len(p_values)
    return [replace(c, adjusted=p, made=made) for c, p in zip(comparisons, p_values, strict=True)]


def judge(
    comparisons: Sequence[Comparison | None], rule: Rule, published: Sequence[float | None] = ()
) -> list[Judgement]:
    """Judge claims by a rule; None stands for a claim whose variants were not evaluated."""
    judged, tested, margins = [], {}, []
    for i, (c, value) in enumerate(itertools.zip_longest(comparisons, published)):
        reason = f"{len(c.by_seed)} of {rule.seeds} seeds" if c else "not evaluated"
        if c is not None and c.error == 0:
            reason = "no utterance scores differently, in any seed"
        judged.append(Judgement(verdict="not testable here", comparison=c, reason=reason))
        if c is not None and len(c.by_seed) >= rule.seeds and c.error != 0:
            tested[i] = c
            margins.append((value or 0.0) if rule.margin is None else rule.margin)
    against = holm(
        [
            _p_value(c.difference.value - margin, c.error, c.freedom)
            for c, margin in zip(tested.values(), margins, strict=True)
        ]
    )
    found = zip(tested, corrected([*tested.values()]), margins, against, strict=True)
    for i, c, margin, p_margin in found:
        value, differs = c.difference.value, c.adjusted < rule.alpha
        excluded = p_margin < rule.alpha and value < margin and c.detectable(rule) < margin
        verdict: Verdict = "inconclusive"
        if differs and value > 0:
            verdict = "supported"
        elif excluded or (differs and value < 0):
            verdict = "contradicted"
        judged[i] = Judgement(verdict=verdict, comparison=c)
    return judged


def are_split(values: Sequence[float], least: float) -> bool:
    """Return True if seeds fall into two groups, so that their mean describes none of them.

    The largest gap between neighbours must be `least` or more and four times the next largest; of
    two seeds, five times `least`.
    """
    ordered = sorted(value for value in values if math.isfinite(value))
    gaps = sorted(b - a for a, b in itertools.pairwise(ordered))
    if len(gaps) < 2:
        return bool(gaps) and gaps[0] >= 5 * least
    return gaps[-1] >= max(least, 4 * gaps[-2])


def _in_order(order: Sequence[Record], log: Entries) -> list[Record]:
    """Return the records of a log of the same utterances, in the order of another."""
    records = as_records(log)
    by_index = {record.index: record for record in records}
    if not order or {r.index for r in order} != set(by_index) or len(order) != len(records):
        raise RecordError("the two logs are not of the same utterances: their indices differ")
    for record in order:
        if by_index[record.index].reference != record.reference:
            raise RecordError(
                f"the two logs have different references for utterance {record.index}"
            )
    return [by_index[record.index] for record in order]


def _sample_scores(records: Sequence[Record], measure: Measure, samples: int) -> np.ndarray:
    """Return the score of the records, then that of every sample of as many utterances."""
    resampled = _bleu_of if measure.metric == "BLEU" else functools.partial(_latency_of, measure)
    draws = _draws(len(records), samples)
    return resampled(records, np.concatenate([np.ones((1, len(records))), draws]))


@functools.lru_cache(maxsize=4)
def _draws(n: int, samples: int) -> np.ndarray:
    """Return how often each of n utterances is in each sample of as many, [samples, n]."""
    drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=samples)
    return drawn.astype(np.float64)  # whole numbers, exact; products of floats are fast


def _latency_of(measure: Measure, records: Sequence[Record], counts: np.ndarray) -> np.ndarray:
    """Return the mean of every sample, [samples], from `counts` [samples, n]."""
    each = latencies(records, profile=measure.profile)
    values = np.array([math.nan if found is None else found[measure.metric] for found in each])
    known = ~np.isnan(values)
    if not known.any():
        raise RecordError(f"no utterance has a value of {measure.metric}")
    weight, total = counts[:, known].sum(1), counts[:, known] @ values[known]
    return np.divide(total, weight, out=np.full(len(counts), np.nan), where=weight > 0)


def _bleu_of(records: Sequence[Record], counts: np.ndarray) -> np.ndarray:
    """Sum n-gram matches, n-grams and lengths, which are all that BLEU needs of a sample."""
    import sacrebleu

    bleu = sacrebleu.BLEU(tokenize=default_tokenizer(records, find_unit(records)))
    rows = []
    for record in records:
        if record.reference is None:
            raise RecordError(f"record {record.index} has no reference, so it has no BLEU")
        s = bleu.corpus_score([record.prediction], [[record.reference]])
        rows.append([*s.counts, *s.totals, s.sys_len, s.ref_len])
    sums = (counts @ np.array(rows, np.float64)).astype(np.int64).tolist()
    compute = sacrebleu.BLEU.compute_bleu
    return np.array([compute(s[:4], s[4:8], s[8], s[9], bleu.smooth_method).score for s in sums])


def _percentiles(value: float, samples: np.ndarray) -> Interval:
    """Return the interval between two percentiles of the samples."""
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.nanpercentile(samples, [tail, 100 - tail])
    return Interval(value=value, low=float(low), high=float(high))


def _standard_error(values: np.ndarray, samples: np.ndarray, n: int) -> tuple[float, float]:
    """Return the standard error of the mean difference and its degrees of freedom."""
    seeds, others = len(values), max(n - 1, 1)
    if seeds == 1:
        return float(np.nanstd(samples[0], ddof=1)), others
    of_mean = np.nanvar(samples.mean(0), ddof=1)
    of_one = np.nanvar(samples, axis=1, ddof=1).mean()
    covariance = float(seeds * of_mean - of_one) / (seeds - 1)  # of two seeds
    between = float(np.var(values, ddof=1)) / seeds
    shared = max(0.0, covariance, float(of_mean) - between)
    total = between + shared
    parts = between**2 / (seeds - 1) + shared**2 / others
    return math.sqrt(total), total**2 / parts if parts else others


def _p_value(difference: float, error: float, freedom: float) -> float:
    """Return the two-sided p-value of a difference."""
    from scipy import stats

    return (
        2 * float(stats.t.sf(abs(difference) / error, freedom)) if error else float(not difference)
    )
