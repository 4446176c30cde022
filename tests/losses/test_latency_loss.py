"""Latency and head variance: their values, and that they move the energies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simuljax import losses, ops
from tests.oracles import latency, reference
from tests.oracles.checks import (
    CHEAP,
    assert_close,
    assert_gradient,
    assert_live,
    everything_finite,
    float32,
)

latency_loss = jax.jit(losses.latency, static_argnames=("metric", "gather", "clip"))
head_variance = jax.jit(losses.head_variance)

METRICS = ["DAL", "AL", "AP"]
GATHERS = ["metric_then_heads", "heads_then_metric", "max", "mean"]
every_metric = pytest.mark.parametrize("metric", METRICS)
every_gather = pytest.mark.parametrize("gather", GATHERS)

TWO_HEADS = jnp.float32(reference.TWO_HEADS)[None]
FOUR, THREE = jnp.array([4]), jnp.array([3])


def by_loop(delays, sources, targets, **options):
    rows = zip(delays, sources, targets, strict=True)
    return np.array([latency.latency(g, int(s), int(t), **options) for g, s, t in rows])


def random_batch(rng, batch=3, heads=4, targets=5):
    """Delays that sometimes run ahead of the oracle, so that the clip has work to do."""
    sources = rng.integers(1, 20, batch)
    delays = rng.uniform(0, sources[:, None, None], (batch, heads, targets))
    return delays, sources, rng.integers(1, targets + 1, batch)


@pytest.mark.parametrize(
    ("gather", "expected"), [("metric_then_heads", 2.116539), ("heads_then_metric", 2.117938)]
)
def test_reference_values(gather, expected):
    value, weight = latency_loss(TWO_HEADS, FOUR, THREE, gather=gather)
    assert_close(value, [expected], 2e-6)
    assert_close(head_variance(TWO_HEADS, THREE)[0], [0.532098], 1e-6)
    assert_close(weight, [1], 0)


@every_metric
@every_gather
@given(seed=st.integers(0, 999), clip=st.booleans())
@CHEAP
def test_random_batches(metric, gather, seed, clip):
    delays, sources, targets = random_batch(np.random.default_rng(seed))
    options = {"metric": metric, "gather": gather, "clip": clip}
    value, weight = latency_loss(float32(delays), sources, targets, **options)
    expected = by_loop(delays, sources, targets, **options)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)
    assert_close(weight, np.ones(3), 0)


@given(seed=st.integers(0, 999), shape=st.sampled_from([(2, 2, 1), (3, 4, 5)]))
@CHEAP
def test_variance_of_random_shapes(seed, shape):
    delays, _, targets = random_batch(np.random.default_rng(seed), *shape)
    value, weight = head_variance(float32(delays), targets)
    expected = [latency.head_variance(g, int(t)) for g, t in zip(delays, targets, strict=True)]
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)
    assert_close(weight, np.ones(shape[0]), 0)


def test_one_head_does_not_vary():
    def total(delays):
        return head_variance(delays, THREE)[0].sum()

    value, gradient = jax.value_and_grad(total)(TWO_HEADS[:, :1])
    assert value == 0
    assert not np.any(gradient)


def test_a_sentence_ahead_of_the_oracle_is_clipped():
    """Writing before reading has a negative lag; clipped, it is worth 0 and pulls nowhere."""
    ahead = jnp.zeros((1, 2, 3))

    def value(g, clip):
        return latency_loss(g, FOUR, THREE, metric="AL", clip=clip)[0].sum()

    assert value(ahead, True) == 0
    assert value(ahead, False) < 0
    assert not np.any(jax.grad(value)(ahead, True))
    assert np.any(jax.grad(value)(ahead, False))


@every_metric
@every_gather
def test_finite_differences(x64, metric, gather):
    delays, sources, targets = random_batch(np.random.default_rng(8))
    options = {"metric": metric, "gather": gather, "clip": False}
    weights = np.array([1.0, -2.0, 0.5])
    assert_gradient(
        lambda g: (weights * latency_loss(g, sources, targets, **options)[0]).sum(),
        lambda g: (weights * by_loop(g, sources, targets, **options)).sum(),
        delays,
    )


def test_finite_differences_of_the_variance(x64):
    delays, _, targets = random_batch(np.random.default_rng(9))

    def loop(delays):
        return sum(latency.head_variance(g, int(t)) for g, t in zip(delays, targets, strict=True))

    assert_gradient(lambda g: head_variance(g, targets)[0].sum(), loop, delays)


def delays_of(energy, lengths, method, detach=False):
    """energies -> probabilities -> alignment -> mass -> delays, for every head of [B,H,T,S]."""
    p = ops.selection_probability(energy, lengths)
    alpha = ops.expected_alignment(p, lengths, method=method)
    alpha = jax.lax.stop_gradient(alpha) if detach else alpha
    return ops.expected_delays(ops.preserve_mass(alpha, lengths))


def gradient_of_the_chain(term, method="exact", gather="metric_then_heads", detach=False):
    """What a latency term says to the energies of three sentences."""
    energy = float32(np.random.default_rng(10).normal(-1, 1, (3, 2, 4, 9)))
    lengths, targets = jnp.array([9, 5, 7]), jnp.array([4, 2, 3])

    def total(e):
        delays = delays_of(e, lengths, method, detach)
        if term == "variance":
            return head_variance(delays, targets)[0].sum()
        return latency_loss(delays, lengths, targets, metric=term, gather=gather)[0].sum()

    return jax.jit(jax.grad(total))(energy)


@pytest.mark.parametrize(
    ("term", "method"), [*((term, "exact") for term in (*METRICS, "variance")), ("DAL", "fused")]
)
def test_latency_moves_the_energies(term, method):
    assert_live(gradient_of_the_chain(term, method))


@pytest.mark.parametrize("term", [*METRICS, "variance"])
def test_a_detached_alignment_is_noticed(term):
    with pytest.raises(AssertionError, match="no gradient"):
        assert_live(gradient_of_the_chain(term, detach=True))


@every_metric
def test_latency_asks_for_earlier_decisions(metric):
    """Following the gradient down must raise the first energy of every head."""
    gradient = np.asarray(gradient_of_the_chain(metric, gather="mean"))
    assert np.all(gradient[:, :, 0, 0] < 0)


@every_gather
def test_equal_heads_have_finite_gradients(gather):
    delays = jnp.ones((1, 3, 4)) * jnp.array([1.0, 3, 5, 6])

    def total(delays):
        return latency_loss(delays, FOUR, FOUR, gather=gather)[0].sum()

    assert everything_finite(jax.jit(jax.grad(total))(delays))
