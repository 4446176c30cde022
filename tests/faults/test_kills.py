"""A few kills of every command (`make faults` goes on); the published cases have tests."""

import re
import subprocess
import sys

import pytest

from tests.fuzz.test_readers import BAD
from tests.helpers.grids import REPOSITORY, environment


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["train", "train2", "ablate", "prepare", "speak", "evaluate", "serve"]
)
def test_killed_commands_end_as_undisturbed_ones(kind):
    if kind == "speak":
        pytest.importorskip("espeakng_loader", reason="needs `pip install 'simuljax[speech]'`")
    kills = "6" if kind == "train" else "2"
    command = [sys.executable, "-m", "tests.faults.run", "--kills", kills, "--seed", "1", kind]
    held = {"cwd": REPOSITORY, "env": environment(), "capture_output": True, "text": True}
    done = subprocess.run(command, **held, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "ends as undisturbed" in done.stdout


PAGE = REPOSITORY / "experiments" / "results" / "hardening.md"


def test_every_test_that_the_table_names_exists():
    rows = [line for line in PAGE.read_text().splitlines() if line.count("|") == 5]
    tests = [row.split("|")[4] for row in rows]
    named = [found for cell in tests for found in re.findall(r"([\w/]+\.py)(?:::(\w+))?", cell)]
    assert len(named) > 25
    for path, name in named:
        text = (REPOSITORY / "tests" / path).read_text()
        assert f"def {name}(" in text or not name, (path, name)
    cases = [cell for cell in tests if "`fuzz[" in cell]
    assert {case for cell in cases for case in re.findall(r"\[(.+?)\]`", cell)} - {*BAD} <= {
        "member that expands",  # of audio in an archive
        "broken member",
    }
