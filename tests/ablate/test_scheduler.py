"""Schedule a grid: states of runs, next tasks, compilation ahead, groups of runs."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from simuljax.ablate.grid import Grid, Planned, evaluations_of, plan
from simuljax.ablate.run import describe
from simuljax.ablate.scheduler import (
    Task,
    groups,
    next_tasks,
    progress,
    state_of,
    to_compile,
    to_evaluate,
)
from simuljax.ablate.worker import FAILED, lacking
from simuljax.train.lock import locked
from simuljax.train.loop import ENDED
from simuljax.train.run_log import FILE as METRICS
from tests.helpers.grids import all_trained, grid, summarised_corpus, write_scores


@pytest.fixture
def corpus(tmp_path) -> Path:
    return summarised_corpus(tmp_path / "corpus")


def test_state_of_a_run(corpus, tmp_path):
    ablation = grid(corpus, tmp_path / "runs", seeds=(0,), curves={})
    donor, one, other = plan(ablation)
    assert state_of(donor, ablation) == "waiting"
    donor.experiment.run.mkdir(parents=True)
    with locked(donor.experiment.run):
        assert state_of(donor, ablation) == "running"
    assert progress(donor, ablation) == "donor starting"
    (donor.experiment.run / METRICS).write_text('\n{"step": 3}\n')
    assert progress(donor, ablation) == f"donor 3/{donor.to_train.training.updates}"
    (donor.experiment.run / FAILED).write_text("exit 1\nno memory")
    assert state_of(donor, ablation) == "failed"
    assert state_of(one, ablation) == "blocked"
    assert "no memory" in describe([donor, one, other], ablation, 3.0)
    (donor.experiment.run / FAILED).unlink()
    (donor.experiment.run / ENDED).write_text("{}")
    assert state_of(donor, ablation) == "done"
    assert state_of(one, ablation) == "waiting"


def tasks_of(
    runs: Sequence[Planned], ablation: Grid, workers: int, working: Sequence[Task] = ()
) -> list[tuple[str, list[str]]]:
    """What comes next."""
    states = {run.name: state_of(run, ablation) for run in runs}
    left = {run.name: to_evaluate(run, ablation) for run in runs}
    found = next_tasks(runs, states, working, left, workers=workers, together=2)
    return [(task.stage, [f"{run.variant}{run.seed}" for run in task.runs]) for task in found]


def test_idle_workers_help_to_evaluate_and_the_clock_runs_alone(corpus, tmp_path):
    ablation, runs = all_trained(corpus, tmp_path / "runs")
    _, one, other = runs
    assert progress(one, ablation) == "one/0 evaluated 0/3"
    ones, others = ("evaluate", ["one0"]), ("evaluate", ["other0"])
    assert tasks_of(runs, ablation, 2) == [ones, others]
    assert tasks_of(runs, ablation, 3) == [ones, others, ones]
    assert tasks_of(runs, ablation, 9) == [ones, others, ones, others], "two ways need no clock"
    busy = [Task(runs=[run], stage="evaluate") for run in (one, other, one)]
    assert tasks_of(runs, ablation, 9, busy) == [others]
    (other.experiment.run / FAILED).write_text("exit 1")
    assert tasks_of(runs, ablation, 9, busy) == [], "what fails is not begun again and again"
    (other.experiment.run / FAILED).unlink()
    for way in [*evaluations_of(one, ablation), *evaluations_of(other, ablation)]:
        if way.mode != "live":
            write_scores(way)
    assert [state_of(run, ablation) for run in runs] == ["done", "untimed", "untimed"]
    assert tasks_of(runs, ablation, 9, busy) == [], "it waits until they have ended"
    assert tasks_of(runs, ablation, 9) == [("clock", ["one0", "other0"])]
    (live,) = lacking(one, ablation)
    live.folder.mkdir(parents=True)
    with locked(live.folder):  # by whoever else works on this grid
        assert state_of(one, ablation) == "running"
        assert tasks_of(runs, ablation, 9) == []


def test_one_worker_is_left_for_training(corpus, tmp_path):
    """Whole variants first; of several workers one is left to training while there is some."""
    ablation = grid(corpus, tmp_path / "runs", seeds=(0, 1), order=0)
    runs = plan(ablation)

    def tasks(workers: int, working: Sequence[Task] = ()) -> list[tuple[str, list[str]]]:
        return tasks_of(runs, ablation, workers, working)

    assert tasks(3) == [("train", ["donorNone"])]
    assert tasks(1) == [("both", ["donorNone"])]
    for run in runs:
        if run.variant in ("donor", "other"):
            run.experiment.run.mkdir(parents=True)
            (run.experiment.run / ENDED).write_text("{}")
    later, one = ("train", ["later0", "later1"]), ("train", ["one0", "one1"])
    others = ("evaluate", ["other0", "other1"])
    assert tasks(1) == [others]
    assert tasks(2) == [others, later]
    assert tasks(4) == [("evaluate", ["other0"]), ("evaluate", ["other1"]), later, one]
    busy = Task(runs=[run for run in runs if run.variant == "other"], stage="evaluate")
    assert tasks(2, [busy]) == [later]
    assert tasks(1, [busy]) == []
    ending = Task(runs=busy.runs, stage="train")
    (busy.runs[1].experiment.run / ENDED).unlink()
    assert tasks(2, [ending]) == [one], "what begins with one of them waits for the other"


def test_groups_hold_runs_that_differ_in_seeds_and_weights(corpus, tmp_path):
    def variants(order, size=9):
        ablation = grid(corpus, tmp_path / "runs", seeds=(0, 1, 2), order=order)
        runs = [run for run in plan(ablation) if run.seed is not None]
        return [[f"{run.variant}{run.seed}" for run in group] for group in groups(runs, size)]

    assert all(len({name[-1] for name in group}) == 1 for group in variants(None)), "other batches"
    ones, others = ["one0", "one1", "one2"], ["other0", "other1", "other2"]
    later = ["later0", "later1", "later2"]
    assert variants(0) == [ones, others + later]
    assert variants(0, size=2) == [ones[:2], ones[2:], others[:2], [others[2], "later0"], later[1:]]


def test_runs_that_wait_for_the_same_trainings_are_compiled_once(tmp_path):
    corpus = summarised_corpus(tmp_path / "corpus")
    ablation = grid(corpus, tmp_path / "runs", seeds=(0, 1), order=0)
    runs = plan(ablation)
    variants = {name: [run for run in runs if run.variant == name] for name in ablation.variants}
    states = {run.name: state_of(run, ablation) for run in runs}
    training, known = [Task(runs=variants["donor"], stage="train")], set()

    def compiled(working=training) -> list[list[str]]:
        found = to_compile(runs, states, working, known, together=2)
        assert all(task.stage == "compile" for task in found)
        return [[f"{run.variant}{run.seed}" for run in task.runs] for task in found]

    assert compiled() == [], "the donor has no vocabulary yet"
    for run in variants["donor"] + variants["other"]:
        run.experiment.run.mkdir(parents=True)
        (run.experiment.run / METRICS).touch()
    assert compiled() == [["one0", "one1"], ["other0", "other1"]], "`later` is far away"
    assert compiled([]) == [], "nobody trains it"
    known |= {run.name for run in variants["one"]}
    assert compiled() == [["other0", "other1"]]
    (variants["donor"][0].experiment.run / ENDED).touch()
    assert compiled() == [], "they can be trained now"
    assert compiled([Task(runs=variants["other"], stage="train")]) == [["later0", "later1"]]
    apart = [Task(runs=[run], stage="train") for run in variants["other"]]
    assert compiled(apart) == [["later0"], ["later1"]], "they will not be ready at once"
