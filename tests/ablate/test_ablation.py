"""A grid is addressed by content, and planned so that whoever is free has something to do."""

import dataclasses
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from data_pipelines.prepared import SUMMARY
from simuljax.ablate.ablate import summary
from simuljax.ablate.grid import Ablation, Planned, evaluations_of, plan
from simuljax.ablate.scheduler import Task, groups, next_tasks, state_of, to_evaluate
from simuljax.ablate.worker import FAILED, alone, lacking, work
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import ExperimentError
from simuljax.train.member import ENDED
from tests.ablate.small_ablation import (
    all_trained,
    as_addressed,
    grid,
    with_training,
    write_scores,
)


@pytest.fixture
def corpus(tmp_path) -> Path:
    return as_addressed(tmp_path / "corpus")


def test_runs_come_after_those_they_begin_with(corpus, tmp_path):
    runs = plan(grid(corpus, tmp_path / "runs"))
    rows = [(run.row, run.seed) for run in runs]
    assert rows[0] == ("donor", None)
    assert sorted(rows[1:]) == [(row, s) for row in ("later", "one", "other") for s in (0, 1)]
    by_name = {run.name: run for run in runs}
    assert len(by_name) == 7
    for i, run in enumerate(runs):
        assert {need.name for need in run.needs} <= {earlier.name for earlier in runs[:i]}
        assert run.experiment.run == tmp_path / "runs" / run.name
        for begin in run.experiment.begin:
            assert begin.run.name in by_name
    (later,) = [run for run in runs if (run.row, run.seed) == ("later", 1)]
    assert [need.seed for need in later.needs if need.row == "other"] == [1]


def addresses(ablation: Ablation) -> dict[str, str]:
    return {f"{run.row}{run.seed}": run.address for run in plan(ablation)}


def test_an_address_is_of_all_that_matters_and_of_nothing_else(corpus, tmp_path):
    base = grid(corpus, tmp_path / "runs")
    before = addresses(base)
    assert addresses(grid(corpus, tmp_path / "elsewhere")) == before
    assert addresses(with_training(base, "other", log_every=77)) == before
    longer = addresses(with_training(base, "other", updates=77))
    changed = {name for name in before if longer[name] != before[name]}
    assert changed == {"other0", "other1", "later0", "later1"}, "and what begins with it"
    donor = addresses(with_training(base, "donor", updates=77))
    assert all(donor[name] != before[name] for name in before)
    (corpus / SUMMARY).write_text('{"sentences": 3}')
    assert not set(addresses(base).values()) & set(before.values())


def test_mistakes_are_named(corpus, tmp_path):
    with pytest.raises(ExperimentError, match="no row 'on'"):
        grid(corpus, tmp_path, table=("on",))
    with pytest.raises(ExperimentError, match="no row of the table"):
        grid(corpus, tmp_path, baseline="donor")
    (corpus / SUMMARY).unlink()
    with pytest.raises(ExperimentError, match="holds no prepared corpus"):
        plan(grid(corpus, tmp_path))


def test_an_average_that_will_not_be_written_is_refused(corpus, tmp_path):
    averaged = Evaluation(run=Path(), checkpoint="averaged")
    with pytest.raises(ExperimentError, match=r"'one' asks for averaged .*one, whose training"):
        grid(corpus, tmp_path, own={"one": (averaged,)})
    kept = with_training(grid(corpus, tmp_path), "one", average=2)
    dataclasses.replace(kept, own={"one": (averaged,)})
    then = dataclasses.replace(averaged, then=tmp_path / "donor")
    with pytest.raises(ExperimentError, match=r"'one' asks for averaged .*donor, whose training"):
        dataclasses.replace(kept, own={"one": (then,)})


def hold_for_a_moment(directory: Path) -> None:
    with alone(directory):
        time.sleep(0.5)


def test_where_runs_stand(corpus, tmp_path):
    ablation = grid(corpus, tmp_path / "runs", seeds=(0,), curves={})
    donor, one, other = plan(ablation)
    assert state_of(donor, ablation) == "waiting"
    donor.experiment.run.mkdir(parents=True)
    with alone(donor.experiment.run):
        assert state_of(donor, ablation) == "running"
        with pytest.raises(ExperimentError, match="another process"), alone(donor.experiment.run):
            pass
    asks = threading.Thread(target=hold_for_a_moment, args=(donor.experiment.run,))
    asks.start()
    time.sleep(0.1)
    with alone(donor.experiment.run):  # whoever only asks is waited for
        asks.join()
    (donor.experiment.run / FAILED).write_text("exit 1\nno memory")
    assert state_of(donor, ablation) == "failed"
    assert state_of(one, ablation) == "blocked"
    assert "no memory" in summary([donor, one, other], ablation, 3.0)
    (donor.experiment.run / FAILED).unlink()
    (donor.experiment.run / ENDED).write_text("{}")
    assert state_of(donor, ablation) == "done"
    assert state_of(one, ablation) == "waiting"


