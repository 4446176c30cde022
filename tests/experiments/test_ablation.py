"""A grid is addressed by content, survives what kills it, and keeps what failed."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from data_pipelines.corpora import Phrasebook
from data_pipelines.prepare import Preparation, prepare
from data_pipelines.prepared import SUMMARY
from experiments import evaluating, working
from experiments.ablating import Grid, Working, ablate, collect, summary
from experiments.ablation import Ablation, Planned, evaluations_of, plan
from experiments.ablation_report import spent_of, write_answer
from experiments.energy import SPENT
from experiments.evaluation import Evaluation
from experiments.experiment import Begin, ExperimentError
from experiments.standing import Task, groups, next_tasks, state_of, to_evaluate
from experiments.working import FAILED, alone, lacking, work
from simuljax.eval import Record
from simuljax.eval.records import record_line
from simuljax.train.member import ENDED
from simuljax.train.metrics import read_metrics
from tests.experiments.small_run import experiment


def grid(corpus: Path, runs: Path, **changes) -> Ablation:
    """A row that the two of the table begin with, and a later phase of one of them."""
    donor = experiment(corpus, runs / "donor")
    begin = (Begin(run=donor.run, checkpoint="last"),)
    corpus_of_donor = dataclasses.replace(donor.corpus, vocabularies_of=donor.run)
    one = dataclasses.replace(donor, run=runs / "one", begin=begin, corpus=corpus_of_donor)
    other = dataclasses.replace(
        one,
        run=runs / "other",
        training=dataclasses.replace(one.training, accumulate=2),
    )
    later = dataclasses.replace(other, run=runs / "later", begin=(Begin(run=other.run),))
    rows = {"donor": donor, "one": one, "other": other, "later": later}
    given = {
        "runs": runs,
        "rows": rows,
        "table": ("one", "other"),
        "baseline": "one",
        "curves": {"other": ("later",)},
        "seeds": (0, 1),
        "evaluations": (Evaluation(run=Path(), mode="offline", frames=8_000),),
    }
    return Ablation(**given | changes)


@pytest.fixture
def corpus(tmp_path) -> Path:
    """As far as an address looks at it."""
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / SUMMARY).write_text("{}")
    return tmp_path / "corpus"


def with_training(ablation: Ablation, row: str, **changes) -> Ablation:
    old = ablation.rows[row]
    new = dataclasses.replace(old, training=dataclasses.replace(old.training, **changes))
    return dataclasses.replace(ablation, rows={**ablation.rows, row: new})


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


WAYS = tuple(Evaluation(run=Path(), mode=mode) for mode in ("offline", "live", "streamed"))


def all_trained(corpus: Path, runs: Path) -> tuple[Ablation, list[Planned]]:
    """Two runs to be evaluated in three ways, one of them with the clock running."""
    ablation = grid(corpus, runs, seeds=(0,), curves={}, evaluations=WAYS)
    planned = plan(ablation)
    for run in planned:
        run.experiment.run.mkdir(parents=True)
        (run.experiment.run / ENDED).write_text("{}")
    return ablation, planned


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


def write_scores(way: Evaluation) -> None:
    way.folder.mkdir(parents=True, exist_ok=True)
    (way.folder / "scores.json").write_text("{}")


def test_several_evaluate_a_run_and_none_what_another_does(corpus, tmp_path, monkeypatch):
    ablation, (_, one, _) = all_trained(corpus, tmp_path / "runs")
    done: list[str] = []

    def slowly(way: Evaluation) -> None:
        done.append(way.mode)
        time.sleep(0.5)
        write_scores(way)

    monkeypatch.setattr("experiments.working.evaluate", slowly)
    monkeypatch.setattr("experiments.working.diagnose", lambda way: done.append("heads"))
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


FILE = """
from pathlib import Path
from tests.experiments.test_ablation import grid, with_training
ABLATION = grid(Path({corpus!r}), Path({runs!r}), seeds=(0,), curves={{}})
"""


def spoken(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A corpus of a few sentences, and where runs and the file of a grid are to be."""
    pytest.importorskip("espeakng_loader", reason="needs `pip install 'simuljax[speech]'`")
    corpus = tmp_path / "corpus"
    prepare(Preparation(corpus=Phrasebook(train=24, valid=8, test=6)), None, corpus, 1)
    return corpus, tmp_path / "runs", tmp_path / "grid.py"


