"""Whether two systems differ, from their logs of the same utterances.

    paired_bootstrap    utterances are drawn with replacement, the same for both (Koehn 2004)
    paired_t_test       differences of utterances against 0
    confidence_interval one system alone, by bootstrap

and, of systems that were trained several times, a log for each seed,

    bootstrap_of_seeds  seeds are drawn, too: would others show the same?
    t_test_of_seeds     an utterance counts once, with its mean over seeds

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
from simuljax.eval.logs import Record, RecordError, as_records, find_unit
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
    n, rng = len(checked), np.random.default_rng(sampling.seed)
    draws = _draws(n, rng, sampling.samples)
    return _interval(float(value), resampled(draws), sampling.confidence)


def paired_bootstrap(
    first: Entries,
    second: Entries,
    measure: Measure | None = None,
    sampling: Sampling | None = None,
) -> Comparison:
    """How often a difference this large would come from drawing other utterances.

    p = (1 + #{|D_b - mean D| >= |D|}) / (1 + samples), D_b the difference on sample b.
    """
    return bootstrap_of_seeds([first], [second], measure, sampling)


def bootstrap_of_seeds(
    first: Sequence[Entries],
    second: Sequence[Entries],
    measure: Measure | None = None,
    sampling: Sampling | None = None,
) -> Comparison:
    """The mean of the seeds' differences; a sample draws utterances, for all alike, and seeds.

    Few seeds vary less than many would: of two or three, the interval is still too narrow.
    """
    measure, sampling = measure or Measure(), sampling or Sampling()
    pairs = _pairs(first, second)
    n, rng = len(pairs[0][0]), np.random.default_rng(sampling.seed)
    utterances = _draws(n, rng, sampling.samples)
    seeds = _draws(len(pairs), rng, sampling.samples)
    scores = [[_resampled(records, measure) for records in pair] for pair in pairs]
    a, b = np.mean([[one(np.ones((1, n)))[0] for one in pair] for pair in scores], axis=0)
    each = np.stack([other(utterances) - one(utterances) for one, other in scores], axis=1)
    differences = np.where(seeds > 0, seeds * each, 0.0).sum(1) / len(pairs)
    extreme = np.abs(differences - np.nanmean(differences)) >= abs(b - a) - 1e-12
    return Comparison(
        metric=measure.metric,
        test="paired bootstrap",
        first=float(a),
        second=float(b),
        difference=_interval(float(b - a), differences, sampling.confidence),
        p_value=(1 + int(extreme.sum())) / (1 + sampling.samples),
        n=n,
    )


def paired_t_test(
    first: Entries, second: Entries, measure: Measure | None = None, confidence: float = 0.95
) -> Comparison:
    """Student's test on the utterances that have a value in both systems."""
    return t_test_of_seeds([first], [second], measure, confidence)


def t_test_of_seeds(
    first: Sequence[Entries],
    second: Sequence[Entries],
    measure: Measure | None = None,
    confidence: float = 0.95,
) -> Comparison:
    """The same on each utterance's mean over seeds: it says nothing about seeds not trained."""
    from scipy import stats

    measure = measure or Measure()
    pairs = _pairs(first, second)
    a, b = (np.mean([_each(pair[k], measure) for pair in pairs], axis=0) for k in (0, 1))
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


def _pairs(
    first: Sequence[Entries], second: Sequence[Entries]
) -> list[tuple[list[Record], list[Record]]]:
    """Those of every seed, all in the same order."""
    if not first or len(first) != len(second):
        raise RecordError(f"{len(first)} and {len(second)} seeds: both systems need the same")
    order = as_records(first[0])
    return [
        (_pair(order, one)[1], _pair(order, other)[1])
        for one, other in zip(first, second, strict=True)
    ]


def _draws(n: int, rng: np.random.Generator, samples: int) -> np.ndarray:
    """How often each of n is in each sample of as many, [samples, n]."""
    return rng.multinomial(n, np.full(n, 1 / n), size=samples)


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
        return np.array(
            [compute(s[:4], s[4:8], s[8], s[9], bleu.smooth_method).score for s in sums]
        )

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
