"""Expected alignment, its mass, delays and gradients against the recurrence as two loops."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from simuljax import ops
from tests.oracles import alignment, decisions, reference
from tests.oracles.checks import (
    CHEAP,
    assert_close,
    assert_gradient,
    everything_finite,
    finite_difference,
    float32,
    one_by_one,
    probabilities,
    problems,
)

METHODS = ["exact", "fused"]
TOLERANCE = 2e-6

# Compiling `fused` for the CPU takes seconds, so most tests share one shape.
SHAPE = (4, 10, 20)
FULL = np.full(4, 20)

align = jax.jit(ops.expected_alignment, static_argnames="method")
recurrence = jax.jit(ops.linear_recurrence, static_argnames="reverse")
both_methods = pytest.mark.parametrize("method", METHODS)


def assert_matches_oracle(p, lengths, method):
    expected = one_by_one(alignment.expected_alignment, lengths, p)
    assert_close(align(p, lengths, method=method), expected, TOLERANCE)


@pytest.mark.parametrize("method", ["exact", "fused", "auto", "closed_form"])
def test_reference_values(method):
    assert_close(align(float32(reference.P), method=method), reference.ALIGNMENT, 1e-6)


@given(problem=problems())
@CHEAP
def test_random_shapes(problem):
    rng, leading, targets, sources, lengths = problem
    p = probabilities(rng, (*leading, targets, sources))
    assert_matches_oracle(p, lengths, "exact")


@pytest.mark.slow
@given(problem=problems(targets=(1, 5), sources=(1, 9), leading=((), (2, 3))))
@settings(CHEAP, max_examples=6)
def test_random_shapes_fused(problem):
    rng, leading, targets, sources, lengths = problem
    p = probabilities(rng, (*leading, targets, sources))
    assert_matches_oracle(p, lengths, "fused")


@pytest.mark.parametrize("mean", [-2, 0])
@pytest.mark.parametrize("deviation", [1, 8])
def test_speech_sizes(mean, deviation):
    p = probabilities(np.random.default_rng(1), (200, 2000), mean, deviation)
    assert_matches_oracle(p, None, "exact")


def test_speech_sizes_auto():
    p = probabilities(np.random.default_rng(1), (2, 100, 700), 0, 8)
    assert_matches_oracle(p, np.array([700, 333]), "auto")


@pytest.mark.parametrize(("targets", "sources"), [(12, 130), (40, 64)])
def test_fused_across_blocks(targets, sources):
    p = probabilities(np.random.default_rng(2), (3, targets, sources), -1, 8)
    assert_matches_oracle(p, np.array([sources, 1, sources - 7]), "fused")


@pytest.mark.slow
@pytest.mark.parametrize(("targets", "sources"), [(64, 512), (200, 2000)])
def test_fused_speech_sizes(targets, sources):
    p = probabilities(np.random.default_rng(3), (2, targets, sources), 0, 8)
    assert_matches_oracle(p, np.array([sources, sources // 2 + 1]), "fused")


@both_methods
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1)])
def test_one_target_or_one_source(method, shape):
    assert_matches_oracle(probabilities(np.random.default_rng(4), shape), None, method)


@both_methods
def test_exactly_zero_and_exactly_one(method):
    p = np.random.default_rng(5).choice(float32([0, 1, 0.3]), SHAPE)
    p[0], p[1], p[2, 3], p[3, 4] = 0, 1, 0, 1  # all read, all write, one row of each kind
    assert_matches_oracle(p, FULL, method)


@both_methods
@pytest.mark.parametrize("convention", ["stacl", "papi"])
def test_wait_k_alignment(method, convention):
    p = [decisions.wait_k(k, *SHAPE[1:], convention) for k in (1, 3, 11, 30)]
    assert_matches_oracle(float32(p), FULL, method)


@pytest.mark.parametrize("method", [*METHODS, "auto"])
def test_ragged_lengths(method):
    p = probabilities(np.random.default_rng(6), SHAPE)
    lengths = np.array([20, 1, 9, 0])
    alpha = align(p, lengths, method=method)
    assert_close(alpha, one_by_one(alignment.expected_alignment, lengths, p), TOLERANCE)
    beyond = np.arange(20) >= lengths[:, None, None]
    assert not np.any(np.where(beyond, alpha, 0))


@both_methods
def test_lengths_equal_zeroed_probabilities(method):
    p = probabilities(np.random.default_rng(7), SHAPE)
    lengths = np.array([20, 4, 7, 19])
    zeroed = np.where(np.arange(20) < lengths[:, None, None], p, 0)
    by_lengths = align(p, lengths, method=method)
    np.testing.assert_array_equal(by_lengths, align(zeroed, FULL, method=method))


@both_methods
def test_bfloat16_is_accumulated_in_float32(method):
    p = jnp.asarray(probabilities(np.random.default_rng(8), SHAPE), jnp.bfloat16)
    alpha = align(p, FULL, method=method)
    assert alpha.dtype == jnp.float32
    np.testing.assert_array_equal(alpha, align(p.astype(jnp.float32), FULL, method=method))


@pytest.mark.parametrize(("shape", "mean", "deviation"), [((64, 64), -2, 2), ((40, 300), 0, 4)])
def test_why_the_closed_form_is_not_the_default(shape, mean, deviation):
    p = probabilities(np.random.default_rng(9), (4, *shape), mean, deviation)
    truth = one_by_one(alignment.expected_alignment, None, p)
    published = np.asarray(align(p, method="closed_form"))
    assert np.abs(published - truth).max() > 0.1
    assert_close(align(p), truth, TOLERANCE)  # which is the default
    if shape == (40, 300):  # it loses mass
        assert 0.05 < published.sum(-1).mean() < 0.5
        np.testing.assert_allclose(truth.sum(-1), 1, atol=1e-5)


@given(problem=problems(targets=(1,), leading=((), (3,), (2, 2))))
@CHEAP
def test_linear_recurrence(problem):
    rng, leading, _, sources, _ = problem
    decay = float32(rng.uniform(0, 1, (*leading, sources)))
    value = float32(rng.normal(size=(*leading, sources)))
    for reverse in (False, True):
        expected = np.zeros_like(value)
        for index in np.ndindex(*leading):
            row = alignment.linear_recurrence(decay[index], value[index], reverse)
            expected[index] = row
        assert_close(recurrence(decay, value, reverse=reverse), expected, 1e-5)


# Compiling `fused` for the CPU takes seconds, so the tests share their shapes and functions.
FEW, ALL_7, RAGGED = (3, 4, 7), np.array([7, 7, 7]), np.array([7, 1, 4])
WEIGHTS = np.random.default_rng(0).normal(size=FEW)


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
@pytest.mark.parametrize("lengths", [ALL_7, RAGGED])
def test_finite_differences(x64, method, lengths):
    p = np.random.default_rng(1).uniform(0, 1, FEW)
    check_against_differences(p, lengths, method)


@both_methods
def test_finite_differences_at_zero_and_one(x64, method):
    """The alignment is a polynomial in p, so its derivative exists at 0 and at 1 as well."""
    p = np.random.default_rng(2).choice([0, 1, 0.4], FEW)
    p[0, 2], p[1] = 0, 0
    check_against_differences(p, ALL_7, method)


@both_methods
@pytest.mark.parametrize("shape", [(1, 1), (2, 3, 2, 5)])
def test_finite_differences_of_other_shapes(x64, method, shape):
    p, weights = np.random.default_rng(3).uniform(0, 1, (2, *shape))
    check_against_differences(p, None, method, weights)


@both_methods
def test_float64_is_kept(x64, method):
    p = np.random.default_rng(4).uniform(0, 1, FEW)
    alpha = jax.jit(ops.expected_alignment, static_argnames="method")(p, method=method)
    assert alpha.dtype == jnp.float64
    expected = one_by_one(alignment.expected_alignment, None, p)
    np.testing.assert_allclose(alpha, expected, rtol=0, atol=1e-14)


@both_methods
def test_padding_gets_no_gradient(method):
    p = probabilities(np.random.default_rng(5), FEW)
    found = np.asarray(gradient(p, RAGGED, float32(WEIGHTS), method))
    assert not np.any(found[np.broadcast_to(np.arange(7) >= RAGGED[:, None, None], FEW)])
    assert everything_finite(found)


@both_methods
def test_finite_for_rows_of_zeros(method):
    p = probabilities(np.random.default_rng(6), FEW)
    p[0], p[1, 2], p[2, 0] = 0, 0, 0
    assert everything_finite(gradient(p, ALL_7, float32(WEIGHTS), method))


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


preserve_mass = jax.jit(ops.preserve_mass)
expected_delays = jax.jit(ops.expected_delays)


def test_reference_mass_and_delays():
    assert_close(preserve_mass(align(jnp.float32(reference.P))), reference.PRESERVED, 1e-6)
    alpha = align(jnp.float32(reference.P)[None], jnp.array([3]))
    assert_close(preserve_mass(alpha, jnp.array([3])), reference.PRESERVED_3[None], 1e-6)
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

    def both(align_exactly):
        value, pull = jax.vjp(align_exactly, jnp.float32(p))
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


@pytest.mark.parametrize("positions", [[4, 8, 10], [[4, 8, 10], [4, 6, 6]]])
def test_delays_at_decision_points(positions):
    """A delay counts states; decision points stand on some, the same for all or of each example."""
    alpha = float32(np.random.default_rng(3).uniform(0, 1, (2, 4, 5, 3)))
    actual, own = expected_delays(alpha, np.array(positions)), np.broadcast_to(positions, (2, 3))
    for b, h in np.ndindex(2, 4):
        assert_close(actual[b, h], alignment.expected_delays(alpha[b, h], own[b]), 1e-5)


def test_bfloat16_alignments_give_float32():
    alpha = jnp.asarray(reference.ALIGNMENT, jnp.bfloat16)
    upcast = alpha.astype(jnp.float32)
    for op in (preserve_mass, expected_delays):
        assert op(alpha).dtype == jnp.float32
        np.testing.assert_array_equal(op(alpha), op(upcast))
