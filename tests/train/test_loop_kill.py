"""A run that was killed, at any moment, ends with the parameters of one that was not."""

import random
import time
from pathlib import Path

import pytest

from simuljax.train.loop import TrainingRun, fit
from simuljax.train.step import CompiledUpdate
from simuljax.train.transfer import load
from tests.train import runs
from tests.train.processes import PATIENCE_S, Process
from tests.train.states import assert_same_bits

WAY = "shard_map"


def wait_for_write(life: Process, run: Path) -> None:
    """Until a checkpoint is being written."""
    deadline = time.monotonic() + PATIENCE_S
    while not list((run / WAY / "checkpoints").glob("*.orbax-checkpoint-tmp*")):
        assert life.popen.poll() is None and time.monotonic() < deadline, life.said
        time.sleep(0.0005)


def resumed(driver: CompiledUpdate, run: Path, updates: int):
    """What a run comes to at the end."""
    member = TrainingRun(run, runs.training(updates=updates))
    return fit([member], runs.MODEL, runs.data(), compiled=driver)


def latest(run: Path) -> int:
    """The last step that has its name."""
    return max(
        (int(p.name) for p in run.glob(f"{WAY}/checkpoints/*") if p.name.isdecimal()), default=0
    )


@pytest.mark.slow
def test_killed_at_an_update_and_while_writing(driver, tmp_path):
    run = tmp_path / "killed"
    for step in (6, 10):
        life = Process(run, "--updates", "1000", "--pause", "0.02")
        life.wait_for_step(step)
        if step == 10:
            wait_for_write(life, run)
        life.kill()
    assert 4 <= latest(run) < 1000
    end = latest(run) + 4
    whole = resumed(driver, tmp_path / "whole", end)
    assert_same_bits(resumed(driver, run / WAY, end), whole)


@pytest.mark.slow
def test_killed_at_twenty_moments(driver, tmp_path):
    chance, lives = random.Random(4), 20
    run, updates = tmp_path / "killed", 400
    whole = resumed(driver, tmp_path / "whole", updates)
    reached, writing = 0, 0
    for life_number in range(lives):
        life = Process(run, "--updates", str(updates), "--pause", "0.02")
        if life_number % 4 == 3:
            time.sleep(chance.uniform(0, 8))  # importing, restoring, compiling
        else:
            life.wait_for_step(reached + 6)
            time.sleep(chance.uniform(0, 1))
        if life_number % 3 == 2 and life.popen.poll() is None and life_number % 4 != 3:
            wait_for_write(life, run)
        life.kill()
        writing += bool(list((run / WAY / "checkpoints").glob("*.orbax-checkpoint-tmp*")))
        reached = latest(run)
    assert writing >= 3  # some of them in the middle of a checkpoint
    assert 40 <= reached < updates
    assert Process(run, "--updates", str(updates)).ended() == 0
    assert_same_bits(load(run / WAY, "last").params, load(tmp_path / "whole", "last").params)
    assert int(whole.step) == updates
