"""pmap = shard_map = one device, and one device that accumulates = many (SGD hides nothing).

`python -m tests.train.test_parallel` compares eight pretended devices with one.
"""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.audio import WaveAugment
from simuljax.batch import Batch
from simuljax.config.model import Monotonic
from simuljax.profile.measure import collectives, counted_programs
from simuljax.train.step import CompiledUpdate, Replicas, TrainState, Update
from tests.train import small
from tests.train.small import compiled, weights_of
from tests.train.states import assert_same_bits

ROOT = Path(__file__).parents[2]
STEPS = 5
WAYS = ["pmap", "shard_map"]
TEXT = small.translator(speech=None)  # half as much to compile, and as ragged


def short(rows: int = 4) -> list[Batch]:
    return [small.batch(rows, seed=seed, seconds=0.1) for seed in range(STEPS)]


def joint() -> tuple[Update, list[Batch]]:
    return small.update(small.translator()), [small.batch(seed=seed) for seed in range(STEPS)]


def text() -> tuple[Update, list[Batch]]:
    return small.update(TEXT), short()


@pytest.fixture(
    scope="module",
    params=[text, pytest.param(joint, marks=pytest.mark.slow)],
    ids=["text", "joint"],
)
def model(request) -> tuple[Update, list[Batch]]:
    return request.param()


@pytest.fixture(scope="module")
def alone(model):
    return train(compiled(model[0]), model[1])


@pytest.fixture(scope="module")
def pmapped(model) -> CompiledUpdate:
    return compiled(model[0], 4, "pmap")


def train(
    driver: CompiledUpdate, batches: list[Batch], accumulate: int = 1
) -> tuple[dict, list[float]]:
    """Parameters and losses; the buffers of a state hold the next one."""
    state, weights, losses = driver.first(), weights_of(driver), []
    for batch in batches:
        given = state
        state, report = driver.update(state, cut(batch, accumulate), weights)
        losses.append(float(report.loss.total))
        jax.block_until_ready(state)
        assert all(leaf.is_deleted() for leaf in jax.tree.leaves(given.params))
    assert int(state.step) == STEPS
    return jax.device_get(state.params), losses


def cut(batch: Batch, count: int) -> list[Batch]:
    """Consecutive rows, `count` times as few."""
    leaves, structure = jax.tree.flatten(batch)
    parts = zip(*(np.split(leaf, count) for leaf in leaves), strict=True)
    return [structure.unflatten(part) for part in parts]


def assert_same(one: tuple[dict, list[float]], other: tuple[dict, list[float]]) -> None:
    np.testing.assert_allclose(one[1], other[1], rtol=1e-5)
    assert one[1][-1] < one[1][0] - 0.05  # and something was learnt
    largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(one[0]))
    close = {"rtol": 1e-5, "atol": 1e-5 * largest}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **close), one[0], other[0])


def test_four_devices_by_pmap_are_as_one(model, alone, pmapped):
    assert_same(train(pmapped, model[1]), alone)


