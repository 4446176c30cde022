"""pmap = shard_map = one device, and one device that accumulates = many (SGD hides nothing)."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh

from simuljax.batch import Batch
from simuljax.models.initialise import initialise
from simuljax.models.translator import Translator
from simuljax.train.drive import Driver
from simuljax.train.parallel import Replicas
from simuljax.train.step import AXIS, TrainState, Update
from tests.train import small

STEPS = 5
BATCHES = [small.batch(rows=4, seed=seed) for seed in range(STEPS)]


@pytest.fixture(scope="module")
def update() -> Update:
    return Update(
        model=Translator(small.translator(), axis=AXIS),
        objective=small.objective(),
        optimiser=optax.sgd(0.5),
        statistics=small.HEARD.statistics,
    )


def train(update: Update, devices: int, way, accumulate: int = 1) -> tuple[dict, list[float]]:
    replicas = Replicas(mesh=Mesh(np.array(jax.devices()[:devices]), (AXIS,)), way=way)
    driver = Driver(update, replicas)
    params, statistics = initialise(update.model, jax.random.key(0, impl="rbg"))
    state = replicas.replicate(
        TrainState(
            step=jnp.int32(0),
            params=params,
            statistics=statistics,
            optimiser=update.optimiser.init(params),
        )
    )
    weights, losses = replicas.replicate(small.weights(update.objective)), []
    for batch in BATCHES:
        state, report = driver.update(state, cut(batch, accumulate), weights)
        losses.append(float(report.loss.total))
        jax.block_until_ready(state)
    assert int(state.step) == STEPS
    return jax.device_get(state.params), losses


def cut(batch: Batch, count: int) -> list[Batch]:
    """Consecutive rows, `count` times as few."""
    leaves, structure = jax.tree.flatten(batch)
    parts = zip(*(np.split(leaf, count) for leaf in leaves), strict=True)
    return [structure.unflatten(part) for part in parts]


@pytest.fixture(scope="module")
def alone(update):
    return train(update, 1, "shard_map")


@pytest.mark.parametrize("way", ["pmap", pytest.param("shard_map", marks=pytest.mark.slow)])
def test_four_devices_are_as_one(update, alone, way):
    assert_same(train(update, 4, way), alone)


@pytest.mark.slow
def test_accumulating_is_as_seeing_all_at_once(update, alone):
    assert_same(train(update, 1, "shard_map", accumulate=4), alone)


def assert_same(one: tuple[dict, list[float]], other: tuple[dict, list[float]]) -> None:
    np.testing.assert_allclose(one[1], other[1], rtol=1e-5)
    assert one[1][-1] < one[1][0] - 0.1  # and something was learnt
    largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(one[0]))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * largest),
        one[0],
        other[0],
    )
