"""Tests of whether systems differ."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from simuljax.eval import RecordError, score
from simuljax.eval.logs import as_records
from simuljax.eval.scores import latencies
from simuljax.eval.significance import (
    Comparison,
    Interval,
    Measure,
    Rule,
    _standard_error,
    are_split,
    compare_all,
    compare_seeds,
    confidence_interval,
    holm,
    judge,
    paired_bootstrap,
)
from tests.eval.logs import made_up

FEW = 200  # samples
AL = Measure(metric="AL")
metrics = pytest.mark.parametrize("measure", [Measure(), AL, Measure(metric="YAAL")])


@pytest.fixture(scope="module")
def first():
    return made_up(1, 60)


@pytest.fixture(scope="module")
def worse(first):
    """Words lost, and everything 300 ms later where the source lets it."""
    return [
        record
        | {"prediction": "nicht " + record["prediction"].split(" ", 1)[1]}
        | {"delays": [min(d + 300, record["source_length"]) for d in record["delays"]]}
        for record in first
    ]


@metrics
def test_a_real_difference_is_significant_and_scores_are_those_of_score(first, worse, measure):
    comparison = paired_bootstrap(first, worse, measure, FEW)
    assert comparison.first == pytest.approx(score(first)[measure.metric])
    assert comparison.second == pytest.approx(score(worse)[measure.metric])
    found = comparison.difference
    assert found.value == pytest.approx(comparison.second - comparison.first)
    assert comparison.p_value < 0.01 and found.low <= found.value <= found.high
    assert not found.low <= 0 <= found.high
    assert paired_bootstrap(first, first, measure, FEW).p_value == 1


def test_odd_utterances_are_scored_as_score_has_them(first):
    """Smoothing without a four-gram; an utterance without a word."""
    said = [f"{record['reference'].split()[0]} ja ja ja ja" for record in first]
    few = [r | {"prediction": p, "delays": [1.0] * 5} for r, p in zip(first, said, strict=True)]
    assert paired_bootstrap(first, few, Measure(), FEW).second == pytest.approx(score(few)["BLEU"])
    assert score(few)["BLEU"] > 0
    silent = [first[0] | {"prediction": "", "delays": [], "elapsed": []}, *first[1:]]
    assert paired_bootstrap(first, silent, AL, FEW).second == pytest.approx(score(silent)["AL"])


def test_chance_is_not_significant_too_often():
    """Noise of mean 0: p-values below .2 in about a fifth of the trials."""
    rng, hits = np.random.default_rng(0), 0
    base = made_up(3, 30)
    for _ in range(60):
        noisy = [
            r | {"delays": [d + float(noise) for d in r["delays"]], "source_length": 9e3}
            for r, noise in zip(base, rng.normal(0, 50, len(base)), strict=True)
        ]
        plain = [r | {"source_length": 9e3} for r in base]
        hits += paired_bootstrap(plain, noisy, AL, FEW).p_value < 0.2
    assert 3 < hits < 24


def test_a_mean_is_as_uncertain_as_its_standard_error(first):
    values = [v["AL"] for v in latencies(as_records(first)) if v]
    interval = confidence_interval(first, AL, 2000)
    width = 2 * 1.96 * np.std(values) / np.sqrt(len(values))
    assert interval.high - interval.low == pytest.approx(width, rel=0.1)


def test_logs_that_cannot_be_compared(first):
    with pytest.raises(RecordError, match="indices differ"):
        paired_bootstrap(first, first[1:])
    other = [first[0] | {"reference": "anders"}, *first[1:]]
    with pytest.raises(RecordError, match="different references for utterance 0"):
        paired_bootstrap(first, other)


@metrics
def test_seeds_that_disagree_leave_it_open(first, worse, measure):
    """Each seed, and all utterances as if they were of one system, are certain of it."""
    ups, downs = [first, worse, first], [worse, first, worse]
    one, other = (
        [r | {"index": r["index"] + 1000 * k} for k in (0, 1, 2) for r in logs[k]]
        for logs in (ups, downs)
    )
    assert paired_bootstrap(one, other, measure, FEW).p_value < 0.05
    found = compare_seeds(ups, downs, measure, FEW)
    assert found.difference.low < 0 < found.difference.high and found.p_value > 0.05
    alone = paired_bootstrap(first, worse, measure, FEW).difference.value
    assert found.by_seed == pytest.approx((alone, -alone, alone))
    assert found.difference.value == pytest.approx(alone / 3) and found.n == len(first)


@metrics
def test_copies_of_a_seed_make_nothing_surer(first, worse, measure):
    one = compare_seeds([first], [worse], measure, FEW)
    three = compare_seeds([first] * 3, [worse] * 3, measure, FEW)
    assert three.p_value == pytest.approx(one.p_value)
    assert three.difference.low == pytest.approx(one.difference.low)


def test_seeds_are_of_the_same_utterances_and_a_cache_changes_nothing(first, worse):
    cache, given = {}, ([first, first], [worse, first], AL, FEW)
    assert compare_seeds(*given, cache) == compare_seeds(*given, cache) == compare_seeds(*given)
    assert len(cache) == 2
    shuffled = [worse[::-1], first]
    assert compare_seeds([first, first], shuffled, AL, FEW) == compare_seeds(*given)
    with pytest.raises(RecordError, match="2 and 1 seeds"):
        compare_seeds([first, first], [worse])
    with pytest.raises(RecordError, match="not of the same utterances"):
        compare_seeds([first, first[1:]], [worse, worse[1:]])


def test_without_noise_of_utterances_it_is_the_t_interval_over_seeds():
    values = np.array([1.0, 2.0, 4.0])
    samples = np.repeat(values[:, None], 50, axis=1)  # utterances change nothing
    error, freedom = _standard_error(values, samples, 1000)
    expected: Any = stats.ttest_1samp(values, 0)
    assert freedom == pytest.approx(2)
    assert values.mean() / error == pytest.approx(expected.statistic)


def test_noise_of_utterances_that_seeds_share_is_not_averaged_out():
    rng = np.random.default_rng(0)
    shared, own = rng.normal(0, 3, 20_000), rng.normal(0, 4, (5, 20_000))
    error, freedom = _standard_error(np.full(5, 7.0), shared + own, 1000)
    least = math.sqrt(9 + 16 / 5)  # of utterances alone: seeds that agree by chance show none of it
    assert error == pytest.approx(least, rel=0.05) and freedom == pytest.approx(999)
    values = np.array([2.0, 10.0, 7.0, 3.0, 13.0])
    error, freedom = _standard_error(values, shared + own, 1000)
    between = values.var(ddof=1) / 5
    assert error**2 == pytest.approx(9 + between, rel=0.05)
    assert 4 < freedom < 999


def test_intervals_over_seeds_hold_the_truth_as_often_as_they_say():
    """Draw seeds and utterances anew: a 90 % interval holds the true difference in about 90 %."""
    rng, held, trials = np.random.default_rng(0), 0, 300
    for _ in range(trials):
        utterance, seeds = rng.normal(0, 2, 40), rng.normal(0, 0.5, 3)
        each = 1.0 + seeds[:, None] + utterance + rng.normal(0, 1, (3, 40))
        draws = rng.multinomial(40, np.full(40, 1 / 40), size=100)
        error, freedom = _standard_error(each.mean(1), each @ draws.T / 40, 40)
        held += abs(each.mean() - 1.0) < stats.t.ppf(0.95, freedom) * error
    assert 0.84 < held / trials < 0.96


def test_the_correction_of_holm():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


def test_every_pair_of_systems_is_tested(first, worse):
    found = compare_all({"a": first, "b": worse, "c": first}, AL, FEW)
    assert [*found] == [("a", "b"), ("a", "c"), ("b", "c")]
    alone = paired_bootstrap(first, worse, AL, FEW)
    assert found["a", "b"].p_value == alone.p_value
    assert found["a", "b"].adjusted == pytest.approx(3 * alone.p_value)
    assert found["a", "c"].adjusted == 1 and math.isnan(alone.adjusted)


def compared(value, error=1.0, seeds=5, freedom=10.0):
    """A comparison as `compare_seeds` returns it."""
    p_value = 2 * float(stats.t.sf(abs(value) / error, freedom))
    interval = Interval(value=value, low=value - 2, high=value + 2)
    return Comparison(
        metric="BLEU",
        first=20.0,
        second=20.0 + value,
        difference=interval,
        p_value=p_value,
        n=1000,
        error=error,
        freedom=freedom,
        by_seed=(value,) * seeds,
    )


def test_verdicts():
    given = [compared(5.0), compared(-5.0), compared(1.0), None, compared(5.0, seeds=1)]
    found, untestable = judge(given, Rule()), ["not testable here"] * 2
    verdicts = ["supported", "contradicted", "inconclusive", *untestable]
    assert [each.verdict for each in found] == verdicts
    assert [each.reason for each in found[3:]] == ["not evaluated", "1 of 2 seeds"]
    nothing = replace(compared(0.0), error=0.0)  # two models that write nothing
    (same,) = judge([nothing], Rule(), [1.0])
    assert same.verdict == "not testable here" and "no utterance" in same.reason
    weak = compared(2.5)  # many claims need more evidence
    assert weak.p_value < 0.05
    assert judge([weak], Rule())[0].verdict == "supported"
    assert {each.verdict for each in judge([weak] * 4, Rule())} == {"inconclusive"}
    small = compared(0.1, error=0.2)  # a margin contradicts what is too small
    assert judge([small], Rule())[0].verdict == "inconclusive"
    assert judge([small], Rule(margin=1.0))[0].verdict == "contradicted"
    assert judge([small], Rule(), [1.0])[0].verdict == "contradicted"  # by what was published
    assert judge([small], Rule(margin=0.0), [1.0])[0].verdict == "inconclusive"
    unseen = compared(-2.0, error=1.0)  # 1.0 is rejected, but too small to be found here
    assert judge([unseen], Rule(), [1.0])[0].verdict == "inconclusive"
    assert judge([compared(0.1)], Rule(margin=1.0))[0].verdict == "inconclusive"


def test_the_smallest_difference_that_could_be_found():
    """With 10 degrees of freedom: (2.228 + 0.879) standard errors."""
    assert compared(0.0, error=0.5).detectable(Rule()) == pytest.approx(0.5 * 3.107, rel=1e-3)
    assert compared(0.0).detectable(Rule(power=0.9)) > compared(0.0).detectable(Rule())
    several = judge([compared(0.0, error=0.5)] * 5, Rule())  # at 0.01: 3.169 standard errors
    found = [each.comparison.detectable(Rule()) for each in several if each.comparison]
    assert found == [pytest.approx(2.02, abs=0.01)] * 5
    with pytest.raises(ValueError, match="seeds at least 2"):
        Rule(seeds=1)


def test_seeds_in_two_groups():
    assert are_split([300, 320, 3183], 250) and are_split([300, 3183], 250)
    assert not are_split([300, 900], 250) and not are_split([300, 620, 900], 250)
    assert not are_split([300, 310, 500], 250) and not are_split([300], 250)
