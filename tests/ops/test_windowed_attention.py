"""Soft attention from decisions at window ends: the same as placing them on the states first."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax import ops

windowed_soft_attention = jax.jit(ops.windowed_soft_attention, static_argnames="step")

CASES = [(23, 7, 1.0), (23, 7, 1e4), (5, 7, 30.0), (12, 1, 1.0)]  # positions, step, scale
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
    on_states = ops.place_on_triggers(alpha, lengths, energy.shape[-1], step)
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


def test_rows_keep_their_mass():
    alpha, energy, lengths = problem(23, 7, 3.0)
    beta = windowed_soft_attention(jnp.float32(alpha), jnp.float32(energy), lengths, step=7)
    np.testing.assert_allclose(beta.sum(-1), alpha.sum(-1), rtol=1e-5)


def test_an_example_with_nothing_in_it_is_zero():
    alpha, energy, _ = problem(12, 1, 1.0)
    beta = windowed_soft_attention(0 * alpha, energy, jnp.zeros(3, int), step=1)
    assert not np.asarray(beta).any()


def test_alpha_of_another_number_of_windows_is_refused():
    alpha, energy, lengths = problem(23, 7, 1.0)
    with pytest.raises(ValueError, match="23 positions in windows of 7 need"):
        ops.windowed_soft_attention(alpha[..., :-1], energy, lengths, step=7)
