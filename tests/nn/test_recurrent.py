"""Both directions in one loop are as two LSTMs; the second begins where a row ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.nn.recurrent import BidirectionalLSTM, remembering
from tests.helpers.models import random_parameters
from tests.oracles import recurrent as oracle

LENGTHS, STEPS, DIMS, UNITS = [7, 3, 0, 1], 7, 5, 4


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).normal(size=(len(LENGTHS), STEPS, DIMS)).astype(np.float32)


@pytest.fixture(scope="module")
def variables(x):
    return random_parameters(BidirectionalLSTM(UNITS), x, jnp.array(LENGTHS))


@pytest.fixture(scope="module")
def run(variables):
    def run(x, lengths):
        return BidirectionalLSTM(UNITS).apply(variables, x, lengths)

    return jax.jit(run)


def test_is_two_lstms_over_what_is_real(x, variables, run):
    states = np.asarray(run(x, jnp.array(LENGTHS)))
    for row, length, found in zip(x, LENGTHS, states, strict=True):
        expected = oracle.bidirectional(row[:length].astype(np.float64), variables["params"])
        np.testing.assert_allclose(found[:length], expected, atol=1e-6)
        assert not found[length:].any()


def test_a_backward_pass_over_padding_would_be_noticed(x, variables, run):
    found = np.asarray(run(x, jnp.array(LENGTHS)))[1]
    padded = np.where(np.arange(STEPS)[:, None] < 3, x[1], 0).astype(np.float64)
    careless = oracle.bidirectional(padded, variables["params"])
    np.testing.assert_allclose(found[:3, :UNITS], careless[:3, :UNITS], atol=1e-6)
    assert np.abs(found[:3, UNITS:] - careless[:3, UNITS:]).max() > 1e-2


def test_gradients_stop_at_the_end_of_a_row(x, run):
    gradient = np.asarray(jax.grad(lambda x: run(x, jnp.array(LENGTHS)).sum())(jnp.asarray(x)))
    heard = np.arange(STEPS) < np.array(LENGTHS)[:, None]
    assert np.isfinite(gradient).all()
    assert (np.abs(gradient).max(-1) > 0).tolist() == heard.tolist()


def test_a_new_cell_keeps_what_it_has():
    bias = remembering(jax.random.key(0), (8,))
    assert bias.tolist() == [0, 0, 1, 1, 0, 0, 0, 0]


def test_half_precision_keeps_the_sums_of_long_sequences(variables):
    """1000 steps in bfloat16 stay near those in float32: cells are not rounded to 8 bits."""
    x = np.random.default_rng(1).normal(size=(1, 1000, DIMS)).astype(np.float32)
    lengths = jnp.array([1000])
    exact, half = (
        np.asarray(BidirectionalLSTM(UNITS, dtype).apply(variables, x, lengths))
        for dtype in ("float32", "bfloat16")
    )
    assert half.dtype == jnp.bfloat16
    assert np.abs(half.astype(np.float32) - exact).max() < 0.05
