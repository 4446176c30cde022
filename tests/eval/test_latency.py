"""Latency of one utterance, in both profiles."""

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simuljax import eval as metrics
from tests.oracles import evaluation_metrics as oracle

METRICS = {
    "AL": metrics.average_lagging,
    "LAAL": metrics.length_adaptive_average_lagging,
    "AP": metrics.average_proportion,
    "DAL": metrics.differentiable_average_lagging,
    "ATD": metrics.average_token_delay,
    "YAAL": metrics.yaal,
}
PROFILES = ("simuleval-1.1", "simuleval-1.0")
both_profiles = pytest.mark.parametrize("profile", PROFILES)
all_metrics = pytest.mark.parametrize("name", list(METRICS))

FIRST = ([1000, 1280, 1560, 2000, 3000, 3000], 6)
SECOND = ([800, 800, 1200, 1600, 1600, 2000, 2400, 2400, 2800, 3000], 5)
PUBLISHED = [
    (FIRST, "simuleval-1.1", {"AL": 768, "LAAL": 768, "AP": 11840 / 18000, "DAL": 1000}),
    (FIRST, "simuleval-1.1", {"ATD": 3100 / 3, "YAAL": 710}),
    (FIRST, "simuleval-1.0", {"AL": 6376 / 7, "LAAL": 6376 / 7, "AP": 14840 / 21000}),
    (FIRST, "simuleval-1.0", {"DAL": 55000 / 49}),
    (SECOND, "simuleval-1.1", {"AL": -840, "LAAL": 510, "AP": 1.24, "DAL": 800, "ATD": 530}),
    (SECOND, "simuleval-1.0", {"AL": 110, "LAAL": 6960 / 11, "AP": 7.2 / 11, "DAL": 800}),
]


@pytest.mark.parametrize(("case", "profile", "expected"), PUBLISHED)
def test_worked_cases(case, profile, expected):
    delays, reference = case
    for name, value in expected.items():
        actual = METRICS[name](delays, 3000, reference, profile=profile)
        assert actual == pytest.approx(value, rel=1e-9), name


@st.composite
def utterances(draw):
    """Delays that rise in steps and may pass the end; a source; a reference's length."""
    source = draw(st.one_of(st.integers(100, 9000), st.floats(50, 9000)))
    steps = draw(st.lists(st.sampled_from([0, 0, 40, 280, 300, 320.5, 1000]), min_size=1))
    start = draw(st.sampled_from([0, 280, 600.25, source]))
    delays = [start + sum(steps[: i + 1]) for i in range(len(steps))]
    return delays, source, draw(st.integers(1, 20))


@all_metrics
@both_profiles
@given(utterances())
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_random_utterances(name, profile, utterance):
    delays, source, reference = utterance
    actual = METRICS[name](delays, source, reference, profile=profile)
    expected = oracle.METRICS[name](delays, source, reference, profile)
    assert actual == pytest.approx(expected, rel=1e-9, abs=1e-6, nan_ok=True)


@given(utterances(), st.lists(st.floats(0, 500), min_size=1, max_size=60))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_token_delay_with_a_clock(utterance, costs):
    delays, source, reference = utterance
    spent = [sum(costs[: i % len(costs) + 1]) for i in range(len(delays))]
    elapsed = [d + s for d, s in zip(delays, spent, strict=True)]
    actual = metrics.average_token_delay(delays, source, reference, elapsed=elapsed)
    if not any(elapsed):
        elapsed = None
    expected = oracle.average_token_delay(delays, source, reference, "simuleval-1.1", elapsed)
    assert actual == pytest.approx(expected, rel=1e-9, abs=1e-6)


def test_token_delay_of_a_clock_nobody_read():
    delays, reference = FIRST
    zeros = [0] * len(delays)
    actual = metrics.average_token_delay(delays, 3000, reference, elapsed=zeros)
    assert actual == metrics.average_token_delay(delays, 3000, reference)
    late = [d + 100 for d in delays]
    assert metrics.average_token_delay(delays, 3000, reference, elapsed=late) > actual


def test_an_end_of_sentence_with_a_delay_of_its_own():
    profile = "simuleval-1.0"
    early = metrics.average_proportion([500], 1000, 1, profile=profile, end_delay=700)
    assert early == 1200 / 2000
    assert metrics.average_proportion([500], 1000, 1, profile=profile) == 1500 / 2000


def test_yaal_leaves_out_what_comes_after_the_end():
    assert metrics.yaal([500, 2900, 3000, 4000], 3000, 4) == (500 + 2900 - 750) / 2
    assert math.isnan(metrics.yaal([3000, 3000], 3000, 4))
    assert metrics.yaal([500, 2900, 3000, 4000], 3000, 4, source_end=3500) == pytest.approx(
        (500 + 2900 - 750 + 3000 - 1500) / 3
    )


@pytest.mark.parametrize("k", [1, 3, 5])
def test_wait_k_on_text_of_equal_lengths_lags_by_k(k):
    delays = [min(k + i, 10) for i in range(10)]
    assert metrics.average_lagging(delays, 10, 10) == pytest.approx(k)


@all_metrics
def test_what_cannot_be_measured(name):
    for profile in PROFILES:
        assert math.isnan(METRICS[name]([], 3000, 5, profile=profile)), "there is no word"
    empty, one = (METRICS[name]([500, 700], 3000, words) for words in (0, 1))
    assert empty == one, "an empty reference counts as one word"
    with pytest.raises(ValueError, match="profile is 'simuleval-2'"):
        METRICS[name]([1.0], 3000, 2, profile="simuleval-2")
    if name != "ATD":
        with pytest.raises(ValueError, match="source_length must be positive"):
            METRICS[name]([1.0], 0, 2)


def test_token_delay_of_a_time_that_cannot_be_takes_no_memory():
    """Ten billion milliseconds are 33 million pseudo-tokens; two words need the ends of two."""
    assert metrics.average_token_delay([280, 1e10], 1e10, 2) == (1e10 - 580) / 2
    started = time.perf_counter()
    metrics.average_token_delay([1e10 * k for k in range(1, 2_000)], 1e10, 2_000)
    assert time.perf_counter() - started < 5
