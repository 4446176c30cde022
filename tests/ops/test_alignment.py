"""Expected alignment, its mass, delays and gradients against the recurrence as two loops."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

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

TOLERANCE = 2e-6
# Compiling `fused` for the CPU takes seconds, so most tests share shapes and functions.
SHAPE, FULL = (4, 10, 20), np.full(4, 20)
FEW, ALL_7, RAGGED = (3, 4, 7), np.array([7, 7, 7]), np.array([7, 1, 4])
WEIGHTS = np.random.default_rng(0).normal(size=FEW)

align = jax.jit(ops.expected_alignment, static_argnames="method")
recurrence = jax.jit(ops.linear_recurrence, static_argnames="reverse")
preserve_mass, expected_delays = jax.jit(ops.preserve_mass), jax.jit(ops.expected_delays)
both_methods = pytest.mark.parametrize("method", ["exact", "fused"])


def by_oracle(p, lengths=None):
    return one_by_one(alignment.expected_alignment, lengths, p)


def assert_matches_oracle(p, lengths, method):
    assert_close(align(p, lengths, method=method), by_oracle(p, lengths), TOLERANCE)


@pytest.mark.parametrize("method", ["exact", "fused", "auto", "closed_form"])
def test_reference_values(method):
    assert_close(align(float32(reference.P), method=method), reference.ALIGNMENT, 1e-6)


@given(problem=problems())
@CHEAP
def test_random_shapes(problem):
    """The alignment, its mass, and delays."""
    rng, leading, targets, sources, lengths = problem
    p = probabilities(rng, (*leading, targets, sources), -1)
    assert_matches_oracle(p, lengths, "exact")
    alpha = float32(by_oracle(p, lengths))
    preserved = preserve_mass(alpha, lengths)
    assert_close(preserved, one_by_one(alignment.preserve_mass, lengths, alpha), 1e-6)
    np.testing.assert_allclose(np.asarray(preserved).sum(-1), 1, atol=1e-5)
    expected = one_by_one(lambda a, _: alignment.expected_delays(a), None, alpha)
    assert_close(expected_delays(alpha), expected, 1e-5)


@pytest.mark.parametrize(
    ("shape", "method", "lengths"),
    [
        ((200, 2000), "exact", None),
        ((2, 100, 700), "auto", [700, 333]),
        ((3, 12, 130), "fused", [130, 1, 123]),  # several blocks of columns
        pytest.param((2, 200, 2000), "fused", [2000, 1001], marks=pytest.mark.slow),
    ],
)
def test_speech_sizes(shape, method, lengths):
    for mean, deviation in ((-2, 1), (0, 8)):
        p = probabilities(np.random.default_rng(1), shape, mean, deviation)
        assert_matches_oracle(p, lengths and np.array(lengths), method)


@both_methods
def test_edges(method):
    """Exactly 0 and 1; wait-k; one target or source; lengths, which are zeroed probabilities."""
    p = np.random.default_rng(5).choice(float32([0, 1, 0.3]), SHAPE)
    p[0], p[1], p[2, 3], p[3, 4] = 0, 1, 0, 1  # all read, all write, one row of each kind
    assert_matches_oracle(p, FULL, method)
    waits = [(1, "stacl"), (3, "papi"), (11, "stacl"), (30, "papi")]
    assert_matches_oracle(
        float32([decisions.wait_k(k, *SHAPE[1:], how) for k, how in waits]), FULL, method
    )
    p, lengths = probabilities(np.random.default_rng(6), SHAPE), np.array([20, 1, 9, 0])
    assert_matches_oracle(p, lengths, method)
    zeroed = np.where(np.arange(20) < lengths[:, None, None], p, 0)
    by_lengths = np.asarray(align(p, lengths, method=method))
    np.testing.assert_array_equal(by_lengths, align(zeroed, FULL, method=method))
    assert not by_lengths[np.broadcast_to(np.arange(20) >= lengths[:, None, None], SHAPE)].any()
    half = jnp.asarray(p, jnp.bfloat16)  # is accumulated in float32
    wide = align(half.astype(jnp.float32), FULL, method=method)
    np.testing.assert_array_equal(align(half, FULL, method=method), wide)
    for shape in ((1, 1), (1, 9), (9, 1)):
        assert_matches_oracle(probabilities(np.random.default_rng(4), shape), None, method)


def test_why_the_closed_form_is_not_the_default():
    """It loses mass."""
    p = probabilities(np.random.default_rng(9), (4, 40, 300), 0, 4)
    truth, published = by_oracle(p), np.asarray(align(p, method="closed_form"))
    assert np.abs(published - truth).max() > 0.1
    assert_close(align(p), truth, TOLERANCE)  # which is the default
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
            expected[index] = alignment.linear_recurrence(decay[index], value[index], reverse)
        assert_close(recurrence(decay, value, reverse=reverse), expected, 1e-5)


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
    actual = gradient(p, lengths, weights, method)
    expected = finite_difference(lambda x: (weights * by_oracle(x, lengths)).sum(), p)
    assert actual.dtype == jnp.float64
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@both_methods
def test_finite_differences(x64, method):
    """The alignment is a polynomial in p, so its derivative exists at 0 and at 1 as well."""
    random = np.random.default_rng(1)
    p = random.uniform(0, 1, FEW)
    check_against_differences(p, RAGGED, method)
    edges = random.choice([0, 1, 0.4], FEW)
    edges[0, 2], edges[1] = 0, 0
    check_against_differences(edges, ALL_7, method)
    alpha = jax.jit(ops.expected_alignment, static_argnames="method")(p, method=method)
    assert alpha.dtype == jnp.float64
    np.testing.assert_allclose(alpha, by_oracle(p), rtol=0, atol=1e-14)


@both_methods
def test_gradients_are_finite_and_none_is_of_padding(method):
    p = probabilities(np.random.default_rng(5), FEW)
    found = np.asarray(gradient(p, RAGGED, float32(WEIGHTS), method))
    assert not np.any(found[np.broadcast_to(np.arange(7) >= RAGGED[:, None, None], FEW)])
    p[0], p[1, 2], p[2, 0] = 0, 0, 0  # rows of zeros
    assert everything_finite((found, gradient(p, ALL_7, float32(WEIGHTS), method)))
    signs = np.random.default_rng(7).choice(float32([-1, 1, 0.5, 0]), (2, 6, 20))
    for scale in (8, 1e2, 1e4):
        assert everything_finite(total_delay(signs * float32(scale), method))


@pytest.mark.slow
def test_gradients_at_speech_length():
    energy = float32(np.random.default_rng(8).normal(-4, 8, (50, 2000)))
    assert everything_finite(total_delay(energy, "exact"))
    p = probabilities(np.random.default_rng(9), (2, 10, 70), -1, 4)
    weights = float32(np.random.default_rng(10).normal(size=p.shape))
    exact, fused = (gradient(p, np.array([70, 41]), weights, m) for m in ("exact", "fused"))
    np.testing.assert_allclose(fused, exact, rtol=0, atol=1e-5 * np.abs(exact).max())


def test_reference_mass_and_delays():
    assert_close(preserve_mass(align(jnp.float32(reference.P))), reference.PRESERVED, 1e-6)
    alpha = align(jnp.float32(reference.P)[None], jnp.array([3]))
    assert_close(preserve_mass(alpha, jnp.array([3])), reference.PRESERVED_3[None], 1e-6)
    assert_close(expected_delays(jnp.float32(reference.PRESERVED)), reference.DELAYS, 1e-6)
    half = jnp.asarray(reference.ALIGNMENT, jnp.bfloat16)
    for op in (preserve_mass, expected_delays):
        np.testing.assert_array_equal(op(half), op(half.astype(jnp.float32)))
        assert op(half).dtype == jnp.float32
    nothing = preserve_mass(jnp.zeros((2, 3, 4)), jnp.array([0, 4]))  # no real source, no mass
    assert_close(nothing[0], np.zeros((3, 4)), 0)
    assert_close(nothing[1].sum(-1), np.ones(3), 1e-6)


@both_methods
def test_alignment_with_its_mass_preserved(method):
    """By one kernel or by two ops, the same as preserving afterwards; gradients too."""
    rng, lengths = np.random.default_rng(5), np.array([19, 1, 8, 0])
    p, weights = probabilities(rng, (4, 5, 19), 2), float32(rng.normal(size=(4, 5, 19)))

    @functools.partial(jax.jit, static_argnums=0)
    def both(function, p):
        value, pull = jax.vjp(function, p)
        return value, pull(jnp.asarray(weights))[0]

    def afterwards(p):
        return ops.preserve_mass(ops.expected_alignment(p, lengths), lengths)

    def at_once(p):
        return ops.preserved_alignment(p, lengths, method=method)

    (actual, gradient), (expected, slope) = both(at_once, p), both(afterwards, p)
    truth = one_by_one(alignment.preserve_mass, lengths, np.float64(by_oracle(p, lengths)))
    assert_close(actual, truth, 2e-6)
    assert_close(actual, expected, 2e-6)
    assert_close(gradient, slope, 1e-5)


@pytest.mark.parametrize("lengths", [None, np.array([4, 2])])
def test_preserved_mass_gradient(x64, lengths):
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(2, 3, 4))
    assert_gradient(
        lambda a: (weights * preserve_mass(a, lengths)).sum(),
        lambda a: (weights * one_by_one(alignment.preserve_mass, lengths, a)).sum(),
        by_oracle(rng.uniform(0, 1, (2, 3, 4)), lengths),
    )


@pytest.mark.parametrize("positions", [[4, 8, 10], [[4, 8, 10], [4, 6, 6]]])
def test_delays_at_decision_points(positions):
    """A delay counts states; decision points stand on some, the same for all or of each example."""
    alpha = float32(np.random.default_rng(3).uniform(0, 1, (2, 4, 5, 3)))
    actual, own = expected_delays(alpha, np.array(positions)), np.broadcast_to(positions, (2, 3))
    for b, h in np.ndindex(2, 4):
        assert_close(actual[b, h], alignment.expected_delays(alpha[b, h], own[b]), 1e-5)