@pytest.mark.slow
def test_a_grid_that_is_killed_goes_on(tmp_path):
    corpus, runs, file = spoken(tmp_path)
    file.write_text(FILE.format(corpus=str(corpus), runs=str(runs)))
    command = [sys.executable, "-m", "simuljax.cli", "ablate", str(file)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    while not list(runs.glob("donor-*/metrics.jsonl")):
        assert process.poll() is None
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    subprocess.run(command, env=environment, check=True)
    assert len(list(runs.glob("*/ended.json"))) == 3
    scores = {path.parents[2].name: path.read_text() for path in runs.glob("*/eval/*/scores.json")}
    assert len(scores) == 2
    before = {path: path.stat().st_mtime_ns for path in runs.glob("*/eval/*/instances.log")}
    subprocess.run(command, env=environment, check=True)
    assert {path: path.stat().st_mtime_ns for path in before} == before, "nothing is done twice"
    for path in runs.glob("*/spent.json"):
        assert json.loads(path.read_text())["training"]["seconds"] > 0


@pytest.mark.slow
def test_the_clock_runs_last(tmp_path):
    corpus, runs, file = spoken(tmp_path)
    asked = """
from dataclasses import replace
from tests.experiments.test_ablation import WAYS
few = {"frames": 8_000, "first": 2, "repeats": 1}
ABLATION = replace(ABLATION, evaluations=tuple(replace(way, **few) for way in WAYS))
"""
    file.write_text(FILE.format(corpus=str(corpus), runs=str(runs)) + asked)
    command = [sys.executable, "-m", "simuljax.cli", "ablate", str(file), "--workers", "3"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run(command, env=environment, check=True)
    written = {path: path.stat().st_mtime for path in runs.glob("*/eval/*/scores.json")}
    live = {path for path in written if "live" in path.parent.name}
    assert len(written) == 6 and len(live) == 2
    assert min(written[path] for path in live) > max(
        written[path] for path in written.keys() - live
    )
    assert all("computation_aware" in json.loads(path.read_text()) for path in live)


@pytest.mark.slow
def test_seeds_together_give_what_they_give_alone(tmp_path):
    corpus, _, file = spoken(tmp_path)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    told = {}
    for together in ("1", "2"):
        runs = tmp_path / together
        two = FILE.format(corpus=str(corpus), runs=str(runs)).replace("(0,)", "(0, 1)")
        file.write_text(two)
        command = [sys.executable, "-m", "simuljax.cli", "ablate", str(file)]
        many = ["--together", together, "--workers", together]
        subprocess.run([*command, *many], env=environment, check=True)
        told[together] = {
            path.parents[2].name: json.loads(path.read_text())
            for path in sorted(runs.glob("*/eval/*/scores.json"))
        }
    assert told["1"].keys() == told["2"].keys() and len(told["1"]) == 4
    losses = [
        [read_metrics(run)[-1]["values"] for run in sorted((tmp_path / each).glob("o*-seed*"))]
        for each in ("1", "2")
    ]
    for alone_, among in zip(*losses, strict=True):
        assert among == pytest.approx(alone_, rel=1e-2)


@pytest.mark.slow
def test_a_run_that_fails_does_not_stop_the_rest(tmp_path, capsys):
    corpus, runs, file = spoken(tmp_path)
    broken = "ABLATION = with_training(ABLATION, 'other', accumulate=-1)\n"
    file.write_text(FILE.format(corpus=str(corpus), runs=str(runs)) + broken)
    from experiments.ablation import load_ablation

    ablate(Grid(file=file), load_ablation(file))
    said = capsys.readouterr().out
    assert "2 of 3 runs are done" in said
    assert "failed: " in said and "other-seed0" in said


def test_one_that_cannot_be_evaluated_leaves_the_others_alone(corpus, tmp_path, monkeypatch):
    ablation, (_, one, other) = all_trained(corpus, tmp_path / "runs")
    seen = []

    def evaluate_all(run: Planned, *_: object) -> None:
        seen.append(run.row)
        if run == one:
            raise ValueError("one is broken")

    monkeypatch.setattr(working, "evaluate_all", evaluate_all)
    for stage in ("evaluate", "clock"):
        with pytest.raises(ExperimentError, match="could not be evaluated: one-seed0"):
            working.work([one, other], ablation, stage)
    assert seen == ["one", "other"] * 2
    assert "one is broken" in (one.experiment.run / FAILED).read_text()
    assert not (other.experiment.run / FAILED).exists()

    class Ended:
        returncode = 1

        def poll(self) -> int:
            return 1

    task = Task(runs=[one, other], stage="evaluate")
    collect([Working(task=task, process=Ended())])  # pyright: ignore[reportArgumentType]
    assert not (other.experiment.run / FAILED).exists(), "it was said which one failed"
    (one.experiment.run / FAILED).unlink()
    collect([Working(task=task, process=Ended())])  # pyright: ignore[reportArgumentType]
    assert "nothing was said" in (other.experiment.run / FAILED).read_text()


def test_what_was_killed_before_it_noted_its_time_has_a_page(corpus, tmp_path):
    ablation, (_, one, _) = all_trained(corpus, tmp_path / "runs")
    (one.experiment.run / SPENT).write_text('{"evaluation": {"seconds": 1.0, "joules": null}}')
    assert spent_of(one) == []
    with pytest.raises(ExperimentError, match="no evaluation of this grid has come to its end"):
        write_answer(ablation, plan(ablation), "simuljax ablate x.py")


def test_what_is_evaluated_anew_is_not_done_yet(tmp_path):
    way = Evaluation(run=tmp_path / "run", mode="offline")
    evaluating.begin(way, [100])
    write_scores(way)
    (way.folder / "instances.log").write_text("")
    evaluating.begin(way, [200])
    assert [path.name for path in way.folder.iterdir()] == ["config.json"]


def test_a_log_may_be_cut_inside_a_letter(tmp_path):
    part = tmp_path / "instances.log.part"
    record = Record(index=0, prediction="für", delays=(1.0,), reference="für", source_length=1.0)
    line = (record_line(record) + "\n").encode()
    part.write_bytes(line + line[: line.index("ü".encode()) + 1])
    assert [each.prediction for each in evaluating.whole_lines(part)] == ["für"]
    assert part.read_bytes() == line
