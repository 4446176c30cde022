"""A run: what it records, and that an interruption leaves no trace in it."""

import dataclasses
import os
import signal

import jax
import numpy as np
import pytest

from simuljax.train.loop import Data, Training, fit
from simuljax.train.metrics import read_metrics
from simuljax.train.optimiser import Optimiser
from tests.train import small

BATCHES = [small.batch(rows=4, seed=seed) for seed in range(3)]
TRAINING = Training(
    updates=12,
    optimiser=Optimiser(learning_rate=5e-3, warmup=2),
    objective=small.objective(),
    log_every=2,
    validate_every=4,
    way="shard_map",
)


def data(batches=None) -> Data:
    return Data(
        train=small.Cycle(batches or BATCHES),
        valid=lambda: BATCHES[:1],
        steps_per_epoch=3,
        heard=small.HEARD,
    )


def assert_equal(one, other) -> None:
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(one), jax.device_get(other))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run without interruption."""
    run = tmp_path_factory.mktemp("whole")
    return run, fit(run, small.translator(), TRAINING, data())


def test_every_term_is_recorded(whole):
    run, state = whole
    lines = read_metrics(run)
    train = [line for line in lines if line["split"] == "train"]
    valid = [line for line in lines if line["split"] == "valid"]
    assert int(state.step) == 12
    assert [line["step"] for line in train] == [2, 4, 6, 8, 10, 12]
    assert [line["step"] for line in valid] == [4, 8, 12]
    terms = {"st_nll", "mt_nll", "kd", "car", "dar", "st_latency", "mt_latency", "st_variance"}
    assert terms < train[0]["values"].keys()
    assert {f"weighted_{term}" for term in terms} < train[0]["values"].keys()
    assert train[-1]["values"]["loss"] < train[0]["values"]["loss"]
    assert valid[-1]["values"]["mt_nll"] < valid[0]["values"]["mt_nll"]


def test_a_run_that_was_stopped_goes_on_bit_for_bit(whole, tmp_path):
    fit(tmp_path, small.translator(), dataclasses.replace(TRAINING, updates=8), data())
    resumed = fit(tmp_path, small.translator(), TRAINING, data())
    assert_equal(resumed, whole[1])
    resumed, uninterrupted = (read_metrics(run) for run in (tmp_path, whole[0]))
    assert [x["values"] for x in resumed] == [x["values"] for x in uninterrupted]


@pytest.mark.slow
def test_a_run_that_is_told_to_stop_saves_first(whole, tmp_path):
    class Ending(small.Cycle):
        def __next__(self):
            if self.place == 6:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().__next__()

    ended = fit(
        tmp_path, small.translator(), TRAINING, dataclasses.replace(data(), train=Ending(BATCHES))
    )
    assert int(ended.step) == 7
    assert_equal(fit(tmp_path, small.translator(), TRAINING, data()), whole[1])


@pytest.mark.slow
def test_an_update_that_is_not_finite_is_left_out_and_named(tmp_path, capsys):
    good = BATCHES[0]
    broken = dataclasses.replace(
        small.HEARD, statistics=dataclasses.replace(small.HEARD.statistics, std=np.zeros(80))
    )
    training = dataclasses.replace(TRAINING, updates=2, validate_every=100)
    feed = dataclasses.replace(data([good]), heard=broken)
    fit(tmp_path, small.translator(), training, feed)
    said = capsys.readouterr().err
    assert "update 1 was left out: its gradient is not finite" in said and "st_nll" in said


@pytest.mark.slow
def test_patience_ends_a_run(tmp_path):
    training = dataclasses.replace(
        TRAINING, optimiser=Optimiser(learning_rate=0.0, warmup=0), patience=2, validate_every=1
    )
    assert int(fit(tmp_path, small.translator(), training, data()).step) == 3
