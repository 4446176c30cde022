"""Latency and head variance: their values, and that they move the energies."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax import losses, ops
from tests.oracles import latency, reference
from tests.oracles.checks import (
    assert_close,
    assert_live,
    everything_finite,
    float32,
)

latency_loss = jax.jit(losses.latency, static_argnames=("metric", "gather", "clip"))
head_variance = jax.jit(losses.head_variance)

METRICS = ["DAL", "AL", "AP"]
GATHERS = ["metric_then_heads", "heads_then_metric", "max", "mean"]
OPTIONS = [{"metric": m, "gather": g} for m, g in itertools.product(METRICS, GATHERS)]

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


@jax.jit
def by_every_option(delays, sources, targets):
    """[2 clipped or not, options, B]: values; and their weights."""
    found = [
        [losses.latency(delays, sources, targets, **options, clip=clip) for options in OPTIONS]
        for clip in (True, False)
    ]
    return tuple(jnp.asarray([[one[i] for one in row] for row in found]) for i in range(2))


def looped_options(*batch):
    """The same values by loops."""
    clips = (True, False)
    return np.array([[by_loop(*batch, **how, clip=clip) for how in OPTIONS] for clip in clips])


def test_random_batches():
    for seed in range(4):
        delays, *lengths = random_batch(np.random.default_rng(seed))
        value, weight = by_every_option(float32(delays), *lengths)
        np.testing.assert_allclose(value, looped_options(delays, *lengths), rtol=1e-5, atol=1e-5)
        assert_close(weight, np.ones_like(value), 0)


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


def gradients_of_the_chain(detach):
    """What every latency term says to the energies of three sentences.

    energies -> probabilities -> alignment -> mass -> delays, for every head of [B,H,T,S].
    """
    energy = float32(np.random.default_rng(10).normal(-1, 1, (3, 2, 4, 9)))
    lengths, targets = jnp.array([9, 5, 7]), jnp.array([4, 2, 3])

    def totals(e):
        alpha = ops.expected_alignment(ops.selection_probability(e, lengths), lengths)
        alpha = jax.lax.stop_gradient(alpha) if detach else alpha
        delays = ops.expected_delays(ops.preserve_mass(alpha, lengths))
        lags = [losses.latency(delays, lengths, targets, metric=m) for m in METRICS]
        return jnp.stack([each[0].sum() for each in (*lags, head_variance(delays, targets))])

    return jax.jit(jax.jacrev(totals))(energy)


def test_latency_moves_the_energies_unless_the_alignment_is_detached():
    for gradient in gradients_of_the_chain(detach=False):
        assert_live(gradient)
    for gradient in gradients_of_the_chain(detach=True):
        with pytest.raises(AssertionError, match="no gradient"):
            assert_live(gradient)


def test_equal_heads_have_finite_gradients():
    delays = jnp.ones((1, 3, 4)) * jnp.array([1.0, 3, 5, 6])

    def total(g):
        lag = losses.latency(g, FOUR, FOUR, metric="DAL", gather="max")
        return lag[0].sum() + losses.head_variance(g, FOUR)[0].sum()

    assert everything_finite(jax.jit(jax.grad(total))(delays))