@pytest.mark.slow
def test_eight_devices_are_as_one():
    """By both ways, in a process of its own; and the update exchanges its gradient and no more."""
    flags = [f for f in os.environ["XLA_FLAGS"].split() if "device_count" not in f]
    flags = " ".join([*flags, "--xla_force_host_platform_device_count=8"])
    command = [sys.executable, "-m", "tests.train.test_parallel"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["pmap", "shard_map"]


def compare_eight() -> None:
    assert jax.device_count() == 8
    model, batches = small.update(TEXT), short(rows=8)
    alone = train(compiled(model), batches)
    gradient = 4e-6 * sum(leaf.size for leaf in jax.tree.leaves(alone[0]))
    for way in WAYS:
        driver = compiled(model, 8, way)
        driver.compile(driver.first(), batches[:1], weights_of(driver))
        found = collectives(next(iter(driver._compiled.values())).as_text())
        assert set(found) == {"all-reduce"}, found
        assert gradient <= found["all-reduce"]["mbyte"] < 1.01 * gradient + 1e-3, (found, gradient)
        assert_same(train(driver, batches), alone)
        print(way)


@pytest.mark.slow
def test_four_devices_by_shard_map_and_one_that_accumulates_are_as_one(model, alone):
    assert_same(train(compiled(model[0], 4), model[1]), alone)
    assert_same(train(compiled(model[0]), model[1], accumulate=4), alone)


@pytest.mark.slow
def test_what_was_compiled_ahead_is_not_compiled_again():
    """Two shapes; the numbers are those of a driver that compiles as it goes."""
    plain = dataclasses.replace(TEXT, monotonic=Monotonic(policy="offline"))
    batches = [short()[0], jax.tree.map(lambda x: x[:2], short()[0])]
    ahead, later = (compiled(small.update(plain), 2) for _ in range(2))  # equal ones share
    state, expected, weights = ahead.first(), later.first(), weights_of(ahead)
    ahead.compile(state, batches, weights)
    with counted_programs() as control:
        for batch in batches:
            expected, _ = later.update(expected, [batch], weights)
    with counted_programs() as programs:
        for batch in batches:
            state, _ = ahead.update(state, [batch], weights)
    assert programs == [] and len(control) >= 2
    jax.tree.map(np.testing.assert_array_equal, state.params, expected.params)


def test_nothing_but_batches_is_sent_once_it_runs(model, pmapped):
    state, weights = pmapped.first(), weights_of(pmapped)
    for batch in model[1][:2]:
        state, _ = pmapped.update(state, [batch], weights)
    on_the_host = {k: np.float32(v) for k, v in pmapped.per_replica.objective.weights().items()}
    with pytest.raises(Exception, match="Disallowed"):
        pmapped.update(state, model[1][2:3], on_the_host)


@pytest.mark.slow
def test_seeds_share_what_is_compiled_and_differ_in_what_they_draw():
    dropping = dataclasses.replace(TEXT.width, dropout=0.5)
    noisy, batch = small.update(dataclasses.replace(TEXT, width=dropping)), short()[0]
    one, other = (compiled(noisy, seeds=(seed,)) for seed in (0, 1))
    assert program(one, batch) == program(other, batch)
    same, drawn = one.first(), []
    for driver in (one, one, other):
        given = (jax.tree.map(jnp.copy, same), [batch], weights_of(driver))
        drawn.append(float(driver.update(*given)[1].loss.total))
    assert drawn[0] == drawn[1] != drawn[2]


def program(driver: CompiledUpdate, batch: Batch) -> str:
    given = (driver.first(), driver.replicas.share(batch), weights_of(driver), driver._seed)
    whole: Any = driver._whole
    return whole.lower(*given).as_text()


@pytest.mark.slow
def test_augmented_audio_follows_from_seed_and_step_and_the_loss_falls():
    augment = WaveAugment(reverb=0.5, rt60_s=(0.05, 0.1), babble=0.5, noise=0.5, level=0.5)
    objective = small.objective(**dataclasses.asdict(small.ALONE))
    objective = dataclasses.replace(objective, wave_augment=augment)
    speech = small.translator(text=None, speech=small.SPEECH)
    sgd = dataclasses.replace(small.SGD, learning_rate=0.3)
    driver = compiled(small.update(speech, sgd, objective=objective))
    batch, first, weights = small.batch(), driver.first(), weights_of(driver)

    def after(state: TrainState, by: CompiledUpdate = driver):
        return by.update(jax.tree.map(jnp.copy, state), [batch], weights)

    state, report = after(first)
    assert bool(report.finite)
    assert_same_bits(after(first)[0].params, state.params)
    losses = [float(report.loss.total)]
    later = dataclasses.replace(first, step=first.step + 1)
    reseeded = compiled(driver.per_replica, seeds=(1,))
    for other in (after(later), after(first, reseeded)):
        assert float(other[1].loss.total) != losses[0]
    for _ in range(5):
        state, report = after(state)
        losses.append(float(report.loss.total))
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_divided_and_views_of_one_host_are_the_same(way):
    replicas = Replicas.on_all(way)
    with pytest.raises(ValueError, match="batch of 6 rows does not divide among 4 devices"):
        replicas.share(np.zeros((6, 2)))
    shared = replicas.share(np.arange(8.0))
    np.testing.assert_array_equal(np.ravel(shared), np.arange(8.0))
    assert len({shard.device for shard in shared.addressable_shards}) == 4
    state = replicas.replicate({"w": jnp.ones(3)})
    assert replicas.over_all_hosts(state)["w"] is state["w"]
    assert replicas.over_own_host(state)["w"] is state["w"]


if __name__ == "__main__":
    compare_eight()
