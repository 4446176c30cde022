"""AL, DAL and AP on expected delays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simuljax import ops
from tests.oracles import latency, reference
from tests.oracles.checks import CHEAP, assert_close, assert_gradient, everything_finite, float32

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


@metric_names
def test_no_targets_give_zero_and_finite_gradients(name):
    delays = jnp.ones((2, 4))

    def metric(g):
        return METRICS[name](g, jnp.array([0, 5]), jnp.array([0, 4]))

    assert metric(delays)[0] == 0
    gradient = jax.grad(lambda g: metric(g).sum())(delays)
    assert everything_finite(gradient)
    assert not np.any(gradient[0])
