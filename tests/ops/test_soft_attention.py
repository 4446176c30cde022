"""Expected soft attention against its double sums."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simuljax import ops
from tests.oracles import alignment, attention, decisions, reference
from tests.oracles.checks import (
    CHEAP,
    assert_close,
    assert_gradient,
    everything_finite,
    float32,
    one_by_one,
    probabilities,
    problems,
)

soft_attention = jax.jit(ops.expected_soft_attention, static_argnames="chunk")


def preserved_alignment(rng, shape, lengths=None):
    """A float32 alignment with all of its mass, as training makes it."""
    alpha = one_by_one(alignment.expected_alignment, lengths, probabilities(rng, shape, -1))
    return float32(one_by_one(alignment.preserve_mass, lengths, alpha))


@functools.partial(jax.jit, static_argnames="chunk")
def gradients(alpha, energy, lengths=None, chunk=None):
    def total(a, u):
        return (soft_attention(a, u, lengths, chunk=chunk) ** 2).sum()

    return jax.grad(total, (0, 1))(alpha, energy)


def double_sum(alpha, energy, chunk=None):
    return one_by_one(lambda a, u, _: attention.soft_attention(a, u, chunk), None, alpha, energy)


@pytest.mark.parametrize(
    ("chunk", "expected"), [(None, reference.LOOKBACK), (2, reference.CHUNK_2)]
)
def test_reference_values(chunk, expected):
    alpha, energy = jnp.float32(reference.PRESERVED), jnp.float32(reference.SOFT_ENERGY)
    assert_close(soft_attention(alpha, energy, chunk=chunk), expected, 6e-6)


@given(problem=problems(), chunk=st.sampled_from([None, 1, 3]))
@CHEAP
def test_random_shapes(problem, chunk):
    rng, leading, targets, sources, lengths = problem
    shape = (*leading, targets, sources)
    alpha = preserved_alignment(rng, shape, lengths)
    energy = float32(rng.normal(0, 3, shape))
    beta = soft_attention(alpha, energy, lengths, chunk=chunk)
    assert_close(beta, double_sum(alpha, energy, chunk), 3e-6)


@pytest.mark.parametrize("chunk", [None, 2, 4])
def test_rows_keep_their_mass(chunk):
    rng = np.random.default_rng(0)
    alpha = float32(rng.uniform(0, 0.1, (3, 5, 9)))
    energy = float32(rng.normal(0, 5, (3, 5, 9)))
    beta = soft_attention(alpha, energy, chunk=chunk)
    assert_close(beta.sum(-1), alpha.sum(-1, dtype=np.float64), 2e-6)


def test_a_chunk_of_one_is_the_hard_alignment():
    rng = np.random.default_rng(1)
    alpha = preserved_alignment(rng, (2, 4, 7))
    energy = float32(rng.normal(0, 3, (2, 4, 7)))
    assert_close(soft_attention(alpha, energy, chunk=1), alpha, 1e-6)


def test_a_chunk_as_wide_as_the_source_is_infinite_lookback():
    rng = np.random.default_rng(2)
    alpha, energy = preserved_alignment(rng, (2, 4, 7)), float32(rng.normal(0, 3, (2, 4, 7)))
    lookback = soft_attention(alpha, energy)
    for chunk in (7, 12):
        assert_close(soft_attention(alpha, energy, chunk=chunk), lookback, 2e-6)


@pytest.mark.parametrize("chunk", [None, 3])
def test_wait_k_rows(chunk):
    """A wait-k row is exactly zero but for one entry, so nothing may take its logarithm."""
    alpha = float32(alignment.expected_alignment(decisions.wait_k(2, 5, 9)))
    energy = float32(np.random.default_rng(3).normal(0, 3, (5, 9)))

    assert_close(soft_attention(alpha, energy, chunk=chunk), double_sum(alpha, energy, chunk), 2e-6)
    assert everything_finite(gradients(alpha, energy, chunk=chunk))


@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize("scale", [30.0, 1e4])
def test_large_energies(chunk, scale):
    rng = np.random.default_rng(4)
    alpha = preserved_alignment(rng, (2, 5, 12))
    energy = float32(rng.choice([-1, -0.5, 0.25, 1], (2, 5, 12)) * scale)

    assert_close(soft_attention(alpha, energy, chunk=chunk), double_sum(alpha, energy, chunk), 3e-6)
    assert everything_finite(gradients(alpha, energy, chunk=chunk))


@pytest.mark.parametrize("chunk", [None, 2])
def test_finite_differences(x64, chunk):
    rng = np.random.default_rng(5)
    alpha = rng.uniform(0, 0.3, (2, 3, 6))
    energy, weights = rng.normal(size=(2, 3, 6)), rng.normal(size=(2, 3, 6))

    def op(a, u):
        return (weights * soft_attention(a, u, chunk=chunk)).sum()

    def loop(a, u):
        return (weights * double_sum(a, u, chunk)).sum()

    assert_gradient(lambda a: op(a, energy), lambda a: loop(a, energy), alpha)
    assert_gradient(lambda u: op(alpha, u), lambda u: loop(alpha, u), energy)


@pytest.mark.parametrize("chunk", [None, 3])
def test_padding_has_no_influence(chunk):
    rng, lengths = np.random.default_rng(6), np.array([8, 3])
    alpha = preserved_alignment(rng, (2, 4, 8), lengths)
    energy = float32(rng.normal(size=(2, 4, 8)))
    energy[1, :, 3:] = 1e4

    expected = double_sum(alpha[1, :, :3], energy[1, :, :3], chunk)
    beta = soft_attention(alpha, energy, lengths, chunk=chunk)
    assert_close(beta[1, :, :3], expected, 2e-6)
    assert not np.any(beta[1, :, 3:])
    for gradient in gradients(alpha, energy, lengths, chunk=chunk):
        assert everything_finite(gradient)
        assert not np.any(gradient[1, :, 3:])


def test_bfloat16_inputs_give_float32():
    alpha = jnp.asarray(reference.PRESERVED, jnp.bfloat16)
    energy = jnp.asarray(reference.SOFT_ENERGY, jnp.bfloat16)
    beta = soft_attention(alpha, energy)
    upcast = soft_attention(alpha.astype(jnp.float32), energy.astype(jnp.float32))
    assert beta.dtype == jnp.float32
    np.testing.assert_array_equal(beta, upcast)


def test_speech_length():
    rng = np.random.default_rng(7)
    alpha, energy = np.zeros((1, 600)), float32(rng.normal(0, 4, (1, 600)))
    alpha[0, [3, 300, 599]] = [0.2, 0.5, 0.3]
    beta = soft_attention(float32(alpha), energy)
    assert_close(beta, double_sum(alpha, energy), 3e-6)


@pytest.mark.parametrize("chunk", [None, 1])
def test_nothing_to_attend_to(chunk):
    for shape in ((3, 0), (2, 0, 4), (0, 3, 4)):
        assert soft_attention(jnp.zeros(shape), jnp.zeros(shape), chunk=chunk).shape == shape
