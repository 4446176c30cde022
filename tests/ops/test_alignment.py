"""Expected alignment against the recurrence written as two loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from simuljax import ops
from tests.oracles import alignment, decisions, reference
from tests.oracles.checks import CHEAP, assert_close, float32, one_by_one, probabilities, problems

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


def test_exact_is_the_default():
    p = probabilities(np.random.default_rng(0), SHAPE, deviation=4)
    np.testing.assert_array_equal(align(p, FULL), align(p, FULL, method="exact"))


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
    assert_close(align(p), truth, TOLERANCE)


def test_the_closed_form_loses_mass():
    p = probabilities(np.random.default_rng(10), (4, 40, 300), 0, 4)
    kept = np.asarray(align(p, method="closed_form")).sum(-1).mean()
    assert 0.05 < kept < 0.5
    np.testing.assert_allclose(np.asarray(align(p)).sum(-1), 1, atol=1e-5)


def test_auto_says_what_it_chose_and_why():
    choice = ops.explain_method("auto", (8, 16, 32), jnp.float32)
    assert choice.method in ("exact", "fused")
    assert choice.reason
    if jax.default_backend() == "cpu":
        assert choice.method == "exact"


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
