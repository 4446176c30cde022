"""A run that is killed while it saves can be resumed from a step that is what it was.

`python -m tests.train.test_checkpoint_kill DIR` does nothing but save, for being killed.
"""

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

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


def killed_while_writing(directory: Path, step: int) -> int:
    """Start it, end it as a power cut would while it writes that step or a later one; compare."""
    run, deadline = start(directory), time.monotonic() + 60
    writing = []
    while max(writing, default=0) < step:
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.0005)
        found = directory.glob("*.orbax-checkpoint-tmp*")
        writing = [int(path.name.partition(".")[0]) for path in found]
    os.kill(run.pid, signal.SIGKILL)
    said = run.communicate()[0].splitlines()
    assert run.returncode == -signal.SIGKILL  # it was alive until now
    restored = Checkpoints(directory).restore(state_of(0, rows=ROWS))
    assert restored is not None and restored.extra == {"step": restored.step}
    assert restored.step >= max(int(line.split()[1]) for line in said)
    assert_same_bits(restored.state, state_of(restored.step, rows=ROWS))
    return restored.step


def test_killed_while_writing_and_again_after_resuming(tmp_path: Path) -> None:
    reached = killed_while_writing(tmp_path, 3)
    assert reached >= 2
    assert killed_while_writing(tmp_path, reached + 2) > reached
    leftovers = [p.name for p in tmp_path.iterdir() if not p.name.isdecimal()]
    assert len(leftovers) <= 1  # of this life alone: the earlier one was cleared away


if __name__ == "__main__":
    save_for_ever(sys.argv[1])
