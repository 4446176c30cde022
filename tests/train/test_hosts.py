"""Two processes that are one run: equal to one process, stopped together, resumed after a death."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from simuljax.config.training import Training
from simuljax.train.checkpoint import Checkpoints
from simuljax.train.loop import Loop, TrainingRun, compile_update
from simuljax.train.run import load_params
from simuljax.train.step import CompiledUpdate, TrainState
from tests.train import runs
from tests.train.overfitting import compiling_quickly
from tests.train.processes import Process, two

pytestmark = pytest.mark.slow
WAY, SGD, SILENT_S = "shard_map", ("--method", "sgd"), 10


@pytest.fixture(scope="module", autouse=True)
def quickly() -> Iterator[None]:
    """As the processes do."""
    with compiling_quickly():
        yield


@pytest.fixture(scope="module")
def by_sgd() -> CompiledUpdate:
    return compile_update(runs.MODEL, [runs.training(method="sgd")], runs.data())


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> Path:
    """Uninterrupted, on two hosts, by both ways; at the end each is just asking for the other."""
    run = tmp_path_factory.mktemp("together")
    ended(two(run, *SGD, "--ways", "pmap", WAY, "--average", "2", "--period", "0.002"))
    return run


def trained(run: Path, training: Training, compiled: CompiledUpdate) -> TrainState:
    return Loop([TrainingRun(run, training)], compiled, runs.data()).run()


def ended(processes: list[Process]) -> None:
    for process in processes:
        assert process.ended() == 0, process.said


def assert_close(one, other) -> None:
    largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(one))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * largest), one, other
    )


@pytest.mark.parametrize("way", ["pmap", WAY])
def test_two_hosts_are_as_one(together, by_sgd, tmp_path, way):
    state = trained(tmp_path, runs.training(method="sgd"), by_sgd)
    held = load_params(together / way, "last")
    assert held.steps == (12,)
    assert_close(held.params, jax.device_get(state.params))
    assert load_params(together / way, "averaged").steps == (8, 12)
    one, both = runs.metrics(tmp_path), runs.metrics(together / way)
    assert [line["step"] for line in both] == [line["step"] for line in one]  # written once
    for a, b in zip(one, both, strict=True):
        assert a["values"] == pytest.approx(b["values"], rel=1e-4)


def test_a_signal_to_one_stops_both_and_one_host_goes_on(by_sgd, tmp_path):
    pair = two(tmp_path, *SGD, "--updates", "1000", "--pause", "0.05")
    pair[0].wait_for_step(6)
    pair[1].popen.send_signal(signal.SIGTERM)
    ended(pair)
    reached = Checkpoints(tmp_path / WAY / "checkpoints").steps()[-1]
    assert 6 <= reached < 1000
    assert all(f"ended {WAY} {reached}" in process.said for process in pair)
    training = runs.training(method="sgd", updates=reached + 4)
    resumed = trained(tmp_path / WAY, training, by_sgd)
    whole = trained(tmp_path / "whole", training, by_sgd)
    assert int(resumed.step) == reached + 4
    assert_close(jax.device_get(resumed.params), jax.device_get(whole.params))


def ended_after(process: Process, victim: int, within_s: float) -> None:
    """The survivor has ended in time, with a sentence that names the other."""
    start = time.monotonic()
    assert process.ended() == 1, process.said
    took = time.monotonic() - start
    print(f"ended after {took:.1f} s")
    assert took < within_s, process.said
    assert f"process {victim}" in process.said.splitlines()[-1], process.said
    assert "stack trace" not in process.said and "Traceback" not in process.said


def test_one_host_goes_on_as_two_whose_death_ends_both_and_both_resume(together, by_sgd, tmp_path):
    """The first of them dies, with which the others meet."""
    trained(tmp_path / WAY, runs.training(method="sgd", updates=4), by_sgd)
    pair = two(tmp_path, *SGD, "--pause", "0.3")
    pair[0].wait_for_step(8)
    pair[0].kill()
    ended_after(pair[1], 0, 3 * SILENT_S)
    ended(two(tmp_path, *SGD))
    assert_close(
        load_params(tmp_path / WAY, "last").params, load_params(together / WAY, "last").params
    )


def test_a_host_that_is_stopped_ends_the_other(tmp_path):
    pair = two(tmp_path, *SGD, "--pause", "0.3")
    pair[0].wait_for_step(6)
    pair[1].popen.send_signal(signal.SIGSTOP)  # as one that swaps
    try:
        ended_after(pair[0], 1, 3 * SILENT_S)
        pair[1].popen.send_signal(signal.SIGCONT)
        assert pair[1].ended() == 1  # it does not go on alone
    finally:
        pair[1].popen.kill()


def test_other_parameters_are_refused(tmp_path):
    """Here of another seed: a run to start from may differ without a word in the configuration."""
    for process in two(tmp_path, *SGD, second=("--seed", "1")):
        assert process.ended() == 1
        assert "process 1 has parameters" in process.said
