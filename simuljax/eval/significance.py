"""Whether two systems differ, from their logs of the same utterances.

    paired_bootstrap    utterances are drawn with replacement, the same for both (Koehn 2004)
    paired_t_test       differences of utterances against 0
    confidence_interval one system alone, by bootstrap

Latency is a mean over utterances. BLEU is of the whole corpus: the bootstrap adds up the n-gram
counts of what was drawn; the t-test takes sentence BLEU, so its values are not those of `score`.
All are deterministic for a seed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simuljax.eval.latency import DEFAULT, Profile
from simuljax.eval.records import Record, RecordError, as_records, find_unit
from simuljax.eval.scores import Entries, default_tokenizer, latencies

Metric = Literal["BLEU", "AL", "LAAL", "AP", "DAL", "ATD", "YAAL", "RTF"]
Resampled = Callable[[np.ndarray], np.ndarray]  # counts [samples, n] -> scores [samples]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a score is resampled."""

    samples: int = 1000
    seed: int = 0
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.samples < 1 or not 0 < self.confidence < 1:
            raise ValueError(f"samples must be positive and confidence within (0, 1): {self}")


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What is compared."""

    metric: Metric = "BLEU"
    profile: Profile = DEFAULT
    computation_aware: bool = False


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A score and the interval that holds it with the given confidence."""

    value: float
    low: float
    high: float
    confidence: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Second system against first: `difference` = second - first, with its interval."""

    metric: Metric
    test: Literal["paired bootstrap", "paired t-test"]
    first: float
    second: float
    difference: Interval
    p_value: float  # two-sided
    n: int  # utterances compared


def confidence_interval(
    records: Entries, measure: Measure | None = None, sampling: Sampling | None = None
) -> Interval:
    """A system's score with its bootstrap interval (percentiles)."""
    measure, sampling = measure or Measure(), sampling or Sampling()
    checked = as_records(records)
    resampled = _resampled(checked, measure)
    (value,) = resampled(np.ones((1, len(checked))))
    return _interval(float(value), resampled(_draws(len(checked), sampling)), sampling.confidence)


def paired_bootstrap(
    first: Entries,
    second: Entries,
    measure: Measure | None = None,
    sampling: Sampling | None = None,
) -> Comparison:
    """How often a difference this large would come from drawing other utterances.

    p = (1 + #{|D_b - mean D| >= |D|}) / (1 + samples), D_b the difference on sample b.
    """
    measure, sampling = measure or Measure(), sampling or Sampling()
    pair = _pair(first, second)
    one, other = (_resampled(records, measure) for records in pair)
    everything, draws = np.ones((1, len(pair[0]))), _draws(len(pair[0]), sampling)
    (a,), (b,) = one(everything), other(everything)
    differences = other(draws) - one(draws)
    extreme = np.abs(differences - np.nanmean(differences)) >= abs(b - a) - 1e-12
    return Comparison(
        metric=measure.metric,
        test="paired bootstrap",
        first=float(a),
        second=float(b),
        difference=_interval(float(b - a), differences, sampling.confidence),
        p_value=(1 + int(extreme.sum())) / (1 + sampling.samples),
        n=len(pair[0]),
    )


def paired_t_test(
    first: Entries, second: Entries, measure: Measure | None = None, confidence: float = 0.95
) -> Comparison:
    """Student's test on the utterances that have a value in both systems."""
    from scipy import stats

    measure = measure or Measure()
    a, b = (_each(records, measure) for records in _pair(first, second))
    both = ~(np.isnan(a) | np.isnan(b))
    a, b = a[both], b[both]
    if len(a) < 2:
        raise RecordError(f"a t-test needs two utterances that both systems have, not {len(a)}")
    difference, error = float(np.mean(b - a)), float(np.std(b - a, ddof=1) / math.sqrt(len(a)))
    reach = float(stats.t.ppf(0.5 + confidence / 2, len(a) - 1)) * error
    p_value = 2 * float(stats.t.sf(abs(difference) / error, len(a) - 1)) if error else None
    return Comparison(
        metric=measure.metric,
        test="paired t-test",
        first=float(a.mean()),
        second=float(b.mean()),
        difference=Interval(
            value=difference,
            low=difference - reach,
            high=difference + reach,
            confidence=confidence,
        ),
        p_value=p_value if p_value is not None else float(difference == 0),
        n=len(a),
    )


def _pair(first: Entries, second: Entries) -> tuple[list[Record], list[Record]]:
    """Both logs in the order of the first, matched by index."""
    one, other = as_records(first), as_records(second)
    by_index = {record.index: record for record in other}
    if not one or {record.index for record in one} != set(by_index) or len(one) != len(other):
        raise RecordError("the two logs are not of the same utterances: their indices differ")
    other = [by_index[record.index] for record in one]
    for a, b in zip(one, other, strict=True):
        if a.reference != b.reference:
            raise RecordError(f"the two logs have different references for utterance {a.index}")
    return one, other


def _draws(n: int, sampling: Sampling) -> np.ndarray:
    """How often each utterance is in each sample, [samples, n]."""
    rng = np.random.default_rng(sampling.seed)
    return rng.multinomial(n, np.full(n, 1 / n), size=sampling.samples)


def _resampled(records: Sequence[Record], measure: Measure) -> Resampled:
    if measure.metric == "BLEU":
        return _resampled_bleu(records)
    values = _each(records, measure)
    known = ~np.isnan(values)
    if not known.any():
        raise RecordError(f"no utterance has a value of {measure.metric}")

    def means(counts: np.ndarray) -> np.ndarray:
        weight = counts[:, known].sum(1)
        total = counts[:, known] @ values[known]
        return np.divide(total, weight, out=np.full(len(counts), np.nan), where=weight > 0)

    return means


def _resampled_bleu(records: Sequence[Record]) -> Resampled:
    """Sums of n-gram matches, n-grams and lengths are all that BLEU needs of a sample."""
    import sacrebleu

    bleu = sacrebleu.BLEU(tokenize=default_tokenizer(records, find_unit(records)))
    each = [bleu.corpus_score([r.prediction], [[_reference(r)]]) for r in records]
    rows = np.array([[*s.counts, *s.totals, s.sys_len, s.ref_len] for s in each], np.int64)

    def scores(counts: np.ndarray) -> np.ndarray:
        sums = (counts.astype(np.int64) @ rows).tolist()
        compute = sacrebleu.BLEU.compute_bleu
        return np.array([compute(s[:4], s[4:8], s[8], s[9]).score for s in sums])

    return scores


def _each(records: Sequence[Record], measure: Measure) -> np.ndarray:
    """The metric of every utterance, NaN where it has none."""
    unit = find_unit(records)
    if measure.metric == "BLEU":
        import sacrebleu

        tokenize = default_tokenizer(records, unit)
        bleu = sacrebleu.BLEU(tokenize=tokenize, effective_order=True)
        scores = [bleu.sentence_score(r.prediction, [_reference(r)]).score for r in records]
        return np.array(scores)
    each = latencies(
        records, profile=measure.profile, computation_aware=measure.computation_aware, unit=unit
    )
    return np.array([math.nan if values is None else values[measure.metric] for values in each])


def _reference(record: Record) -> str:
    if record.reference is None:
        raise RecordError(f"record {record.index} has no reference, so it has no BLEU")
    return record.reference


def _interval(value: float, samples: np.ndarray, confidence: float) -> Interval:
    tail = 50 * (1 - confidence)
    low, high = np.nanpercentile(samples, [tail, 100 - tail])
    return Interval(value=value, low=float(low), high=float(high), confidence=confidence)
