"""AL as the code of Dugan et al. computes it."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simuljax.eval.latency import average_lagging, off_by_one_average_lagging


def as_published(delays, source, reference):
    """Word by word, counted from 0 as there."""
    last = next((i for i, delay in enumerate(delays) if delay > source), len(delays) - 1)
    return sum(delays[i] - source / reference * (i - 1) for i in range(last + 1)) / (last + 1)


@given(
    st.lists(st.sampled_from([0, 280, 1000, 320.5]), min_size=1, max_size=12),
    st.sampled_from([1000.0, 2500, 3000]),
    st.integers(1, 8),
)
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
def test_is_what_their_loop_gives(steps, source, reference):
    delays = [sum(steps[: i + 1]) for i in range(len(steps))]
    expected = as_published(delays, source, reference)
    assert off_by_one_average_lagging(delays, source, reference) == pytest.approx(expected)


def test_exceeds_average_lagging_by_one_word():
    delays, source, reference = [1000, 2000, 2900, 3100, 3200], 3000, 6
    plain = average_lagging(delays, source, reference)
    assert off_by_one_average_lagging(delays, source, reference) == pytest.approx(plain + 500)


def test_words_due_at_the_very_end_do_not_stop_it():
    delays = [1000, 3000, 3000, 3000]
    assert average_lagging(delays, 3000, 3) == pytest.approx((1000 + 2000) / 2)
    expected = (1000 + 1000 + 3000 + 2000 + 1000) / 4
    assert off_by_one_average_lagging(delays, 3000, 3) == pytest.approx(expected)


def test_nothing_said_has_no_latency():
    assert math.isnan(off_by_one_average_lagging([], 3000, 4))
    with pytest.raises(ValueError, match="source_length"):
        off_by_one_average_lagging([1], 0, 4)
