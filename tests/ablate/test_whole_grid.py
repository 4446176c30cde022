"""Run whole small grids: killed and resumed, seeds together, failing as jobs, compiled ahead.

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

from simuljax.ablate.grid import Planned, load_grid, plan
from simuljax.ablate.launchers import FOLDER, simuljax_command
from simuljax.train.run import ENDED
from simuljax.train.run_log import FILE as METRICS
from tests.helpers.grids import environment

pytestmark = pytest.mark.slow  # trains
LARGE = 20_000  # bytes of a compiled program that takes long
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
    """A grid of two seeds, trained together, whose processes were killed and began again."""
    runs = tmp_path_factory.mktemp("grid") / "runs"
    file, options = written(corpus, runs, seeds="(0, 1)"), ("--together", "2")
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


def test_training_finds_what_was_compiled_ahead(corpus, whole, tmp_path):
    runs, cache = after_donor(whole, tmp_path / "runs"), tmp_path / "cache"
    file = written(corpus, runs)
    donor, _, run = plan(load_grid(file))  # it accumulates two batches

    def work(run: Planned, stage: str) -> set[str]:
        """Return the large programs that it compiled: updates, validations, first parameters."""
        before = set(cache.glob("*-cache"))
        given = environment(
            JAX_COMPILATION_CACHE_DIR=str(cache), JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0"
        )
        command = simuljax_command("ablate", str(file), "--only", run.name, "--stage", stage)
        subprocess.run(command, env=given, check=True)
        new = set(cache.glob("*-cache")) - before
        return {path.name for path in new if path.stat().st_size > LARGE}

    checkpoints, directory = donor.experiment.run / "checkpoints", run.experiment.run
    aside = checkpoints.rename(tmp_path / "aside")
    assert work(run, "compile")
    assert not list(directory.glob("checkpoints")) and not (directory / METRICS).exists()
    aside.rename(checkpoints)
    assert work(run, "train") == set()
    assert (directory / ENDED).exists()
