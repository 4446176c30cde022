"""Mass preservation and expected delays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from simuljax import ops
from tests.oracles import alignment, reference
from tests.oracles.checks import (
    CHEAP,
    assert_close,
    assert_gradient,
    float32,
    one_by_one,
    probabilities,
    problems,
)

align = jax.jit(ops.expected_alignment)
preserve_mass = jax.jit(ops.preserve_mass)
expected_delays = jax.jit(ops.expected_delays)


def test_reference_rows():
    alpha = align(jnp.float32(reference.P))
    assert_close(preserve_mass(alpha), reference.PRESERVED, 1e-6)


def test_reference_rows_of_a_shorter_source():
    alpha = align(jnp.float32(reference.P)[None], jnp.array([3]))
    assert_close(preserve_mass(alpha, jnp.array([3])), reference.PRESERVED_3[None], 1e-6)


def test_reference_delays():
    assert_close(expected_delays(jnp.float32(reference.PRESERVED)), reference.DELAYS, 1e-6)


@given(problem=problems())
@CHEAP
def test_preserved_mass_of_random_shapes(problem):
    rng, leading, targets, sources, lengths = problem
    p = probabilities(rng, (*leading, targets, sources), -1)
    alpha = float32(one_by_one(alignment.expected_alignment, lengths, p))
    preserved = preserve_mass(alpha, lengths)
    assert_close(preserved, one_by_one(alignment.preserve_mass, lengths, alpha), 1e-6)
    np.testing.assert_allclose(np.asarray(preserved).sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize("method", ["exact", "fused"])
def test_alignment_with_its_mass_preserved(method):
    """By one kernel or by two ops, the same as preserving afterwards; gradients too."""
    rng, lengths = np.random.default_rng(5), np.array([19, 1, 8, 0])
    p, weights = probabilities(rng, (4, 5, 19), 2), float32(rng.normal(size=(4, 5, 19)))

    def both(align):
        value, pull = jax.vjp(align, jnp.float32(p))
        return value, pull(jnp.asarray(weights))[0]

    def afterwards(p):
        return ops.preserve_mass(ops.expected_alignment(p, lengths), lengths)

    actual, gradient = both(lambda p: ops.preserved_alignment(p, lengths, method=method))
    expected, slope = both(afterwards)
    truth = one_by_one(
        alignment.preserve_mass,
        lengths,
        np.float64(one_by_one(alignment.expected_alignment, lengths, p)),
    )
    assert_close(actual, truth, 2e-6)
    assert_close(actual, expected, 2e-6)
    assert_close(gradient, slope, 1e-5)


def test_no_real_source_keeps_no_mass():
    preserved = preserve_mass(jnp.zeros((2, 3, 4)), jnp.array([0, 4]))
    assert_close(preserved[0], np.zeros((3, 4)), 0)
    assert_close(preserved[1].sum(-1), np.ones(3), 1e-6)


@pytest.mark.parametrize("lengths", [None, np.array([4, 2])])
def test_preserved_mass_gradient(x64, lengths):
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(2, 3, 4))
    assert_gradient(
        lambda a: (weights * preserve_mass(a, lengths)).sum(),
        lambda a: (weights * one_by_one(alignment.preserve_mass, lengths, a)).sum(),
        one_by_one(alignment.expected_alignment, lengths, rng.uniform(0, 1, (2, 3, 4))),
    )


def test_preserved_mass_gives_padding_no_gradient():
    lengths = np.array([5, 2])
    alpha = probabilities(np.random.default_rng(1), (2, 3, 5))
    alpha = np.where(np.arange(5) < lengths[:, None, None], alpha / 5, 0)
    gradient = jax.grad(lambda a: (preserve_mass(a, lengths) ** 2).sum())(alpha)
    assert not np.any(gradient[1, :, 2:])


@given(problem=problems())
@CHEAP
def test_delays_of_random_shapes(problem):
    rng, leading, targets, sources, _ = problem
    alpha = float32(rng.uniform(0, 1 / sources, (*leading, targets, sources)))
    expected = one_by_one(lambda a, _: alignment.expected_delays(a), None, alpha)
    assert_close(expected_delays(alpha), expected, 1e-5)


def test_delays_at_decision_points():
    """Decision points stand on encoder states 4, 8 and 10, and a delay counts states."""
    alpha = float32(np.random.default_rng(2).uniform(0, 1, (2, 5, 3)))
    positions = np.array([4, 8, 10])
    expected = one_by_one(lambda a, _: alignment.expected_delays(a, positions), None, alpha)
    assert_close(expected_delays(alpha, positions), expected, 1e-5)


def test_delays_at_positions_of_each_example():
    alpha = float32(np.random.default_rng(3).uniform(0, 1, (2, 4, 5, 3)))
    positions = np.array([[4, 8, 10], [4, 6, 6]])
    actual = expected_delays(alpha, positions)
    for b, h in np.ndindex(2, 4):
        assert_close(actual[b, h], alignment.expected_delays(alpha[b, h], positions[b]), 1e-5)


def test_bfloat16_alignments_give_float32():
    alpha = jnp.asarray(reference.ALIGNMENT, jnp.bfloat16)
    upcast = alpha.astype(jnp.float32)
    for op in (preserve_mass, expected_delays):
        assert op(alpha).dtype == jnp.float32
        np.testing.assert_array_equal(op(alpha), op(upcast))
