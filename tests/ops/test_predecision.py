"""Triggers and windows: where a decision may stand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simuljax import ops
from tests.oracles import decisions
from tests.oracles.checks import CHEAP, assert_close, everything_finite, float32

lengths_up_to_12 = st.lists(st.integers(1, 12), min_size=3, max_size=3)

fixed_triggers = jax.jit(ops.fixed_triggers, static_argnames=("size", "step"))
label_triggers = jax.jit(ops.label_triggers)
window_ends = jax.jit(ops.window_ends, static_argnames=("size", "step"))
place_on_triggers = jax.jit(ops.place_on_triggers, static_argnames=("size", "step"))
pool_windows = jax.jit(ops.pool_windows, static_argnames=("step", "kind"))


@given(lengths=lengths_up_to_12, step=st.sampled_from([1, 3, 4, 12, 20]))
@CHEAP
def test_fixed_triggers(lengths, step):
    triggers = fixed_triggers(jnp.array(lengths), 12, step)
    assert triggers.dtype == bool
    np.testing.assert_array_equal(
        triggers, [decisions.fixed_triggers(n, 12, step) for n in lengths]
    )


@given(labels=st.lists(st.integers(0, 2), min_size=36, max_size=36), lengths=lengths_up_to_12)
@CHEAP
def test_label_triggers(labels, lengths):
    labels = np.reshape(labels, (3, 12))
    triggers = label_triggers(jnp.array(labels), jnp.array(lengths))
    assert triggers.dtype == bool
    expected = [decisions.label_triggers(row, n) for row, n in zip(labels, lengths, strict=True)]
    np.testing.assert_array_equal(triggers, expected)


def on(labels, length):
    """The triggering states of one row, padded to 12."""
    row = jnp.array([labels + [0] * (12 - len(labels))])
    return np.flatnonzero(label_triggers(row, jnp.array([length]))[0]).tolist()


@pytest.mark.parametrize(
    ("labels", "length", "expected"),
    [
        ([1, 1, 2, 2, 3], 5, [2, 4]),  # a change of word, and the last real state
        ([1, 1, 0, 0, 2, 2], 6, [4, 5]),  # silence carries the word before it
        ([1, 0, 1, 1, 2], 5, [4]),  # the same word after silence is no change
        ([0, 0, 1, 1], 4, [2, 3]),  # leading silence is quiet, the first word after it is not
        ([0, 0, 0], 3, [2]),  # only silence: the last real state
        ([5], 1, [0]),  # one state: it is the last
        ([1, 1, 2, 3, 4], 3, [2]),  # padding never triggers
    ],
)
def test_label_triggers_by_hand(labels, length, expected):
    assert on(labels, length) == expected


def test_nothing_triggers_without_a_real_state():
    assert not fixed_triggers(jnp.array([0]), 5, 2).any()
    assert not label_triggers(jnp.array([[1, 2, 3]]), jnp.array([0])).any()


@given(lengths=lengths_up_to_12, step=st.sampled_from([1, 3, 5, 12]), seed=st.integers(0, 99))
@CHEAP
def test_windows(lengths, step, seed):
    rng = np.random.default_rng(seed)
    states = float32(rng.normal(size=(3, 12, 4)))
    p = float32(rng.uniform(size=(3, 2, 5, -(-12 // step))))
    ends = window_ends(jnp.array(lengths), 12, step)
    placed = place_on_triggers(p, jnp.array(lengths), 12, step)
    np.testing.assert_array_equal(ends, [decisions.window_ends(n, 12, step) for n in lengths])
    for b, length in enumerate(lengths):
        for h in range(2):
            assert_close(placed[b, h], decisions.place_on_triggers(p[b, h], length, 12, step), 0)
        for kind in ("average", "last"):
            pooled = pool_windows(states, jnp.array(lengths), step, kind=kind)
            expected = decisions.pool_windows(states[b], length, step, kind)
            assert pooled.shape == (3, -(-12 // step), 4)
            assert_close(pooled[b, : len(expected)], expected, 1e-6)


def test_average_pooling_is_the_default():
    states, lengths = jnp.ones((1, 6, 2)).at[0, 1].set(5), jnp.array([5])
    default = pool_windows(states, lengths, 2)
    np.testing.assert_array_equal(default, pool_windows(states, lengths, 2, kind="average"))
    assert_close(default[0, 0], [3, 3], 0)


def test_placed_probabilities_stand_on_triggers():
    lengths = jnp.array([12, 7, 3])
    placed = place_on_triggers(jnp.ones((3, 4, 3)), lengths, 12, 4)
    triggers = fixed_triggers(lengths, 12, 4)
    np.testing.assert_array_equal(placed[:, 0] > 0, triggers)


@pytest.mark.parametrize("kind", ["average", "last"])
def test_pooling_ignores_padding(kind):
    lengths = jnp.array([7, 2])
    states = float32(np.random.default_rng(0).normal(size=(2, 9, 3)))

    def pool(x):
        return pool_windows(x, lengths, 3, kind=kind)

    loud = states.copy()
    loud[0, 7:], loud[1, 2:] = 1e6, 1e6
    assert_close(pool(loud)[0], np.asarray(pool(states)[0]), 0)
    assert_close(pool(loud)[1, 0], np.asarray(pool(states)[1, 0]), 0)
    gradient = jax.grad(lambda x: (pool(x) ** 2).sum())(states)
    assert everything_finite(gradient)
    assert not np.any(gradient[0, 7:])


def test_the_mass_of_a_placed_decision_stays_on_triggers():
    """Decisions at triggers only: the alignment is zero between them, however long the source."""
    lengths = jnp.array([12, 10])
    p = float32(np.random.default_rng(1).uniform(0.2, 0.9, (2, 5, 3)))
    alpha = ops.expected_alignment(place_on_triggers(p, lengths, 12, 4), lengths)
    between = ~np.asarray(fixed_triggers(lengths, 12, 4))
    assert not np.any(np.where(between[:, None], alpha, 0))
