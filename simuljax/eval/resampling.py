"""Score samples of the utterances of a log: the bootstrap behind significance.py."""

import functools
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
Cache = dict[tuple[int, "Measure"], tuple[object, np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """The settings of a bootstrap."""

    samples: int = 1000
    seed: int = 0
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.samples < 1 or not 0 < self.confidence < 1:
            raise ValueError(f"samples must be positive and confidence within (0, 1): {self}")


@dataclass(frozen=True, kw_only=True)
class Measure:
    """The score that is compared."""

    metric: Metric = "BLEU"
    profile: Profile = DEFAULT
    computation_aware: bool = False


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value and the interval that holds it with the given confidence."""

    value: float
    low: float
    high: float
    confidence: float


def pair_logs(first: Entries, second: Entries) -> tuple[list[Record], list[Record]]:
    """Return both logs in the order of the first, matched by index."""
    one, other = as_records(first), as_records(second)
    by_index = {record.index: record for record in other}
    if not one or {record.index for record in one} != set(by_index) or len(one) != len(other):
        raise RecordError("the two logs are not of the same utterances: their indices differ")
    other = [by_index[record.index] for record in one]
    for a, b in zip(one, other, strict=True):
        if a.reference != b.reference:
            raise RecordError(f"the two logs have different references for utterance {a.index}")
    return one, other


def cached_samples(
    cache: Cache, order: Sequence[Record], log: Entries, measure: Measure, sampling: Sampling
) -> np.ndarray:
    """Return the score of a log, then those of its samples."""
    key = id(log), measure
    if key not in cache:
        value, samples = sample_scores(pair_logs(order, log)[1], measure, sampling)
        cache[key] = log, np.concatenate([[value], samples])  # holds the log, so its id stays its
    return cache[key][1]


def sample_scores(
    records: Sequence[Record], measure: Measure, sampling: Sampling
) -> tuple[float, np.ndarray]:
    """Return the score of the records, and of every sample of as many utterances."""
    resampled = _resampled(records, measure)
    draws = _draws(len(records), sampling.samples, sampling.seed)
    return float(resampled(np.ones((1, len(records))))[0]), resampled(draws)


@functools.lru_cache(maxsize=4)
def _draws(n: int, samples: int, seed: int) -> np.ndarray:
    """Return how often each of n utterances is in each sample of as many, [samples, n]."""
    drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=samples)
    return drawn.astype(np.float64)  # whole numbers, exact; products of floats are fast


def _resampled(records: Sequence[Record], measure: Measure) -> Resampled:
    if measure.metric == "BLEU":
        return _resampled_bleu(records)
    values = score_each(records, measure)
    known = ~np.isnan(values)
    if not known.any():
        raise RecordError(f"no utterance has a value of {measure.metric}")

    def means(counts: np.ndarray) -> np.ndarray:
        weight = counts[:, known].sum(1)
        total = counts[:, known] @ values[known]
        return np.divide(total, weight, out=np.full(len(counts), np.nan), where=weight > 0)

    return means


def _resampled_bleu(records: Sequence[Record]) -> Resampled:
    """Sum n-gram matches, n-grams and lengths, which are all that BLEU needs of a sample."""
    import sacrebleu

    bleu = sacrebleu.BLEU(tokenize=default_tokenizer(records, find_unit(records)))
    each = [bleu.corpus_score([r.prediction], [[_reference(r)]]) for r in records]
    rows = np.array([[*s.counts, *s.totals, s.sys_len, s.ref_len] for s in each], np.float64)

    def scores(counts: np.ndarray) -> np.ndarray:
        sums = (counts @ rows).astype(np.int64).tolist()
        compute = sacrebleu.BLEU.compute_bleu
        return np.array(
            [compute(s[:4], s[4:8], s[8], s[9], bleu.smooth_method).score for s in sums]
        )

    return scores


def score_each(records: Sequence[Record], measure: Measure) -> np.ndarray:
    """Return the metric of every utterance, NaN where it has none."""
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


def percentile_interval(value: float, samples: np.ndarray, confidence: float) -> Interval:
    """Return the interval between two percentiles of the samples."""
    tail = 50 * (1 - confidence)
    low, high = np.nanpercentile(samples, [tail, 100 - tail])
    return Interval(value=value, low=float(low), high=float(high), confidence=confidence)
