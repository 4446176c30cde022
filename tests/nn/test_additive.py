"""Additive attention against loops."""

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.config.model import Width
from simuljax.nn.attention import AdditiveAttention, Seen
from tests.oracles import recurrent as oracle
from tests.random_parameters import random_parameters

LENGTHS, STATES = [5, 2, 0], 5
WIDTH = Width(model=6, hidden=4, heads=1, dropout=0.0)


def attended(module: AdditiveAttention, query, states, lengths):
    return module(query, Seen(key=module.key(states), value=states, lengths=lengths))


def test_sees_what_is_real_as_loops_do():
    random = np.random.default_rng(0)
    query, states = (random.normal(size=s).astype(np.float32) for s in ((3, 4), (3, STATES, 6)))
    states[1, 2:] = 1e3
    given, module = (query, states, jnp.array(LENGTHS)), AdditiveAttention(WIDTH)
    variables = random_parameters(module, *given, method=attended)
    context, weight = jax.jit(lambda *a: module.apply(variables, *a, method=attended))(*given)
    for row, length in enumerate(LENGTHS[:2]):
        known = states[row, :length].astype(np.float64)
        values, weights = oracle.attend(query[row].astype(np.float64), known, variables["params"])
        np.testing.assert_allclose(context[row], values, atol=1e-5)
        np.testing.assert_allclose(weight[row, :length], weights, atol=1e-6)
        assert not weight[row, length:].any()
    assert not context[2].any() and not weight[2].any()
