"""The losses under vmap, jit, pmap and shard_map."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from tests.losses.examples import LOSSES, batch

CHOSEN = ["cross entropy", "DAR", "CAR", "DAL"]
SHARED = PartitionSpec("data")


@pytest.fixture(scope="module", params=CHOSEN)
def loss(request):
    return LOSSES[request.param]


def arguments(loss):
    arrays, lengths = batch(loss)
    return tuple(jnp.asarray(x) for x in (*arrays, *lengths))


def differentiated(call):
    """arguments -> (values, weights), gradient of the summed values for the first argument."""

    def total(*arguments):
        value, weight = call(*arguments)
        return value.sum(), (value, weight)

    gradient = jax.grad(total, has_aux=True)
    return lambda *arguments: gradient(*arguments)[::-1]


@pytest.fixture(scope="module")
def expected(loss):
    return jax.jit(differentiated(loss.call))(*arguments(loss))


def assert_same(actual, expected):
    compare = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
    jax.tree.map(lambda x, y: compare(np.asarray(x), np.asarray(y)), actual, expected)


@pytest.mark.slow
def test_vmap(loss, expected):
    rows = tuple(x[:, None] for x in arguments(loss))
    result = jax.jit(jax.vmap(differentiated(loss.call)))(*rows)
    assert_same(jax.tree.map(lambda x: x[:, 0], result), expected)


@pytest.mark.slow
def test_pmap(loss, expected):
    rows = (x[:, None] for x in arguments(loss))
    result = jax.block_until_ready(jax.pmap(differentiated(loss.call))(*rows))
    assert_same(jax.tree.map(lambda x: np.asarray(x)[:, 0], result), expected)


def test_shard_map(loss, expected):
    mesh = Mesh(np.array(jax.devices()[:4]), ("data",))
    call = differentiated(loss.call)
    step = jax.shard_map(call, mesh=mesh, in_specs=SHARED, out_specs=SHARED)
    assert_same(jax.block_until_ready(jax.jit(step)(*arguments(loss))), expected)
