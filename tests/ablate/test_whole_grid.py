"""Run whole small grids: killed and resumed, in real time, together, failing, as jobs.

Most grids are of text translators, and begin with the runs that one of them has trained.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from simuljax.ablate.grid import Planned, load_grid, plan
from simuljax.ablate.launchers import FOLDER, simuljax_command
from simuljax.models.joint import JointModel
from simuljax.models.parameters import initialise
from simuljax.train.loop import ENDED
from simuljax.train.run_log import FILE as METRICS
from simuljax.train.run_log import read_metrics
from tests.helpers.grids import environment
from tests.written_runs import PIECES, write_files

pytestmark = pytest.mark.slow  # trains
LARGE = 20_000  # bytes of a compiled program that takes long
JOBS = ["--gpus", "0", "--cpus", "1", "--minutes", "20", "--workers", "2"]
TEXT = """
from pathlib import Path
from dataclasses import replace
from tests.helpers.grids import text_grid, with_training
GRID = text_grid(Path({corpus!r}), Path({runs!r}), seeds={seeds})
"""
# The same optimiser would find the donor's programs.
ANOTHER_RATE = """
from simuljax.config.training import Optimiser
GRID = with_training(GRID, "one", optimiser=Optimiser(learning_rate=2e-3, warmup=4))
"""
BROKEN = """
other = GRID.variants["other"]
wrong = replace(other.init_from[0], rules=("nowhere",))
GRID = replace(GRID, variants={**GRID.variants, "other": replace(other, init_from=(wrong,))})
"""
IN_REAL_TIME_TOO = """
from pathlib import Path
from dataclasses import replace
from tests.helpers.grids import EVALUATIONS, LIMIT, grid
few = {{"frames": 8_000, "first": 2, "repeats": 1, "limit": LIMIT}}
ways = tuple(replace(each, **few) for each in EVALUATIONS)
GRID = grid(Path({corpus!r}), Path({runs!r}), seeds={seeds}, curves={{}}, evaluations=ways)
"""


def written(
    corpus: Path, runs: Path, text: str = TEXT, more: str = "", seeds: str = "(0,)"
) -> Path:
    """Write the file of a grid."""
    file = runs.with_suffix(".py")
    file.write_text(text.format(corpus=str(corpus), runs=str(runs), seeds=seeds) + more)
    return file


def run_grid(file: Path, *options: str, status: int = 0) -> str:
    command = simuljax_command("ablate", str(file), *options)
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == status, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def alone(corpus, tmp_path_factory) -> Path:
    """A grid of two seeds, one run at a time, whose processes were killed and began again."""
    runs = tmp_path_factory.mktemp("grid") / "runs"
    file = written(corpus, runs, seeds="(0, 1)")
    command = simuljax_command("ablate", str(file))
    process = subprocess.Popen(command, env=environment(), start_new_session=True)
    while not list(runs.glob("donor-*/metrics.jsonl")):
        assert process.poll() is None
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert "5 of 5 runs" in run_grid(file)
    return runs


def after_donor(alone: Path, runs: Path) -> Path:
    """Begin a grid with the donor trained."""
    (donor,) = alone.glob("donor-*")
    shutil.copytree(donor, runs / donor.name)
    return runs


def test_killed_grid_resumes_and_repeats_nothing(alone):
    assert len(list(alone.glob("*/ended.json"))) == 5
    assert len(list(alone.glob("*/eval/*/scores.json"))) == 4
    before = {path: path.stat().st_mtime_ns for path in alone.glob("*/eval/*/instances.log")}
    assert "5 of 5 runs" in run_grid(alone.with_suffix(".py"))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    for path in alone.glob("*/spent.json"):
        assert json.loads(path.read_text())["training"]["seconds"] > 0


def test_seeds_trained_together_give_what_they_give_alone(corpus, alone, tmp_path):
    runs = after_donor(alone, tmp_path / "runs")
    run_grid(written(corpus, runs, seeds="(0, 1)"), "--together", "2", "--workers", "2")
    scores, losses = [], []
    for place in (alone, runs):
        scores.append(sorted(path.parents[2].name for path in place.glob("*/eval/*/scores.json")))
        seeds = sorted(place.glob("o*-seed*"))
        losses.append([read_metrics(run)[-1]["values"] for run in seeds])
    assert scores[0] == scores[1] and len(scores[0]) == 4
    for one, other in zip(*losses, strict=True):
        assert other == pytest.approx(one, rel=1e-2)


def test_failed_run_does_not_stop_the_rest(corpus, alone, tmp_path):
    runs = after_donor(alone, tmp_path / "runs")
    printed = run_grid(written(corpus, runs, more=BROKEN), status=1)
    assert "2 of 3 runs" in printed
    assert "failed: " in printed and "other-seed0" in printed


@pytest.mark.parametrize(("engine", "library"), [("local", "submitit"), ("ray", "ray")])
def test_grid_of_jobs(corpus, alone, tmp_path, engine, library):
    pytest.importorskip(library)
    runs = after_donor(alone, tmp_path / "runs")
    assert "3 of 3 runs" in run_grid(written(corpus, runs), "--engine", engine, *JOBS)
    assert len(list(runs.glob("*/eval/*/scores.json"))) == 2
    assert (engine == "ray") or len(list((runs / FOLDER).glob("*_submitted.pkl"))) >= 2


def test_evaluations_in_real_time_come_last(corpus, tmp_path):
    """Nobody trained these runs: they translate sound, and write a few words."""
    runs = tmp_path / "runs"
    file = written(corpus, runs, IN_REAL_TIME_TOO)
    for run in plan(load_grid(file)):
        sizes = {"source_vocabulary": PIECES.size, "target_vocabulary": PIECES.size}
        model = replace(run.to_train.model, **sizes)
        params = initialise(JointModel(model), jax.random.key(0))
        write_files(replace(run.to_train, model=model), *params)
        (run.experiment.run / ENDED).write_text("{}")
    run_grid(file, "--workers", "3")
    times = {path: path.stat().st_mtime for path in runs.glob("*/eval/*/scores.json")}
    live = {path for path in times if "live" in path.parent.name}
    assert len(times) == 6 and len(live) == 2
    assert min(times[path] for path in live) > max(times[path] for path in times.keys() - live)
    assert all("computation_aware" in json.loads(path.read_text()) for path in live)


def test_training_finds_what_was_compiled_ahead(corpus, alone, tmp_path):
    runs, cache = after_donor(alone, tmp_path / "runs"), tmp_path / "cache"
    file = written(corpus, runs, more=ANOTHER_RATE)
    donor, one, other = plan(load_grid(file))

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

    checkpoints = donor.experiment.run / "checkpoints"
    aside = checkpoints.rename(tmp_path / "aside")
    for run in (one, other):  # `other` accumulates two batches
        directory = run.experiment.run
        assert work(run, "compile")
        assert not list(directory.glob("checkpoints")) and not (directory / METRICS).exists()
    aside.rename(checkpoints)
    for run in (one, other):
        assert work(run, "train") == set()
        assert (run.experiment.run / ENDED).exists()
