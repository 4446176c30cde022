"""A few kills of every command (`make faults` goes on); the published cases have tests."""

import importlib.util
import re
import subprocess
import sys

import pytest

from tests.fuzz.test_readers import BAD
from tests.helpers.grids import REPOSITORY, environment


@pytest.mark.slow
def test_killed_commands_end_as_undisturbed_ones():
    kinds = ["train", "train2", "ablate", "prepare", "evaluate", "serve"]
    if importlib.util.find_spec("espeakng_loader") is not None:
        kinds.append("speak")
    command = [sys.executable, "-m", "tests.faults.run", "--kills", "2", "--seed", "1", *kinds]
    held = {"cwd": REPOSITORY, "env": environment(), "capture_output": True, "text": True}
    done = subprocess.run(command, **held, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    ended = re.findall(r"^(\w+) .* ends as undisturbed", done.stdout, re.M)
    assert {*ended} == {*kinds}, done.stdout


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
