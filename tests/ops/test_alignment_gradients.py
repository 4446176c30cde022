"""Gradients of the alignment against finite differences, and where they might not be finite."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax import ops
from tests.oracles import alignment
from tests.oracles.checks import (
    everything_finite,
    finite_difference,
    float32,
    one_by_one,
    probabilities,
)

both_methods = pytest.mark.parametrize("method", ["exact", "fused"])

# Compiling `fused` for the CPU takes seconds, so the tests share their shapes and functions.
SHAPE, FULL, RAGGED = (3, 4, 7), np.array([7, 7, 7]), np.array([7, 1, 4])
WEIGHTS = np.random.default_rng(0).normal(size=SHAPE)


@functools.partial(jax.jit, static_argnames="method")
@functools.partial(jax.grad, argnums=0)
def gradient(p, lengths, weights, method):
    """Random weights make one number of the alignment, with a different slope everywhere."""
    return (weights * ops.expected_alignment(p, lengths, method=method)).sum()


@functools.partial(jax.jit, static_argnames="method")
@functools.partial(jax.value_and_grad, argnums=0)
def total_delay(energy, method):
    alpha = ops.expected_alignment(jax.nn.sigmoid(energy), method=method)
    return ops.expected_delays(ops.preserve_mass(alpha)).sum()


def check_against_differences(p, lengths, method, weights=WEIGHTS):
    """Float64, relative to the largest entry."""

    def oracle(x):
        return (weights * one_by_one(alignment.expected_alignment, lengths, x)).sum()

    actual, expected = gradient(p, lengths, weights, method), finite_difference(oracle, p)
    assert actual.dtype == jnp.float64
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@both_methods
@pytest.mark.parametrize("lengths", [FULL, RAGGED])
def test_finite_differences(x64, method, lengths):
    p = np.random.default_rng(1).uniform(0, 1, SHAPE)
    check_against_differences(p, lengths, method)


@both_methods
def test_finite_differences_at_zero_and_one(x64, method):
    """The alignment is a polynomial in p, so its derivative exists at 0 and at 1 as well."""
    p = np.random.default_rng(2).choice([0, 1, 0.4], SHAPE)
    p[0, 2], p[1] = 0, 0
    check_against_differences(p, FULL, method)


@both_methods
@pytest.mark.parametrize("shape", [(1, 1), (2, 3, 2, 5)])
def test_finite_differences_of_other_shapes(x64, method, shape):
    p, weights = np.random.default_rng(3).uniform(0, 1, (2, *shape))
    check_against_differences(p, None, method, weights)


@both_methods
def test_float64_is_kept(x64, method):
    p = np.random.default_rng(4).uniform(0, 1, SHAPE)
    alpha = jax.jit(ops.expected_alignment, static_argnames="method")(p, method=method)
    assert alpha.dtype == jnp.float64
    expected = one_by_one(alignment.expected_alignment, None, p)
    np.testing.assert_allclose(alpha, expected, rtol=0, atol=1e-14)


@both_methods
def test_padding_gets_no_gradient(method):
    p = probabilities(np.random.default_rng(5), SHAPE)
    found = np.asarray(gradient(p, RAGGED, float32(WEIGHTS), method))
    assert not np.any(found[np.broadcast_to(np.arange(7) >= RAGGED[:, None, None], SHAPE)])
    assert everything_finite(found)


@both_methods
def test_finite_for_rows_of_zeros(method):
    p = probabilities(np.random.default_rng(6), SHAPE)
    p[0], p[1, 2], p[2, 0] = 0, 0, 0
    assert everything_finite(gradient(p, FULL, float32(WEIGHTS), method))


@both_methods
def test_finite_for_large_energies(method):
    signs = np.random.default_rng(7).choice(float32([-1, 1, 0.5, 0]), (2, 6, 20))
    for scale in (8, 1e2, 1e4):
        assert everything_finite(total_delay(signs * float32(scale), method))


@pytest.mark.parametrize("mean", [-4, 0])
def test_finite_at_speech_length(mean):
    energy = float32(np.random.default_rng(8).normal(mean, 8, (50, 2000)))
    assert everything_finite(total_delay(energy, "exact"))


def test_fused_gradient_equals_exact():
    p = probabilities(np.random.default_rng(9), (2, 10, 70), -1, 4)
    weights = float32(np.random.default_rng(10).normal(size=p.shape))
    lengths = np.array([70, 41])
    exact, fused = (gradient(p, lengths, weights, m) for m in ("exact", "fused"))
    np.testing.assert_allclose(fused, exact, rtol=0, atol=1e-5 * np.abs(exact).max())
