"""Rows of a grid that are evaluated in ways of their own, and cascades of rows."""

import dataclasses
from pathlib import Path

import pytest

from data_pipelines.prepared import SUMMARY
from simuljax.ablate.grid import Ablation, evaluations_of, plan
from simuljax.ablate.scheduler import state_of
from simuljax.ablate.summary import evaluated, row_of
from simuljax.config import document
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import ExperimentError
from simuljax.train.member import ENDED
from tests.eval.logs import made_up
from tests.report.runs import evaluation
from tests.runs.small_run import experiment

ANY = Path()


@pytest.fixture
def grid(tmp_path) -> Ablation:
    """A recogniser that is followed by a row which is only needed for that."""
    (tmp_path / SUMMARY).write_text("{}")
    rows = {name: experiment(tmp_path, tmp_path / name) for name in ("mma", "asr", "mt")}
    rows["asr"] = dataclasses.replace(rows["asr"], training=dataclasses.replace(
        rows["asr"].training, accumulate=2))  # fmt: skip
    return Ablation(
        runs=tmp_path / "runs",
        rows=rows,
        table=("mma", "asr"),
        baseline="mma",
        evaluations=(Evaluation(run=ANY), Evaluation(run=ANY, threshold=0.2)),
        own={"asr": (Evaluation(run=ANY, then=rows["mt"].run, then_k=3),)},
        seeds=(0, 1),
    )


def test_a_row_that_follows_another_is_trained_first(grid):
    runs = {(run.row, run.seed): run for run in plan(grid)}
    assert list(runs) == [("mma", 0), ("mma", 1), ("mt", None), ("asr", 0), ("asr", 1)]
    (cascade,) = evaluations_of(runs["asr", 1], grid)
    assert cascade.run == runs["asr", 1].experiment.run
    assert cascade.then == runs["mt", None].experiment.run
    assert cascade.folder.name.startswith("test-speech-streamed-then-mt-")
    assert len(evaluations_of(runs["mma", 0], grid)) == 2
    assert evaluations_of(runs["mt", None], grid) == []


def test_what_follows_does_not_change_what_is_trained(grid):
    without = dataclasses.replace(grid, own={})
    assert {run.name for run in plan(without)} < {run.name for run in plan(grid)}


def test_a_row_is_done_when_its_own_evaluations_are(grid):
    (run,) = [run for run in plan(grid) if (run.row, run.seed) == ("asr", 0)]
    (run.experiment.run).mkdir(parents=True)
    document.write(run.experiment.run / ENDED, {})
    assert state_of(run, grid) == "trained"
    (way,) = evaluations_of(run, grid)
    way.folder.mkdir(parents=True)
    document.write(way.folder / "scores.json", {})
    assert state_of(run, grid) == "done"
    assert evaluated(plan(grid)[0], grid) == {}


def test_the_seeds_of_a_cascade_are_one_setting(grid):
    """Each is followed by the run of its own seed."""
    both = dataclasses.replace(grid, table=(*grid.table, "mt"), own={**grid.own, "mt": ()})
    runs, folders = plan(both), set()
    for run in [run for run in runs if run.row == "asr"]:
        (way,) = evaluations_of(run, both)
        folders.add(way.folder.name)
        evaluation(run.experiment.run, way.folder.name, made_up(run.seed or 0))
    assert len(folders) == 2
    (setting,) = row_of(both, runs, "asr").settings.values()
    assert setting.name == "test-speech-streamed-then-mt-k3"
    assert list(setting.by_seed) == [0, 1]


def test_cascades_of_two_rows_whose_runs_have_one_name_are_two_settings(grid, tmp_path):
    other = experiment(tmp_path, tmp_path / "another" / "mt")
    after = [Evaluation(run=ANY, then=then) for then in (grid.rows["mt"].run, other.run)]
    both = dataclasses.replace(
        grid, rows={**grid.rows, "other_mt": other}, own={"asr": tuple(after)}, seeds=(0,)
    )
    (run,) = [run for run in plan(both) if run.row == "asr"]
    for way in evaluations_of(run, both):
        evaluation(run.experiment.run, way.folder.name, made_up(0))
    named = {"test-speech-streamed-then-mt", "test-speech-streamed-then-other_mt"}
    assert set(evaluated(run, both)) == named


def test_ways_of_a_row_that_is_not_there_are_refused(grid):
    with pytest.raises(ExperimentError, match="there is no row 'asrr'"):
        dataclasses.replace(grid, own={"asrr": ()})
