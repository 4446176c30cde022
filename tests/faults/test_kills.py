"""A few kills of every command; `make faults` goes on for as long as one likes."""

import subprocess
import sys

import pytest

from tests.helpers.grids import REPOSITORY, environment


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["train", "train2", "ablate", "prepare", "speak", "evaluate", "serve"]
)
def test_killed_commands_end_as_undisturbed_ones(kind):
    if kind == "speak":
        pytest.importorskip("espeakng_loader", reason="needs `pip install 'simuljax[speech]'`")
    command = [sys.executable, "-m", "tests.faults.run", "--kills", "2", "--seed", "1", kind]
    held = {"cwd": REPOSITORY, "env": environment(), "capture_output": True, "text": True}
    done = subprocess.run(command, **held, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "ends as undisturbed" in done.stdout
