"""While runs are trained that others begin with, what those will run is compiled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simuljax.ablate.ablate import Working, collect
from simuljax.ablate.grid import load_ablation, plan
from simuljax.ablate.scheduler import Task, state_of, to_compile
from simuljax.ablate.worker import FAILED
from simuljax.train.member import ENDED
from simuljax.train.metrics import FILE as METRICS
from tests.ablate.small_ablation import FILE, as_addressed, grid, spoken

LARGE = 50_000  # bytes of a compiled program that takes long
# Or `one` would find the donor's programs.
ANOTHER_RATE = """
from simuljax.train.optimiser import Optimiser
ABLATION = with_training(ABLATION, "one", optimiser=Optimiser(learning_rate=2e-3, warmup=4))
"""


def test_what_waits_for_the_same_trainings_is_compiled_once(tmp_path):
    ablation = grid(as_addressed(tmp_path / "corpus"), tmp_path / "runs", seeds=(0, 1), order=0)
    runs = plan(ablation)
    rows = {row: [run for run in runs if run.row == row] for row in ablation.rows}
    states = {run.name: state_of(run, ablation) for run in runs}
    training, known = [Task(runs=rows["donor"], stage="train")], set()

    def told(working=training) -> list[list[str]]:
        found = to_compile(runs, states, working, known, together=2)
        assert all(task.stage == "compile" for task in found)
        return [[f"{run.row}{run.seed}" for run in task.runs] for task in found]

    assert told() == [], "the donor has no vocabulary yet"
    for run in rows["donor"] + rows["other"]:
        run.experiment.run.mkdir(parents=True)
        (run.experiment.run / METRICS).touch()
    assert told() == [["one0", "one1"], ["other0", "other1"]], "what comes after them is far away"
    assert told([]) == [], "nobody trains it"
    known |= {run.name for run in rows["one"]}
    assert told() == [["other0", "other1"]]
    (rows["donor"][0].experiment.run / ENDED).touch()
    assert told() == [], "they can be trained now"
    assert told([Task(runs=rows["other"], stage="train")]) == [["later0", "later1"]]
    alone = [Task(runs=[run], stage="train") for run in rows["other"]]
    assert told(alone) == [["later0"], ["later1"]], "they will not be ready at once"


def test_what_cannot_be_compiled_is_not_a_run_that_failed(tmp_path):
    ablation = grid(as_addressed(tmp_path / "corpus"), tmp_path / "runs")

    class Ended:
        returncode = 1

        def poll(self) -> int:
            return 1

    task = Task(runs=plan(ablation)[:1], stage="compile")
    working = [Working(task=task, process=Ended())]  # pyright: ignore[reportArgumentType]
    collect(working)
    assert not working and not (task.runs[0].experiment.run / FAILED).exists()


@pytest.mark.slow
def test_training_finds_what_was_compiled_before_its_donor_was_there(tmp_path):
    corpus, runs, file = spoken(tmp_path)
    file.write_text(FILE.format(corpus=str(corpus), runs=str(runs)) + ANOTHER_RATE)
    donor, one, other = plan(load_ablation(file))
    cache = tmp_path / "cache"

    def ablate(run, stage: str) -> set[str]:
        """The programs that it compiled: updates, validations, first parameters."""
        environment = os.environ | {
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        before = set(cache.glob("*-cache"))
        command = [
            sys.executable,
            "-m",
            "simuljax.cli.main",
            "ablate",
            str(file),
            "--only",
            run.name,
        ]
        subprocess.run([*command, "--stage", stage], env=environment, check=True)
        new = set(cache.glob("*-cache")) - before
        return {path.name for path in new if path.stat().st_size > LARGE}

    assert ablate(donor, "train")
    checkpoints = donor.experiment.run / "checkpoints"
    aside = checkpoints.rename(tmp_path / "aside")
    for run in (one, other):  # `other` makes its updates from two batches
        directory = run.experiment.run
        assert ablate(run, "compile")
        assert not list(directory.glob("checkpoints")) and not (directory / METRICS).exists()
    aside.rename(checkpoints)
    for run in (one, other):
        assert ablate(run, "train") == set()
        assert (run.experiment.run / ENDED).exists()
