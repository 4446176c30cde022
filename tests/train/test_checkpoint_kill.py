"""A run that is killed at any moment can be resumed from a step that is what it was."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simuljax.train.checkpoint import Checkpoints
from tests.train.saving_loop import ROWS
from tests.train.states import assert_same_bits, state_of

ROOT = Path(__file__).parents[2]


def start(directory: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "tests.train.saving_loop", str(directory)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def kill(run: subprocess.Popen[str]) -> list[str]:
    """Ends the run as a power cut would; what it had said."""
    os.kill(run.pid, signal.SIGKILL)
    said = run.communicate()[0].splitlines()
    assert run.returncode == -signal.SIGKILL  # it was alive until now
    return said


def checked(directory: Path, said: list[str]) -> int:
    """Restores, compares with what the step held, and gives the step."""
    restored = Checkpoints(directory).restore(state_of(0, rows=ROWS))
    safe = max(int(line.split()[1]) for line in said)
    step = 0 if restored is None else restored.step
    assert step >= safe
    if restored is not None:
        assert restored.extra == {"step": step}
        assert_same_bits(restored.state, state_of(step, rows=ROWS))
    return step


def wait_for_write(run: subprocess.Popen[str], directory: Path, step: int) -> None:
    """Returns as soon as the step is being written."""
    deadline = time.monotonic() + 60
    while not list(directory.glob(f"{step}.orbax-checkpoint-tmp*")):
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.0005)


def test_killed_while_writing(tmp_path: Path) -> None:
    run = start(tmp_path)
    wait_for_write(run, tmp_path, 3)
    said = kill(run)
    assert checked(tmp_path, said) in (2, 3)


def heard(run: subprocess.Popen[str], line: str) -> list[str]:
    """What the run says up to that line."""
    assert run.stdout is not None
    said = []
    while line not in said:
        said.append(run.stdout.readline().strip())
        assert said[-1], "the run ended by itself"
    return said


@pytest.mark.slow
def test_killed_again_and_again(tmp_path: Path) -> None:
    chance, reached, interrupted = random.Random(1), 0, 0
    for life in range(12):
        run = start(tmp_path)
        until = f"resumed {reached}" if life % 3 == 2 else f"safe {reached + 1}"
        said = heard(run, until)
        time.sleep(chance.uniform(0, 0.3))
        reached = checked(tmp_path, said + kill(run))
        leftovers = [p.name for p in tmp_path.iterdir() if not p.name.isdecimal()]
        assert len(leftovers) <= 1  # of this life alone: earlier ones were cleared away
        interrupted += len(leftovers)
    assert reached >= 8 and interrupted >= 4
