"""Label-smoothed cross-entropy and online distillation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simuljax import losses
from tests.oracles import token_losses
from tests.oracles.checks import CHEAP, assert_close, assert_gradient, float32

cross_entropy = jax.jit(losses.label_smoothed_cross_entropy, static_argnames="smoothing")
online_distillation = jax.jit(losses.online_distillation)

shapes = st.sampled_from([(1, 1, 2), (3, 4, 7), (2, 6, 50)])


def test_reference_value():
    logits = jnp.log(jnp.array([[[0.7, 0.1, 0.1, 0.1]]]))
    value, weight = cross_entropy(logits, jnp.array([[0]]), jnp.array([1]))
    assert_close(value, [0.502618], 1e-6)
    assert_close(weight, [1], 0)


@given(seed=st.integers(0, 999), shape=shapes, smoothing=st.sampled_from([0.0, 0.1, 0.3]))
@CHEAP
def test_cross_entropy(seed, shape, smoothing):
    rng = np.random.default_rng(seed)
    batch, targets, words = shape
    logits = float32(rng.normal(0, 3, shape))
    tokens = rng.integers(0, words, (batch, targets))
    lengths = rng.integers(0, targets + 1, batch)
    value, weight = cross_entropy(
        logits, jnp.array(tokens), jnp.array(lengths), smoothing=smoothing
    )
    rows = zip(logits, tokens, lengths, strict=True)
    expected = [token_losses.label_smoothed_cross_entropy(*row, smoothing) for row in rows]
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(weight, lengths)


@given(seed=st.integers(0, 999), shape=shapes)
@CHEAP
def test_distillation(seed, shape):
    rng = np.random.default_rng(seed)
    student, teacher = float32(rng.normal(0, 3, (2, *shape)))
    lengths = rng.integers(0, shape[1] + 1, shape[0])
    value, weight = online_distillation(student, teacher, jnp.array(lengths))
    rows = zip(student, teacher, lengths, strict=True)
    expected = [token_losses.online_distillation(*row) for row in rows]
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(weight, lengths)


def test_the_teacher_is_detached():
    rng = np.random.default_rng(0)
    student, teacher = float32(rng.normal(size=(2, 3, 4, 5)))

    def total(s, t):
        return online_distillation(s, t, jnp.array([4, 2, 1]))[0].sum()

    to_student, to_teacher = jax.grad(total, (0, 1))(student, teacher)
    assert np.any(to_student)
    assert not np.any(to_teacher)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_finite_differences_of_cross_entropy(x64, smoothing):
    rng = np.random.default_rng(2)
    tokens, lengths = rng.integers(0, 5, (2, 3)), np.array([3, 2])

    def total(logits):
        value, _ = cross_entropy(logits, tokens, lengths, smoothing=smoothing)
        return value.sum()

    def loop(logits):
        rows = zip(logits, tokens, lengths, strict=True)
        return sum(token_losses.label_smoothed_cross_entropy(*row, smoothing) for row in rows)

    assert_gradient(total, loop, rng.normal(size=(2, 3, 5)))


def test_finite_differences_of_distillation(x64):
    student, teacher = np.random.default_rng(3).normal(size=(2, 2, 3, 5))
    lengths = np.array([3, 2])

    def total(s):
        return online_distillation(s, jnp.asarray(teacher), lengths)[0].sum()

    def loop(s):
        rows = zip(s, teacher, lengths, strict=True)
        return sum(token_losses.online_distillation(*row) for row in rows)

    assert_gradient(total, loop, student)
