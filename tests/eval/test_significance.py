"""Whether two systems differ."""

import functools

import numpy as np
import pytest
from scipy import stats

from simuljax.eval import RecordError, score
from simuljax.eval.significance import (
    Measure,
    Sampling,
    bootstrap_of_seeds,
    confidence_interval,
    paired_bootstrap,
    paired_t_test,
    t_test_of_seeds,
)
from tests.eval.logs import made_up

FEW = Sampling(samples=200)
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
def test_scores_are_those_of_score(first, worse, measure):
    comparison = paired_bootstrap(first, worse, measure, FEW)
    assert comparison.first == pytest.approx(score(first)[measure.metric])
    assert comparison.second == pytest.approx(score(worse)[measure.metric])
    assert comparison.difference.value == pytest.approx(comparison.second - comparison.first)


def test_a_score_without_a_four_gram_is_smoothed_as_score_has_it(first):
    said = [f"{record['reference'].split()[0]} ja ja ja ja" for record in first]
    few = [r | {"prediction": p, "delays": [1.0] * 5} for r, p in zip(first, said, strict=True)]
    comparison = paired_bootstrap(first, few, Measure(), FEW)
    assert comparison.second == pytest.approx(score(few)["BLEU"])
    assert comparison.second > 0


@metrics
def test_a_real_difference_is_significant(first, worse, measure):
    for comparison in (
        paired_bootstrap(first, worse, measure, FEW),
        paired_t_test(first, worse, measure),
    ):
        assert comparison.p_value < 0.01
        assert (
            comparison.difference.low <= comparison.difference.value <= comparison.difference.high
        )
        assert not comparison.difference.low <= 0 <= comparison.difference.high


@metrics
def test_a_system_does_not_differ_from_itself(first, measure):
    assert paired_bootstrap(first, first, measure, FEW).p_value == 1
    assert paired_t_test(first, first, measure).p_value == 1


def test_chance_is_not_significant_too_often():
    """Noise of mean 0: p-values below .2 in about a fifth of the trials, by either test."""
    rng, hits = np.random.default_rng(0), np.zeros(2)
    base = made_up(3, 30)
    for _ in range(60):
        noisy = [
            r | {"delays": [d + float(noise) for d in r["delays"]], "source_length": 9e3}
            for r, noise in zip(base, rng.normal(0, 50, len(base)), strict=True)
        ]
        plain = [r | {"source_length": 9e3} for r in base]
        tests = paired_bootstrap(plain, noisy, AL, FEW), paired_t_test(plain, noisy, AL)
        hits += [test.p_value < 0.2 for test in tests]
    assert (hits > 3).all() and (hits < 24).all()


def test_the_t_test_is_that_of_scipy(first, worse):
    from simuljax.eval.logs import as_records
    from simuljax.eval.scores import latencies

    a, b = ([v["AL"] for v in latencies(as_records(log)) if v] for log in (first, worse))
    expected = stats.ttest_rel(b, a)
    actual = paired_t_test(first, worse, AL)
    assert actual.p_value == pytest.approx(expected.pvalue)
    low, high = expected.confidence_interval(0.95)
    assert (actual.difference.low, actual.difference.high) == pytest.approx((low, high))


def test_the_seed_decides(first, worse):
    twice = [paired_bootstrap(first, worse, AL, FEW) for _ in range(2)]
    assert twice[0] == twice[1]
    other = Sampling(samples=200, seed=1)
    assert confidence_interval(first, AL, FEW) != confidence_interval(first, AL, other)


def test_the_order_of_a_log_does_not_matter(first, worse):
    shuffled = [worse[i] for i in np.random.default_rng(0).permutation(len(worse))]
    assert paired_bootstrap(first, shuffled, AL, FEW) == paired_bootstrap(first, worse, AL, FEW)


def test_a_mean_is_as_uncertain_as_its_standard_error(first):
    from simuljax.eval.logs import as_records
    from simuljax.eval.scores import latencies

    values = [v["AL"] for v in latencies(as_records(first)) if v]
    interval = confidence_interval(first, AL, Sampling(samples=2000))
    width = 2 * 1.96 * np.std(values) / np.sqrt(len(values))
    assert interval.high - interval.low == pytest.approx(width, rel=0.1)
    wider = confidence_interval(first, AL, Sampling(samples=2000, confidence=0.99))
    assert wider.high - wider.low > interval.high - interval.low


def test_utterances_without_a_word_are_left_out(first):
    silent = [first[0] | {"prediction": "", "delays": [], "elapsed": []}, *first[1:]]
    assert paired_bootstrap(first, silent, AL, FEW).second == pytest.approx(score(silent)["AL"])
    assert paired_t_test(first, silent, AL).n == len(first) - 1


def test_logs_that_cannot_be_compared(first):
    with pytest.raises(RecordError, match="indices differ"):
        paired_bootstrap(first, first[1:])
    other = [first[0] | {"reference": "anders"}, *first[1:]]
    with pytest.raises(RecordError, match="different references for utterance 0"):
        paired_t_test(first, other)
    with pytest.raises(RecordError, match="needs two utterances"):
        paired_t_test(first[:1], first[:1], AL)
    with pytest.raises(ValueError, match="confidence within"):
        Sampling(confidence=1.5)


@metrics
def test_of_seeds_the_mean_difference_is_told(first, worse, measure):
    comparison = bootstrap_of_seeds([first, first], [worse, first], measure, FEW)
    alone = paired_bootstrap(first, worse, measure, FEW).difference.value
    assert comparison.difference.value == pytest.approx(alone / 2)
    assert comparison.n == len(first)


@metrics
def test_seeds_that_disagree_leave_it_open(first, worse, measure):
    """Each of them, and all utterances as if they were of one system, are certain of it."""
    ups, downs = [first, worse, first], [worse, first, worse]
    one, other = (
        [r | {"index": r["index"] + 1000 * k} for k in (0, 1, 2) for r in logs[k]]
        for logs in (ups, downs)
    )
    assert paired_bootstrap(one, other, measure, FEW).p_value < 0.05
    found = bootstrap_of_seeds(ups, downs, measure, FEW)
    assert found.difference.low < 0 < found.difference.high
    assert found.p_value > 0.05


@metrics
def test_copies_of_a_seed_make_nothing_surer(first, worse, measure):
    alone, copies = ([first], [worse]), ([first] * 3, [worse] * 3)
    few = functools.partial(bootstrap_of_seeds, sampling=FEW)
    for test in (few, t_test_of_seeds):
        one, three = test(*alone, measure), test(*copies, measure)
        assert three.p_value == pytest.approx(one.p_value)
        assert three.difference.low == pytest.approx(one.difference.low)
        assert three.n == one.n


def test_seeds_are_of_the_same_utterances(first, worse):
    shuffled = list(reversed(worse))
    assert bootstrap_of_seeds([first, first], [worse, shuffled], None, FEW) == bootstrap_of_seeds(
        [first, first], [worse, worse], None, FEW
    )
    with pytest.raises(RecordError, match="2 and 1 seeds"):
        bootstrap_of_seeds([first, first], [worse])
    with pytest.raises(RecordError, match="not of the same utterances"):
        bootstrap_of_seeds([first, first[1:]], [worse, worse[1:]])
