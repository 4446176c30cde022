"""A run that is killed at any moment can be resumed from a step that is what it was.

`python -m tests.train.test_checkpoint_kill DIR` does nothing but save, for being killed.
"""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from simuljax.train.checkpoint import Checkpoints
from tests.train.states import assert_same_bits, state_of

ROOT = Path(__file__).parents[2]
ROWS = 30_000  # large enough that a write can be interrupted


def save_for_ever(directory: str) -> None:
    """Resumes, then saves every step, and says which steps are safe."""
    checkpoints = Checkpoints(directory, keep_last=2, keep_best=1)
    restored = checkpoints.restore(state_of(0, rows=ROWS))
    done = 0 if restored is None else restored.step
    print("resumed", done, flush=True)
    for step in itertools.count(done + 1):
        checkpoints.save(step, state_of(step, rows=ROWS), {"step": step}, score=-step)
        print("safe", step - 1, flush=True)  # the save before this one is complete


def start(directory: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "tests.train.test_checkpoint_kill", str(directory)]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes)


def killed(run: subprocess.Popen[str], directory: Path, said: list[str]) -> int:
    """Ends the run as a power cut would, restores, compares, and gives the step."""
    os.kill(run.pid, signal.SIGKILL)
    said = said + run.communicate()[0].splitlines()
    assert run.returncode == -signal.SIGKILL  # it was alive until now
    restored = Checkpoints(directory).restore(state_of(0, rows=ROWS))
    step = 0 if restored is None else restored.step
    assert step >= max(int(line.split()[1]) for line in said)
    if restored is not None:
        assert restored.extra == {"step": step}
        assert_same_bits(restored.state, state_of(step, rows=ROWS))
    return step


def heard(run: subprocess.Popen[str], line: str) -> list[str]:
    """What the run says up to that line."""
    assert run.stdout is not None
    said = []
    while line not in said:
        said.append(run.stdout.readline().strip())
        assert said[-1], "the run ended by itself"
    return said


def test_killed_while_writing(tmp_path: Path) -> None:
    run, deadline = start(tmp_path), time.monotonic() + 60
    while not list(tmp_path.glob("3.orbax-checkpoint-tmp*")):
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.0005)
    assert killed(run, tmp_path, []) in (2, 3)


@pytest.mark.slow
def test_killed_again_and_again(tmp_path: Path) -> None:
    chance, reached, interrupted = random.Random(1), 0, 0
    for life in range(9):
        run = start(tmp_path)
        said = heard(run, f"resumed {reached}" if life % 3 == 2 else f"safe {reached + 1}")
        time.sleep(chance.uniform(0, 0.3))
        reached = killed(run, tmp_path, said)
        leftovers = [p.name for p in tmp_path.iterdir() if not p.name.isdecimal()]
        assert len(leftovers) <= 1  # of this life alone: earlier ones were cleared away
        interrupted += len(leftovers)
    assert reached >= 6 and interrupted >= 3


if __name__ == "__main__":
    save_for_ever(sys.argv[1])
