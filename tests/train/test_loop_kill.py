"""A run that was killed, at any moment, ends with the parameters of one that was not."""

import random
import time
from pathlib import Path

import pytest

from simuljax.train.loop import TrainingRun, fit
from simuljax.train.transfer import load
from tests.train import runs
from tests.train.processes import Process
from tests.train.states import assert_same_bits

WAY, UPDATES, LIVES = "shard_map", 200, 8


def writing(run: Path) -> list[Path]:
    """Checkpoints that are being written."""
    return list((run / WAY / "checkpoints").glob("*.orbax-checkpoint-tmp*"))


def latest(run: Path) -> int:
    """The last step that has its name."""
    paths = run.glob(f"{WAY}/checkpoints/*")
    return max((int(p.name) for p in paths if p.name.isdecimal()), default=0)


@pytest.mark.slow
def test_killed_at_many_moments(driver, tmp_path):
    """At an update, while a checkpoint is written, while it imports, restores or compiles."""
    chance, run, reached, interrupted = random.Random(4), tmp_path / "killed", 0, 0
    whole = TrainingRun(tmp_path / "whole", runs.training(updates=UPDATES))
    assert int(fit([whole], runs.MODEL, runs.data(), compiled=driver).step) == UPDATES
    for number in range(LIVES):
        life = Process(run, "--updates", str(UPDATES), "--pause", "0.02")
        if number % 4 == 3:
            time.sleep(chance.uniform(0, 8))
        else:
            life.wait_for_step(reached + 6)
            if number % 2:
                life.wait_for(lambda: writing(run))
        life.kill()
        interrupted += bool(writing(run))
        reached = latest(run)
    assert interrupted >= 1 and 16 <= reached < UPDATES
    assert Process(run, "--updates", str(UPDATES)).ended() == 0
    assert_same_bits(load(run / WAY, "last").params, load(tmp_path / "whole", "last").params)
