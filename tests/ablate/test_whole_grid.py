"""Run whole small grids: killed and resumed, seeds together, failing as jobs, begun early.

They are of text translators, and begin with the donor that one of them has trained.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from simuljax.ablate.grid import load_grid, plan
from simuljax.ablate.launchers import FOLDER, simuljax_command
from simuljax.ablate.run import BLOCKED
from simuljax.lock import locked
from simuljax.train.checkpoint import CHECKPOINTS
from simuljax.train.run import CONFIG_FILE, ENDED
from tests.helpers.grids import environment

pytestmark = pytest.mark.slow  # trains
JOBS = ["--engine", "local", "--gpus", "0", "--cpus", "1", "--minutes", "20", "--workers", "2"]
TEXT = """
from pathlib import Path
from dataclasses import replace
from tests.helpers.grids import text_grid
GRID = text_grid(Path({corpus!r}), Path({runs!r}), seeds={seeds})
"""
BROKEN = """
other = GRID.variants["other"]
wrong = replace(other.init_from[0], rules=("nowhere",))
GRID = replace(GRID, variants={**GRID.variants, "other": replace(other, init_from=(wrong,))})
"""


def written(corpus: Path, runs: Path, more: str = "", seeds: str = "(0,)") -> Path:
    """Write the file of a grid."""
    file = runs.with_suffix(".py")
    file.write_text(TEXT.format(corpus=str(corpus), runs=str(runs), seeds=seeds) + more)
    return file


def run_grid(file: Path, *options: str, status: int = 0) -> str:
    command = simuljax_command("ablate", str(file), *options)
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == status, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory) -> Path:
    """A grid of two seeds, trained together, whose processes were killed and began again.

    An idle worker begins what starts from the donor while it is trained.
    """
    runs = tmp_path_factory.mktemp("grid") / "runs"
    file, options = written(corpus, runs, seeds="(0, 1)"), ("--together", "2", "--workers", "3")
    command = simuljax_command("ablate", str(file), *options)
    process = subprocess.Popen(command, env=environment(), start_new_session=True)
    while not list(runs.glob("donor-*/metrics.jsonl")):
        assert process.poll() is None
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert "5 of 5 runs" in run_grid(file, *options)
    return runs


def after_donor(whole: Path, runs: Path) -> Path:
    """Begin a grid with the donor trained."""
    (donor,) = whole.glob("donor-*")
    shutil.copytree(donor, runs / donor.name)
    return runs


def test_killed_grid_resumes_and_repeats_nothing(whole):
    assert len(list(whole.glob("*/ended.json"))) == 5
    assert len(list(whole.glob("*/eval/*/scores.json"))) == 4
    before = {path: path.stat().st_mtime_ns for path in whole.glob("*/eval/*/instances.log")}
    assert "5 of 5 runs" in run_grid(whole.with_suffix(".py"))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    for path in whole.glob("*/spent.json"):
        assert json.loads(path.read_text())["training"]["seconds"] > 0


def test_job_that_fails_does_not_stop_the_rest(corpus, whole, tmp_path):
    pytest.importorskip("submitit", reason="needs `pip install 'simuljax[cluster]'`")
    runs = after_donor(whole, tmp_path / "runs")
    printed = run_grid(written(corpus, runs, more=BROKEN), *JOBS, status=1)
    assert "2 of 3 runs" in printed
    assert "failed: " in printed and "other-seed0" in printed
    assert len(list(runs.glob("one-*/eval/*/scores.json"))) == 1
    assert len(list((runs / FOLDER).glob("*_submitted.pkl"))) >= 2


def test_run_that_begins_early_waits_for_the_run_it_starts_from(corpus, whole, tmp_path):
    runs = after_donor(whole, tmp_path / "runs")
    file = written(corpus, runs)
    donor, _, run = plan(load_grid(file))
    command = simuljax_command("ablate", str(file), "--only", run.name, "--stage", "train")
    weights, end = (donor.directory / name for name in (CHECKPOINTS, ENDED))
    for path in (weights, end):
        path.rename(tmp_path / path.name)
    untrained = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert untrained.returncode == BLOCKED, untrained.stderr
    assert f"{donor.name} must be trained first" in untrained.stderr
    assert not (run.directory / CONFIG_FILE).exists(), "nothing was loaded"
    with locked(donor.directory):  # as if it were in training
        process = subprocess.Popen(command, env=environment())
        while not (run.directory / CONFIG_FILE).exists():
            assert process.poll() is None
            time.sleep(0.2)
        for path in (weights, end):
            (tmp_path / path.name).rename(path)
    assert process.wait() == 0 and (run.directory / ENDED).exists()
