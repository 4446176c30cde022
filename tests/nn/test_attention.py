"""Learning through attention over both axes of a spectrogram; `test_encoders` has its values."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.config.model import Width
from simuljax.nn.attention import (
    Attention2D,
)
from tests.helpers.models import drawn
from tests.oracles.checks import assert_live, everything_finite

LENGTHS = np.array([5, 3, 1])
WIDTH = Width(model=4, hidden=4, heads=1)


def images(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@cache
def block_and_variables():
    """A block, random parameters and statistics, and images for it."""
    block, x = Attention2D(WIDTH, heads=2), images(3, 5, 4, 3)
    made = jax.eval_shape(lambda: block.init(jax.random.key(0), x, LENGTHS, train=False))
    return block, drawn(made, 0.5), x


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
