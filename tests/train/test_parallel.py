"""pmap = shard_map = one device, and one device that accumulates = many (SGD hides nothing)."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh

from simuljax.batch import Batch
from simuljax.config.model import Monotonic
from simuljax.models.joint import JointModel
from simuljax.profile.measure import counted_programs
from simuljax.train.step import AXIS, CompiledUpdate, Replicas, TrainState, Update
from tests.train import small

ROOT = Path(__file__).parents[2]
STEPS = 5
WAYS = ["pmap", "shard_map"]


def joint() -> tuple[Update, list[Batch]]:
    return update(), [small.batch(rows=4, seed=seed) for seed in range(STEPS)]


def text() -> tuple[Update, list[Batch]]:
    """Half as much to compile, and as ragged."""
    return update(speech=None), [small.batch(seed=seed, seconds=0.1) for seed in range(STEPS)]


def update(**changes) -> Update:
    return Update(
        model=JointModel(small.translator(**changes), axis=AXIS),
        objective=small.objective(),
        optimiser=optax.sgd(0.5),
        statistics=small.HEARD.statistics,
    )


@pytest.fixture(
    scope="module",
    params=[text, pytest.param(joint, marks=pytest.mark.slow)],
    ids=["text", "joint"],
)
def model(request) -> tuple[Update, list[Batch]]:
    return request.param()


@pytest.fixture(scope="module")
def alone(model):
    return train(model, 1, "shard_map")


@pytest.fixture(scope="module")
def pmapped() -> tuple[CompiledUpdate, list[Batch]]:
    update, batches = text()
    return driver_of(update, 4, "pmap"), batches


def driver_of(update: Update, devices: int, way) -> CompiledUpdate:
    return CompiledUpdate(
        update, Replicas(mesh=Mesh(np.array(jax.devices()[:devices]), (AXIS,)), parallelism=way)
    )


def weights_of(driver: CompiledUpdate):
    return driver.replicas.replicate(small.weights(driver.model.objective))


def train(
    model: tuple[Update, list[Batch]], devices: int, way, accumulate: int = 1
) -> tuple[dict, list[float]]:
    update, batches = model
    return compile_update(driver_of(update, devices, way), batches, accumulate)


def compile_update(
    driver: CompiledUpdate, batches: list[Batch], accumulate: int = 1
) -> tuple[dict, list[float]]:
    state, weights, losses = driver.first(), weights_of(driver), []
    for batch in batches:
        given = state
        state, report = driver.update(state, cut(batch, accumulate), weights)
        losses.append(float(report.loss.total))
        jax.block_until_ready(state)
        assert_given_away(given)
    assert int(state.step) == STEPS
    return jax.device_get(state.params), losses


def assert_given_away(state: TrainState) -> None:
    """Its buffers hold the next state: memory for one is enough."""
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state.params))


def cut(batch: Batch, count: int) -> list[Batch]:
    """Consecutive rows, `count` times as few."""
    leaves, structure = jax.tree.flatten(batch)
    parts = zip(*(np.split(leaf, count) for leaf in leaves), strict=True)
    return [structure.unflatten(part) for part in parts]


@pytest.mark.parametrize("way", ["pmap", pytest.param("shard_map", marks=pytest.mark.slow)])
def test_four_devices_are_as_one(model, alone, way, request):
    if way == "pmap" and model[0].model.config.speech is None:
        assert_same(compile_update(*request.getfixturevalue("pmapped")), alone)
    else:
        assert_same(train(model, 4, way), alone)


@pytest.mark.slow
def test_eight_devices_are_as_one():
    """By both ways, in a process of its own; and the update exchanges its gradient and no more."""
    flags = [f for f in os.environ["XLA_FLAGS"].split() if "device_count" not in f]
    flags = " ".join([*flags, "--xla_force_host_platform_device_count=8"])
    command = [sys.executable, "-m", "tests.train.eight"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["pmap", "shard_map"]


@pytest.mark.slow
def test_accumulating_is_as_seeing_all_at_once(model, alone):
    assert_same(train(model, 1, "shard_map", accumulate=4), alone)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_what_was_compiled_ahead_is_not_compiled_again(way):
    """Two shapes; the numbers are those of a driver that compiles as it goes."""
    short, plain = text()[1][0], {"speech": None, "monotonic": Monotonic(policy="offline")}
    batches = [short, jax.tree.map(lambda x: x[:2], short)]
    ahead, later = (driver_of(update(**plain), 2, way) for _ in range(2))  # equal ones would share
    state, weights, seen = ahead.first(), weights_of(ahead), []
    ahead.compile(state, batches, weights)
    expected = later.first()
    with counted_programs() as control:
        for batch in batches:
            expected, _ = later.update(expected, [batch], weights)
    assert len(control) >= 2
    with counted_programs() as compiled:
        for batch in batches:
            state, report = ahead.update(state, [batch], weights)
            seen.append(report)
    assert compiled == [] and len(seen) == 2
    jax.tree.map(np.testing.assert_array_equal, state.params, expected.params)


def test_nothing_but_batches_is_sent_once_it_runs(pmapped):
    driver, batches = pmapped
    state, _ = driver.update(driver.first(), batches[:1], weights_of(driver))
    state, _ = driver.update(state, batches[1:2], weights_of(driver))
    on_the_host = small.weights(driver.model.objective)
    with pytest.raises(Exception, match="Disallowed"):
        driver.update(state, batches[2:3], {k: np.asarray(v) for k, v in on_the_host.items()})


@pytest.mark.slow
def test_seeds_share_what_is_compiled_and_differ_in_what_they_draw():
    noisy, batches = update(speech=None, width=dropping()), text()[1][:1]
    mesh = Mesh(np.array(jax.devices()[:1]), (AXIS,))
    seeds = [
        CompiledUpdate(noisy, Replicas(mesh=mesh, parallelism="shard_map"), seeds=[seed])
        for seed in (0, 1)
    ]
    programs = {program(driver, batches[0]) for driver in seeds}
    assert len(programs) == 1
    same = seeds[0].first()
    drawn = [
        float(
            driver.update(jax.tree.map(jnp.copy, same), batches, weights_of(driver))[1].loss.total
        )
        for driver in (seeds[0], seeds[0], seeds[1])
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def dropping():
    return replace(small.translator().width, dropout=0.5)


def program(driver: CompiledUpdate, batch: Batch) -> str:
    given = (driver.first(), driver.replicas.share(batch), weights_of(driver), driver._seed)
    whole: Any = driver._whole
    return whole.lower(*given).as_text()


@pytest.mark.parametrize("way", WAYS)
def test_rows_that_do_not_divide_are_refused(way):
    replicas = Replicas.on_all(way)
    with pytest.raises(ValueError, match="batch of 6 rows does not divide among 4 devices"):
        replicas.share(np.zeros((6, 2)))
    shared = replicas.share(np.arange(8.0))
    np.testing.assert_array_equal(np.ravel(shared), np.arange(8.0))
    assert len({shard.device for shard in shared.addressable_shards}) == 4


@pytest.mark.parametrize("way", WAYS)
def test_views_of_one_host_are_the_same(way):
    replicas = Replicas.on_all(way)
    state = replicas.replicate({"w": jnp.ones(3)})
    assert replicas.over_all_hosts(state)["w"] is state["w"]
    assert replicas.over_own_host(state)["w"] is state["w"]


def assert_same(one: tuple[dict, list[float]], other: tuple[dict, list[float]]) -> None:
    np.testing.assert_allclose(one[1], other[1], rtol=1e-5)
    assert one[1][-1] < one[1][0] - 0.05  # and something was learnt
    largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(one[0]))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * largest),
        one[0],
        other[0],
    )
