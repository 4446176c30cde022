"""The Conformer's layer is its equations, and holds no [S, S, D] in memory."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.model import Width
from simuljax.nn.conformer import ConformerLayer, RelativeAttention, by_key, depthwise, surroundings
from tests.helpers import models
from tests.oracles import conformer as oracle
from tests.oracles.checks import assert_gradient, float32

WIDTH = Width(model=8, hidden=12, heads=2, dropout=0.0)
SIZE, KERNEL = 6, 5
quick_jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def drawn(shape, seed=0):
    return float32(np.random.default_rng(seed).normal(size=shape))


def variables_of(layer, *given):
    made = jax.eval_shape(lambda: layer.init(jax.random.key(0), *given, train=False))
    return models.drawn(made, 0.5)


def test_a_layer_is_its_equations_for_each_sequence():
    x, lengths = drawn((2, SIZE, WIDTH.model)), jnp.array([SIZE, 4])
    around = surroundings(lengths, SIZE, WIDTH.model)
    layer = ConformerLayer(WIDTH, KERNEL)
    variables = variables_of(layer, x, around)
    found = np.asarray(quick_jit(partial(layer.apply, train=False))(variables, x, around))
    for row, length in enumerate([SIZE, 4]):
        given = (variables["params"], variables["statistics"])
        expected = oracle.layer(x[row, :length], *given, WIDTH.heads)
        np.testing.assert_allclose(found[row, :length], expected, atol=2e-5)


def test_the_key_at_a_distance():
    size = 5
    energy = np.arange(2 * size * (2 * size - 1)).reshape(2, size, -1)
    shifted = by_key(jnp.asarray(energy))
    distances = np.arange(size - 1, -size, -1)
    for b, i, j in np.ndindex(2, size, size):
        (place,) = np.flatnonzero(distances == i - j)
        assert shifted[b, i, j] == energy[b, i, place]


@pytest.mark.parametrize("taps", [1, 5, 13])  # fewer than states, and more
def test_a_depthwise_convolution(taps):
    x, kernel = drawn((2, SIZE, 3)), drawn((taps, 3), seed=1)
    expected = [oracle.depthwise(row, kernel) for row in x]
    np.testing.assert_allclose(jax.jit(depthwise)(x, kernel), expected, atol=1e-5)


def test_gradients_of_the_depthwise_convolution(x64):
    x, taps, seen = drawn((1, SIZE, 2)), drawn((KERNEL, 2), seed=1), drawn((SIZE, 2), seed=2)
    assert_gradient(
        lambda x: jnp.sum(seen * depthwise(x, jnp.asarray(taps, x.dtype))[0]),
        lambda x: np.sum(seen * oracle.depthwise(x[0], taps)),
        x,
    )
    assert_gradient(
        lambda taps: jnp.sum(seen * depthwise(jnp.asarray(x, taps.dtype), taps)[0]),
        lambda taps: np.sum(seen * oracle.depthwise(x[0], taps)),
        taps,
    )


def largest(jaxpr) -> int:
    """Numbers in the largest array that a program makes."""
    inner = [v.jaxpr for e in jaxpr.eqns for v in e.params.values() if hasattr(v, "jaxpr")]
    own = [v.aval.size for e in jaxpr.eqns for v in e.outvars]
    return max([*own, *map(largest, inner)])


def test_no_array_is_as_large_as_all_pairs_of_vectors():
    size, attention = 40, RelativeAttention(WIDTH)
    x, around = drawn((1, size, 8)), surroundings(jnp.array([size]), size, 8)
    params = models.random_parameters(attention, x, around)

    def loss(params, x):
        out = attention.apply(params, x, around)
        return jnp.sum(jnp.asarray(out))

    program = jax.make_jaxpr(jax.grad(loss, argnums=(0, 1)))(params, x)
    assert largest(program.jaxpr) <= WIDTH.heads * size * 2 * size < size * size * WIDTH.model


def test_the_way_back_of_the_convolution_keeps_one_array():
    x, taps = jnp.ones((1, 40, 8), jnp.bfloat16), jnp.ones((31, 8))
    _, back = jax.vjp(depthwise, x, taps)
    kept = sum(leaf.nbytes for leaf in jax.tree.leaves(back) if isinstance(leaf, jax.Array))
    assert kept <= x.nbytes + taps.nbytes