def told(
    runs: Sequence[Planned], ablation: Ablation, workers: int, working: Sequence[Task] = ()
) -> list[tuple[str, list[str]]]:
    """What comes next."""
    states = {run.name: state_of(run, ablation) for run in runs}
    left = {run.name: to_evaluate(run, ablation) for run in runs}
    found = next_tasks(runs, states, working, left, workers=workers, together=2)
    return [(task.stage, [f"{run.row}{run.seed}" for run in task.runs]) for task in found]


def test_who_is_idle_helps_to_evaluate_and_the_clock_runs_alone(corpus, tmp_path):
    ablation, runs = all_trained(corpus, tmp_path / "runs")
    _, one, other = runs
    ones, others = ("evaluate", ["one0"]), ("evaluate", ["other0"])
    assert told(runs, ablation, 2) == [ones, others]
    assert told(runs, ablation, 3) == [ones, others, ones]
    assert told(runs, ablation, 9) == [ones, others, ones, others], "two ways need no clock"
    busy = [Task(runs=[run], stage="evaluate") for run in (one, other, one)]
    assert told(runs, ablation, 9, busy) == [others]
    (other.experiment.run / FAILED).write_text("exit 1")
    assert told(runs, ablation, 9, busy) == [], "what fails is not begun again and again"
    (other.experiment.run / FAILED).unlink()
    for way in [*evaluations_of(one, ablation), *evaluations_of(other, ablation)]:
        if way.mode != "live":
            write_scores(way)
    assert [state_of(run, ablation) for run in runs] == ["done", "unclocked", "unclocked"]
    assert told(runs, ablation, 9, busy) == [], "it waits until they have ended"
    assert told(runs, ablation, 9) == [("clock", ["one0", "other0"])]
    (live,) = lacking(one, ablation)
    live.folder.mkdir(parents=True)
    with alone(live.folder):  # by whoever else works on this grid
        assert state_of(one, ablation) == "running"
        assert told(runs, ablation, 9) == []


def test_several_evaluate_a_run_and_none_what_another_does(corpus, tmp_path, monkeypatch):
    ablation, (_, one, _) = all_trained(corpus, tmp_path / "runs")
    done: list[str] = []

    def slowly(way: Evaluation) -> None:
        done.append(way.mode)
        time.sleep(0.5)
        write_scores(way)

    monkeypatch.setattr("simuljax.ablate.worker.evaluate", slowly)
    monkeypatch.setattr("simuljax.ablate.worker.diagnose", lambda way: done.append("heads"))
    both = [threading.Thread(target=work, args=([one], ablation, "evaluate")) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert sorted(done) == ["heads", "offline", "streamed"]
    work([one], ablation, "clock")
    assert done[3:] == ["live"]
    assert state_of(one, ablation) == "done"


def test_evaluations_and_trainings_take_turns(corpus, tmp_path):
    """Whole rows first; of several workers one is left to training while there is some."""
    ablation = grid(corpus, tmp_path / "runs", seeds=(0, 1), order=0)
    runs = plan(ablation)

    def tasks(workers: int, working: Sequence[Task] = ()) -> list[tuple[str, list[str]]]:
        return told(runs, ablation, workers, working)

    assert tasks(3) == [("train", ["donorNone"])]
    assert tasks(1) == [("both", ["donorNone"])]
    for run in runs:
        if run.row in ("donor", "other"):
            run.experiment.run.mkdir(parents=True)
            (run.experiment.run / ENDED).write_text("{}")
    later, one = ("train", ["later0", "later1"]), ("train", ["one0", "one1"])
    others = ("evaluate", ["other0", "other1"])
    assert tasks(1) == [others]
    assert tasks(2) == [others, later]
    assert tasks(4) == [("evaluate", ["other0"]), ("evaluate", ["other1"]), later, one]
    busy = Task(runs=[run for run in runs if run.row == "other"], stage="evaluate")
    assert tasks(2, [busy]) == [later]
    assert tasks(1, [busy]) == []
    ending = Task(runs=busy.runs, stage="train")
    (busy.runs[1].experiment.run / ENDED).unlink()
    assert tasks(2, [ending]) == [one], "what begins with one of them waits for the other"


def test_runs_that_differ_in_seeds_and_weights_are_worked_on_together(corpus, tmp_path):
    def rows(order, size=9):
        ablation = grid(corpus, tmp_path / "runs", seeds=(0, 1, 2), order=order)
        runs = [run for run in plan(ablation) if run.seed is not None]
        return [[f"{run.row}{run.seed}" for run in group] for group in groups(runs, size)]

    assert all(len({name[-1] for name in group}) == 1 for group in rows(None)), "other batches"
    ones, others = ["one0", "one1", "one2"], ["other0", "other1", "other2"]
    later = ["later0", "later1", "later2"]
    assert rows(0) == [ones, others + later]
    assert rows(0, size=2) == [ones[:2], ones[2:], others[:2], [others[2], "later0"], later[1:]]
