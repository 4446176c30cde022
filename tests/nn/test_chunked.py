"""Chunk-causal layers against NumPy, whole and in chunks; buffers of streams; decision points."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.model import Width
from simuljax.models.encoders import Stack
from simuljax.nn.attention import View
from simuljax.nn.chunked import (
    Chunking,
    chunk_view,
    init_left,
    join_chunks,
    rotate,
    split_chunks,
)
from simuljax.nn.monotonic import at_triggers, every_state, fixed_windows, place
from tests.helpers.models import random_parameters
from tests.oracles import chunked as oracle
from tests.oracles.checks import assert_close

WIDTH = Width(model=16, hidden=24, heads=2)
STACK = Stack(WIDTH, 2)
SIZES = [(4, 6, 2), (3, 7, 5), (1, 0, 0)]  # chunk, left, right
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, 13, 16)), jnp.float32)
LENGTHS = jnp.array([13, 6])
run = jax.jit(partial(STACK.apply, train=False, method="chunked"), static_argnums=4)


@pytest.fixture(scope="module")
def parameters():
    view = View()
    return random_parameters(STACK, jnp.zeros((1, 1, 16)), view, train=False)


def chunking(sizes):
    chunk, left, right = sizes
    return Chunking(chunk=chunk, left=left, right=right)


@partial(jax.jit, static_argnums=1)
def whole(parameters, cut):
    split = split_chunks(X, cut)
    view = chunk_view(LENGTHS, jnp.zeros(2, int), split.shape[1], cut, penalty=False)
    y, _ = run(parameters, split, init_left(2, 2, cut, WIDTH), view, cut)
    return join_chunks(y, cut)[:, :13]


def by_oracle(parameters, row, sizes):
    layer = jax.tree.map(np.float64, parameters["params"]["layer"])
    by_layer = [jax.tree.map(lambda a, k=k: a[k], layer) for k in range(2)]
    return oracle.layers(np.asarray(row), by_layer, 2, *sizes)


@pytest.mark.parametrize("sizes", SIZES)
def test_agrees_with_the_oracle(parameters, sizes):
    states = np.asarray(whole(parameters, chunking(sizes)))
    for got, row, n in zip(states, np.asarray(X), [13, 6], strict=True):
        assert_close(got[:n], by_oracle(parameters, row[:n], sizes), 1e-5)


@pytest.mark.parametrize("wrong", [(3, 6, 2), (4, 5, 2), (4, 6, 1)])
def test_the_oracle_knows_every_size(parameters, wrong):
    states = whole(parameters, chunking((4, 6, 2)))
    assert np.abs(states[0] - by_oracle(parameters, X[0], wrong)).max() > 1e-3


def test_rotation_depends_on_distances_alone():
    with pytest.raises(ValueError, match="even"):
        rotate(jnp.ones((3, 2, 5)), jnp.arange(3))
    query, key = jnp.asarray(np.random.default_rng(2).normal(size=(2, 5, 2, 8)), jnp.float32)

    @jax.jit
    def energies(shift):
        place = jnp.arange(5) + shift
        return jnp.einsum("qhd,khd->hqk", rotate(query, place), rotate(key, place))

    assert_close(energies(0), energies(37), 1e-4)
    assert np.abs(energies(0) - jnp.einsum("qhd,khd->hqk", query, key)).max() > 0.1


STATES = jnp.arange(2 * 6 * 2, dtype=jnp.float32).reshape(2, 6, 2)
SHORT = jnp.array([6, 4])
TRIGGERS = jnp.array([[0, 1, 0, 0, 1, 1], [0, 0, 1, 1, 0, 0]], bool)


@pytest.mark.parametrize("pooling", ["average", "last"])
def test_triggers_pool_what_came_since_the_one_before(pooling):
    points = at_triggers(STATES, TRIGGERS, pooling)
    np.testing.assert_array_equal(points.count, [3, 2])
    for row, ends in enumerate([[1, 4, 5], [2, 3]]):
        np.testing.assert_array_equal(points.ends[row, : len(ends)], ends)
        for window, (first, end) in enumerate(zip([0, *(e + 1 for e in ends)], ends, strict=False)):
            members = STATES[row, first : end + 1]
            expected = members.mean(0) if pooling == "average" else members[-1]
            np.testing.assert_allclose(points.keys[row, window], expected, rtol=1e-6)


@pytest.mark.parametrize(
    "points",
    [
        every_state(STATES, SHORT),
        fixed_windows(STATES, SHORT, 4, "last"),
        at_triggers(STATES, TRIGGERS, "last"),
    ],
    ids=["every", "fixed", "triggers"],
)
def test_placing_puts_each_decision_on_its_state(points):
    windows = points.ends.shape[1]
    real = np.arange(windows) < np.asarray(points.count)[:, None]
    alpha = jnp.asarray(np.random.default_rng(0).random((2, 1, 3, windows)) * real[:, None, None])
    on_states = place(alpha, points, 6)
    expected = np.zeros((2, 1, 3, 6))
    for row in range(2):
        for window in range(int(points.count[row])):
            expected[row, :, :, int(points.ends[row, window])] += alpha[row, :, :, window]
    np.testing.assert_allclose(on_states, expected, rtol=1e-6)
