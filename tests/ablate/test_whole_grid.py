"""Run whole small grids: killed and resumed, in real time, together, failing, as jobs."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from simuljax.ablate.grid import Planned, load_grid, plan
from simuljax.ablate.launchers import FOLDER, simuljax_command
from simuljax.ablate.run import AblateOptions, ablate
from simuljax.config.fields import ConfigError
from simuljax.train.loop import ENDED
from simuljax.train.run_log import FILE as METRICS
from simuljax.train.run_log import read_metrics
from tests.helpers.grids import FILE, environment

pytestmark = pytest.mark.slow  # trains
LARGE = 50_000  # bytes of a compiled program that takes long
JOBS = ["--gpus", "0", "--cpus", "1", "--minutes", "20", "--workers", "2"]
# The same optimiser would find the donor's programs.
ANOTHER_RATE = """
from simuljax.config.training import Optimiser
GRID = with_training(GRID, "one", optimiser=Optimiser(learning_rate=2e-3, warmup=4))
"""
BROKEN = """
from dataclasses import replace
other = GRID.variants["other"]
wrong = replace(other.init_from[0], rules=("nowhere",))
GRID = replace(GRID, variants={**GRID.variants, "other": replace(other, init_from=(wrong,))})
"""
IN_REAL_TIME_TOO = """
from dataclasses import replace
from tests.helpers.grids import EVALUATIONS
few = {"frames": 8_000, "first": 2, "repeats": 1}
GRID = replace(GRID, evaluations=tuple(replace(each, **few) for each in EVALUATIONS))
"""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def written(corpus: Path, runs: Path, more: str = "") -> Path:
    """Write the file of a grid."""
    file = runs.with_suffix(".py")
    file.write_text(FILE.format(corpus=str(corpus), runs=str(runs)) + more)
    return file


def run_grid(file: Path, *options: str) -> str:
    command = simuljax_command("ablate", str(file), *options)
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_killed_grid_resumes_and_repeats_nothing(corpus, runs):
    file = written(corpus, runs)
    command = simuljax_command("ablate", str(file))
    process = subprocess.Popen(command, env=environment(), start_new_session=True)
    while not list(runs.glob("donor-*/metrics.jsonl")):
        assert process.poll() is None
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    run_grid(file)
    assert len(list(runs.glob("*/ended.json"))) == 3
    assert len(list(runs.glob("*/eval/*/scores.json"))) == 2
    before = {path: path.stat().st_mtime_ns for path in runs.glob("*/eval/*/instances.log")}
    run_grid(file)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    for path in runs.glob("*/spent.json"):
        assert json.loads(path.read_text())["training"]["seconds"] > 0


def test_evaluations_in_real_time_come_last(corpus, runs):
    run_grid(written(corpus, runs, IN_REAL_TIME_TOO), "--workers", "3")
    times = {path: path.stat().st_mtime for path in runs.glob("*/eval/*/scores.json")}
    live = {path for path in times if "live" in path.parent.name}
    assert len(times) == 6 and len(live) == 2
    assert min(times[path] for path in live) > max(times[path] for path in times.keys() - live)
    assert all("computation_aware" in json.loads(path.read_text()) for path in live)


def test_seeds_trained_together_give_what_they_give_alone(corpus, tmp_path):
    scores, losses = [], []
    for together in ("1", "2"):
        runs = tmp_path / together
        file = written(corpus, runs)
        file.write_text(file.read_text().replace("(0,)", "(0, 1)"))
        run_grid(file, "--together", together, "--workers", together)
        scores.append(sorted(path.parents[2].name for path in runs.glob("*/eval/*/scores.json")))
        last = [read_metrics(run)[-1]["values"] for run in sorted(runs.glob("o*-seed*"))]
        losses.append(last)
    assert scores[0] == scores[1] and len(scores[0]) == 4
    for alone, together in zip(*losses, strict=True):
        assert together == pytest.approx(alone, rel=1e-2)


def test_failed_run_does_not_stop_the_rest(corpus, runs, capsys):
    file = written(corpus, runs, BROKEN)
    with pytest.raises(ConfigError, match="1 of 3 runs"):
        ablate(AblateOptions(file=file), load_grid(file))
    printed = capsys.readouterr().out
    assert "2 of 3 runs" in printed
    assert "failed: " in printed and "other-seed0" in printed


@pytest.mark.parametrize(("engine", "library"), [("local", "submitit"), ("ray", "ray")])
def test_grid_of_jobs(corpus, runs, engine, library):
    pytest.importorskip(library)
    assert "3 of 3 runs" in run_grid(written(corpus, runs), "--engine", engine, *JOBS)
    assert len(list(runs.glob("*/eval/*/scores.json"))) == 2
    assert (engine == "ray") or len(list((runs / FOLDER).glob("*_submitted.pkl"))) >= 3


def test_training_finds_what_was_compiled_ahead(corpus, runs, tmp_path):
    file, cache = written(corpus, runs, ANOTHER_RATE), tmp_path / "cache"
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

    assert work(donor, "train")
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
