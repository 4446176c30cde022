"""pmap = shard_map = one device, and one device that accumulates = many (SGD hides nothing)."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.audio import WaveAugment
from simuljax.batch import Batch
from simuljax.config.model import Monotonic, SpeechConfig
from simuljax.profile.measure import collectives, counted_programs
from simuljax.train.step import CompiledUpdate, Replicas, TrainState, Update
from tests.train import small
from tests.train.overfitting import compiling_quickly
from tests.train.small import compiled, weights_of
from tests.train.states import assert_same_bits

STEPS = 5
WAYS = ["pmap", "shard_map"]
HARD = Monotonic(attention="hard", noise=0.0, bias=0.0)  # compiles in the least time
TEXT = small.translator(speech=None)  # half as much to compile, and as ragged


@pytest.fixture(scope="module", autouse=True)
def quickly() -> Iterator[None]:
    with compiling_quickly():
        yield


@pytest.fixture(scope="module")
def model() -> tuple[Update, list[Batch]]:
    return small.update(TEXT), [small.batch(seed=seed, seconds=0.1) for seed in range(STEPS)]


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


def test_nothing_but_batches_is_sent_once_it_runs(model, pmapped):
    state, weights = pmapped.first(), weights_of(pmapped)
    for batch in model[1][:2]:
        state, _ = pmapped.update(state, [batch], weights)
    on_the_host = {k: np.float32(v) for k, v in pmapped.per_replica.objective.weights().items()}
    with pytest.raises(Exception, match="Disallowed"):
        pmapped.update(state, model[1][2:3], on_the_host)


@pytest.mark.slow
def test_four_devices_by_shard_map_and_one_that_accumulates_are_as_one(model, alone):
    """And what was compiled ahead exchanges its gradient, no more, and is not compiled again."""
    driver = compiled(model[0], 4)
    state, weights = driver.first(), weights_of(driver)
    driver.compile(model[1][:1], weights, model[1][:1])
    found = collectives(next(iter(driver._compiled.values())).as_text())
    gradient = 4e-6 * sum(leaf.size for leaf in jax.tree.leaves(alone[0]))
    assert set(found) == {"all-reduce"}, found
    assert gradient <= found["all-reduce"]["mbyte"] < 1.01 * gradient + 1e-3, (found, gradient)
    with counted_programs() as programs:
        driver.validate(state, model[1][:1])
        driver.update(state, model[1][:1], weights)
    assert programs == []
    assert_same(train(driver, model[1]), alone)
    with counted_programs() as programs:
        accumulated = train(compiled(model[0]), model[1], accumulate=4)
    assert programs != []  # it does notice
    assert_same(accumulated, alone)


@pytest.mark.slow
def test_four_devices_are_as_one_where_rows_lack_speech_or_text():
    """The joint model: its terms have denominators of their own, unlike on every device."""
    least = {"speech": SpeechConfig(layers=1, shared=1, channels=16), "monotonic": HARD}
    update = small.update(small.translator(**least))
    batches = [small.batch(seed=seed, seconds=0.1) for seed in range(STEPS)]
    one, four = (train(compiled(update, devices), batches) for devices in (1, 4))
    assert_same(four, one)


def program(driver: CompiledUpdate, batch: Batch) -> str:
    given = (driver.first(), driver.replicas.share(batch), weights_of(driver), driver._seed)
    whole: Any = driver._whole
    return whole.lower(*given).as_text()


@pytest.mark.slow
def test_augmented_audio_follows_from_seed_and_step_and_the_loss_falls():
    augment = WaveAugment(reverb=0.5, rt60_s=(0.05, 0.1), babble=0.5, noise=0.5, level=0.5)
    objective = small.objective(**dataclasses.asdict(small.ALONE))
    objective = dataclasses.replace(objective, wave_augment=augment)
    speech = small.translator(text=None, speech=small.SPEECH, monotonic=HARD)
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
    assert program(driver, batch) == program(reseeded, batch)  # seeds share what is compiled
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
