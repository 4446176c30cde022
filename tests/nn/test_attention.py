"""Attention over both axes of a spectrogram, and additive attention, against loops."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.model import Width
from simuljax.nn.attention import (
    AdditiveAttention,
    Attention2D,
    Seen,
    attend_over_frequency,
    attend_over_time,
)
from tests.helpers.models import drawn, random_parameters
from tests.oracles import recurrent
from tests.oracles import spectrogram as oracle
from tests.oracles.checks import assert_live, everything_finite

LENGTHS = np.array([5, 3, 1])
WIDTH = Width(model=4, hidden=4, heads=1)
WAYS = [(attend_over_time, oracle.over_time), (attend_over_frequency, oracle.over_frequency)]


def images(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@cache
def block_and_variables():
    """A block, random parameters and statistics, and images for it."""
    block, x = Attention2D(WIDTH, heads=2), images(3, 5, 4, 3)
    made = jax.eval_shape(lambda: block.init(jax.random.key(0), x, LENGTHS, train=False))
    return block, drawn(made, 0.5), x


@pytest.mark.parametrize(("attend", "reference"), WAYS)
def test_attention_is_that_of_the_real_image(attend, reference):
    query, key, value = images(3, 3, 5, 4, 2)
    actual = jax.jit(attend)(query, key, value, jnp.asarray(LENGTHS))
    for row, length in enumerate(LENGTHS):
        for head in range(2):
            expected = reference(*(x[row, :length, :, head] for x in (query, key, value)))
            np.testing.assert_allclose(actual[row, :length, :, head], expected, atol=1e-5)


@jax.jit
def training(lengths):
    """What a training step finds: the output, new statistics, and gradients of both inputs."""
    block, variables, x = block_and_variables()

    def loss(params, x):
        given = variables | {"params": params}
        y, new = block.apply(given, x, lengths, train=True, mutable=["statistics"])
        return jnp.sum(jnp.sin(y)), (y, new)

    gradients, (y, new) = jax.grad(loss, (0, 1), has_aux=True)(variables["params"], x)
    return y, new, gradients


def test_training_learns_from_every_parameter_and_every_row():
    _, _, (of_params, of_x) = training(LENGTHS)
    for gradient in jax.tree.leaves(of_params):
        assert_live(gradient[None])
    assert_live(of_x)
    assert not any(np.abs(row[n:]).max(initial=0) for row, n in zip(of_x, LENGTHS, strict=True))


def test_a_row_of_no_length_is_harmless():
    found = training(np.array([5, 0, 1]))
    assert everything_finite(found)
    np.testing.assert_array_equal(found[0][1], 0)


COUNTS, STATES = [5, 2, 0], 5
ADDITIVE = Width(model=6, hidden=4, heads=1, dropout=0.0)


def attended(module: AdditiveAttention, query, states, lengths):
    return module(query, Seen(key=module.key(states), value=states, lengths=lengths))


def test_sees_what_is_real_as_loops_do():
    random = np.random.default_rng(0)
    query, states = (random.normal(size=s).astype(np.float32) for s in ((3, 4), (3, STATES, 6)))
    states[1, 2:] = 1e3
    given, module = (query, states, jnp.array(COUNTS)), AdditiveAttention(ADDITIVE)
    variables = random_parameters(module, *given, method=attended)
    context, weight = jax.jit(lambda *a: module.apply(variables, *a, method=attended))(*given)
    for row, length in enumerate(COUNTS[:2]):
        known = states[row, :length].astype(np.float64)
        values, weights = recurrent.attend(
            query[row].astype(np.float64), known, variables["params"]
        )
        np.testing.assert_allclose(context[row], values, atol=1e-5)
        np.testing.assert_allclose(weight[row, :length], weights, atol=1e-6)
        assert not weight[row, length:].any()
    assert not context[2].any() and not weight[2].any()
