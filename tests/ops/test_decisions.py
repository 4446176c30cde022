"""Triggers, windows and probabilities of a decision; AL, DAL and AP on expected delays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simuljax import ops
from tests.oracles import decisions, latency, reference
from tests.oracles.checks import (
    CHEAP,
    assert_close,
    assert_gradient,
    everything_finite,
    float32,
    one_by_one,
    sigmoid,
)

lengths_up_to_12 = st.lists(st.integers(1, 12), min_size=3, max_size=3)
fixed_triggers = jax.jit(ops.fixed_triggers, static_argnames=("size", "step"))
label_triggers = jax.jit(ops.label_triggers)
window_ends = jax.jit(ops.window_ends, static_argnames=("size", "step"))
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
    whole = label_triggers(jnp.array(labels), jnp.full(3, 12))
    np.testing.assert_array_equal(ops.label_triggers(jnp.array(labels), None), whole)


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
        ([1, 2, 3], 0, []),  # nothing does without a real state
    ],
)
def test_label_triggers_by_hand(labels, length, expected):
    assert on(labels, length) == expected


@given(lengths=lengths_up_to_12, step=st.sampled_from([1, 3, 5, 12]), seed=st.integers(0, 99))
@CHEAP
def test_windows(lengths, step, seed):
    rng = np.random.default_rng(seed)
    states = float32(rng.normal(size=(3, 12, 4)))
    ends = window_ends(jnp.array(lengths), 12, step)
    np.testing.assert_array_equal(ends, [decisions.window_ends(n, 12, step) for n in lengths])
    for b, length in enumerate(lengths):
        for kind in ("average", "last"):
            pooled = np.asarray(pool_windows(states, jnp.array(lengths), step, kind=kind))
            expected = decisions.pool_windows(states[b], length, step, kind)
            assert pooled.shape == (3, -(-12 // step), 4)
            assert_close(pooled[b, : len(expected)], expected, 1e-6)


@pytest.mark.parametrize("kind", ["average", "last"])
def test_pooling_ignores_padding(kind):
    lengths = jnp.array([7, 2])
    states = float32(np.random.default_rng(0).normal(size=(2, 9, 3)))

    def pool(x):
        return pool_windows(x, lengths, 3, kind=kind)

    loud = states.copy()
    loud[0, 7:], loud[1, 2:] = 1e6, 1e6
    found, expected = np.asarray(pool(loud)), np.asarray(pool(states))
    assert_close(found[0], expected[0], 0)
    assert_close(found[1, 0], expected[1, 0], 0)
    gradient = np.asarray(jax.jit(jax.grad(lambda x: (pool(x) ** 2).sum()))(states))
    assert everything_finite(gradient)
    assert not np.any(gradient[0, 7:])


@pytest.mark.parametrize("convention", ["stacl", "papi"])
def test_wait_k_with_k_drawn_per_batch(convention):
    traced = []

    @jax.jit
    def p(k):
        traced.append(k)
        return ops.wait_k_probability(k, 6, 11, convention=convention)

    for k in (1, 2, 5, 40):
        assert_close(p(k), decisions.wait_k(k, 6, 11, convention), 0)
    assert len(traced) == 1


def test_energy_is_a_scaled_product_with_a_bias():
    rng = np.random.default_rng(0)
    query, key = (float32(rng.normal(size=(2, 3, 4, 8))), float32(rng.normal(size=(2, 3, 5, 8))))
    expected = one_by_one(lambda q, k, _: decisions.monotonic_energy(q, k, -2.0), None, query, key)
    assert_close(ops.monotonic_energy(jnp.array(query), jnp.array(key), -2.0), expected, 1e-5)


def test_noise_is_gaussian_and_needs_a_key():
    energy = jnp.zeros((100, 100))
    for deviation in (1.0, 0.5):
        p = ops.selection_probability(energy, key=jax.random.key(0), noise=deviation)
        drawn = np.asarray(jax.scipy.special.logit(p))
        assert abs(drawn.mean()) < 0.05 * deviation
        assert abs(drawn.std() / deviation - 1) < 0.05
    default = ops.selection_probability(energy, key=jax.random.key(0))
    unit = ops.selection_probability(energy, key=jax.random.key(0), noise=1.0)
    np.testing.assert_array_equal(default, unit)


@pytest.mark.parametrize("key", [None, 3])
def test_padded_keys_are_never_chosen(key):
    energy = float32(np.random.default_rng(2).normal(size=(2, 2, 3, 6)))
    lengths = jnp.array([6, 2])
    noise = None if key is None else jax.random.key(key)

    @jax.jit
    def p(e):
        return ops.selection_probability(e, lengths, key=noise)

    assert not np.asarray(p(energy))[1, ..., 2:].any()
    gradient = np.asarray(jax.jit(jax.grad(lambda e: p(e).sum()))(energy))
    assert everything_finite(gradient)
    assert not np.any(gradient[1, ..., 2:])
    assert np.all(np.asarray(gradient[0]) > 0)


@pytest.mark.parametrize("scale", [1e2, 1e4])
def test_probability_of_large_energies(scale):
    energy = float32(np.array([[-scale, 0, scale]]))
    assert_close(ops.selection_probability(energy), [[0, 0.5, 1]], 1e-30)
    half = jnp.asarray([[-2.0, 0.3, 5]], jnp.bfloat16)
    assert_close(ops.selection_probability(half), sigmoid(np.asarray(half, np.float64)), 1e-6)
    assert everything_finite(jax.grad(lambda e: ops.selection_probability(e).sum())(energy))


METRICS = {
    "AL": jax.jit(ops.average_lagging),
    "DAL": jax.jit(ops.differentiable_average_lagging),
    "AP": jax.jit(ops.average_proportion),
}
metric_names = pytest.mark.parametrize("name", list(METRICS))


def by_loop(name, delays, sources, targets):
    """The oracle for every sentence of [B,...,T]."""
    result = np.zeros(delays.shape[:-1])
    for index in np.ndindex(*result.shape):
        limits = int(sources[index[0]]), int(targets[index[0]])
        result[index] = latency.METRICS[name](delays[index], *limits)
    return result


@pytest.mark.parametrize(("name", "expected"), [("DAL", 2.395), ("AL", 1.7342)])
def test_reference_values(name, expected):
    value = METRICS[name](jnp.float32(reference.DELAYS), jnp.array(4), jnp.array(3))
    assert_close(value, expected, 1e-6)


@metric_names
@given(seed=st.integers(0, 999), shape=st.sampled_from([(3, 1), (3, 7), (2, 4, 7), (2, 3, 2, 4)]))
@CHEAP
def test_random_shapes(name, seed, shape):
    rng = np.random.default_rng(seed)
    delays = float32(rng.uniform(0, 20, shape))
    sources, targets = rng.integers(1, 21, shape[0]), rng.integers(1, shape[-1] + 1, shape[0])
    value = METRICS[name](delays, jnp.array(sources), jnp.array(targets))
    assert_close(value, by_loop(name, delays, sources, targets), 1e-5)


@metric_names
def test_padded_targets_do_not_count(name):
    delays = float32(np.random.default_rng(0).uniform(0, 9, (2, 3, 6)))
    loud = delays.copy()
    loud[1, :, 4:] = 1e6
    arguments = jnp.array([9, 8]), jnp.array([6, 4])
    expected = METRICS[name](delays, *arguments)
    np.testing.assert_array_equal(METRICS[name](loud, *arguments), expected)
    gradient = jax.grad(lambda g: METRICS[name](g, *arguments).sum())(loud)
    assert everything_finite(gradient)
    assert not np.any(gradient[1, :, 4:])
    nothing = jnp.array([0, 5]), jnp.array([0, 4])
    assert not METRICS[name](delays, *nothing)[0].any()
    gradient = jax.grad(lambda g: METRICS[name](g, *nothing).sum())(delays)
    assert everything_finite(gradient) and not np.any(gradient[0])


@metric_names
def test_finite_differences(x64, name):
    rng = np.random.default_rng(1)
    delays = rng.uniform(0, 12, (2, 2, 6))
    sources, targets = np.array([12, 7]), np.array([6, 4])
    weights = rng.normal(size=(2, 2))
    assert_gradient(
        lambda g: (weights * METRICS[name](g, jnp.array(sources), jnp.array(targets))).sum(),
        lambda g: (weights * by_loop(name, g, sources, targets)).sum(),
        delays,
    )
