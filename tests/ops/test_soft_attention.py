"""Expected soft attention against its double sums, and from decisions at window ends."""

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


FULL = np.array([12, 12])


@pytest.mark.parametrize("chunk", [None, 3])
def test_edges(chunk):
    """Rows of wait-k, of which no logarithm may be taken; large energies; padding."""
    rng = np.random.default_rng(4)
    waits = float32([decisions.wait_k(k, 5, 12) for k in (2, 30)])
    alpha = preserved_alignment(rng, (2, 5, 12))
    signs = rng.choice([-1, -0.5, 0.25, 1], alpha.shape)
    for some, scale in ((waits, 3), (alpha, 30), (alpha, 1e4)):
        energy = float32(scale * signs)
        beta = soft_attention(some, energy, FULL, chunk=chunk)
        assert_close(beta, double_sum(some, energy, chunk), 3e-6)
        assert everything_finite(gradients(some, energy, FULL, chunk=chunk))

    lengths = np.array([12, 3])
    alpha, energy = preserved_alignment(rng, (2, 5, 12), lengths), float32(signs)
    energy[1, :, 3:] = 1e4
    beta = soft_attention(alpha, energy, lengths, chunk=chunk)
    expected = double_sum(alpha[1, :, :3], energy[1, :, :3], chunk)
    assert_close(beta[1, :, :3], expected, 3e-6)
    assert not np.any(beta[1, :, 3:])
    for gradient in gradients(alpha, energy, lengths, chunk=chunk):
        assert everything_finite(gradient)
        assert not np.any(gradient[1, :, 3:])


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


def test_bfloat16_inputs_give_float32_and_chunks_may_be_wide():
    alpha = jnp.asarray(reference.PRESERVED, jnp.bfloat16)
    energy = jnp.asarray(reference.SOFT_ENERGY, jnp.bfloat16)
    beta = soft_attention(alpha, energy)
    upcast = soft_attention(alpha.astype(jnp.float32), energy.astype(jnp.float32))
    assert beta.dtype == jnp.float32
    np.testing.assert_array_equal(beta, upcast)
    assert_close(soft_attention(alpha, energy, chunk=beta.shape[-1]), beta, 2e-6)


@pytest.mark.parametrize("shape", [(3, 0), (2, 0, 4), (0, 3, 4)])
def test_nothing_to_attend_to(shape):
    for chunk in (None, 1):
        assert soft_attention(jnp.zeros(shape), jnp.zeros(shape), chunk=chunk).shape == shape


windowed_soft_attention = jax.jit(ops.windowed_soft_attention, static_argnames="step")

CASES = [(23, 7, 1.0), (23, 7, 1e4), (5, 7, 30.0)]  # positions, step, scale
SHAPE = (3, 2, 4)  # batch, heads, targets


def problem(size: int, step: int, scale: float):
    random = np.random.default_rng(size + step)
    lengths = np.array([size, max(1, size - 4), 2])
    windows = -(-size // step)
    real = np.arange(windows) < -(-lengths // step)[:, None]
    alpha = random.random((*SHAPE, windows)) * real[:, None, None]
    return alpha, scale * random.normal(size=(*SHAPE, size)), lengths


def short(alpha, energy, lengths, step: int):
    return ops.windowed_soft_attention(alpha, energy, lengths, step=step)


def long(alpha, energy, lengths, step: int):
    size = energy.shape[-1]
    triggers = ops.fixed_triggers(lengths, size, step)[:, None, None]
    on_states = jnp.where(triggers, jnp.repeat(alpha, step, axis=-1)[..., :size], 0)
    return ops.expected_soft_attention(on_states, energy, lengths)


@functools.partial(jax.jit, static_argnames=("attend", "step"))
def with_slopes(attend, alpha, energy, lengths, step: int):
    """beta, and how a sum over it with unlike weights depends on alpha and energies."""
    size = energy.shape[-1]
    weight = jnp.cos(jnp.arange(size)) * (jnp.arange(size) < lengths[:, None])[:, None, None]

    def total(alpha, energy):
        beta = attend(alpha, energy, lengths, step)
        return (beta * weight).sum(), beta

    slopes, beta = jax.grad(total, (0, 1), has_aux=True)(alpha, energy)
    return beta, slopes


@pytest.mark.parametrize(("size", "step", "scale"), CASES)
def test_equals_placing_first(size, step, scale, x64):
    alpha, energy, lengths = problem(size, step, scale)
    one, slopes = with_slopes(short, alpha, energy, lengths, step)
    other, expected = with_slopes(long, alpha, energy, lengths, step)
    np.testing.assert_allclose(one, other, atol=1e-12)
    for slope, true in zip(slopes, expected, strict=True):
        np.testing.assert_allclose(slope, true, atol=1e-12)


def test_an_example_with_nothing_in_it_is_zero():
    alpha, energy, _ = problem(12, 1, 1.0)
    beta = windowed_soft_attention(0 * alpha, energy, jnp.zeros(3, int), step=1)
    assert not np.asarray(beta).any()


def test_alpha_of_another_number_of_windows_is_refused():
    alpha, energy, lengths = problem(23, 7, 1.0)
    with pytest.raises(ValueError, match="23 positions in windows of 7 need"):
        ops.windowed_soft_attention(alpha[..., :-1], energy, lengths, step=7)
