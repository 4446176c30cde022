"""A grid survives what kills it, keeps what failed, and does nothing twice."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from data_pipelines import contents
from data_pipelines.utterance import CorpusError
from simuljax.ablate import worker as working
from simuljax.ablate.ablate import Grid, Working, ablate, collect
from simuljax.ablate.energy import SPENT
from simuljax.ablate.grid import Planned, evaluations_of, load_ablation, plan
from simuljax.ablate.scheduler import Task
from simuljax.ablate.summary import spent_of, write_answer
from simuljax.ablate.worker import FAILED
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import ExperimentError
from simuljax.eval import Record
from simuljax.eval.logs import record_line
from simuljax.runs import evaluate as evaluating
from simuljax.train.member import ENDED
from simuljax.train.metrics import read_metrics
from tests.ablate.small_ablation import (
    FILE,
    all_trained,
    as_addressed,
    grid,
    spoken,
    write_scores,
)


@pytest.fixture
def corpus(tmp_path) -> Path:
    return as_addressed(tmp_path / "corpus")


@pytest.mark.slow
def test_a_grid_that_is_killed_goes_on(tmp_path):
    corpus, runs, file = spoken(tmp_path)
    file.write_text(FILE.format(corpus=str(corpus), runs=str(runs)))
    command = [sys.executable, "-m", "simuljax.cli.main", "ablate", str(file)]
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
from tests.ablate.small_ablation import WAYS
few = {"frames": 8_000, "first": 2, "repeats": 1}
ABLATION = replace(ABLATION, evaluations=tuple(replace(way, **few) for way in WAYS))
"""
    file.write_text(FILE.format(corpus=str(corpus), runs=str(runs)) + asked)
    command = [sys.executable, "-m", "simuljax.cli.main", "ablate", str(file), "--workers", "3"]
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
        command = [sys.executable, "-m", "simuljax.cli.main", "ablate", str(file)]
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
    with pytest.raises(ExperimentError, match="1 of 3 runs failed"):
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
    evaluating.begin(way, [100], tmp_path)
    write_scores(way)
    (way.folder / "instances.log").write_text("")
    evaluating.begin(way, [200], tmp_path)
    assert [path.name for path in way.folder.iterdir()] == ["config.json"]


def test_a_log_may_be_cut_inside_a_letter(tmp_path):
    part = tmp_path / "instances.log.part"
    record = Record(index=0, prediction="für", delays=(1.0,), reference="für", source_length=1.0)
    line = (record_line(record) + "\n").encode()
    part.write_bytes(line + line[: line.index("ü".encode()) + 1])
    assert [each.prediction for each in evaluating.whole_lines(part)] == ["für"]
    assert part.read_bytes() == line


def test_what_another_works_on_is_left_to_it(corpus, tmp_path, monkeypatch, capsys):
    ablation, (_, one, other) = all_trained(corpus, tmp_path / "runs")
    for run in (one, other):
        (run.experiment.run / ENDED).unlink()
    trained = []
    monkeypatch.setattr(working, "train_all", trained.extend)
    with working.alone(one.experiment.run):
        working.work([one, other], ablation, "train")
        assert trained == [other]
        assert "one-seed0" in capsys.readouterr().out
        with pytest.raises(ExperimentError, match="another process"):
            working.work([one], ablation, "train")


def test_what_was_told_to_stop_is_not_evaluated(corpus, tmp_path, monkeypatch):
    ablation = grid(corpus, tmp_path / "runs")
    one, seen = plan(ablation)[1], []
    monkeypatch.setattr(working, "evaluate_all", lambda run, *_: seen.append(run.name))
    monkeypatch.setattr(working, "train_all", lambda runs: None)  # SIGTERM, and it saved its state
    working.work([one], ablation)
    assert not seen
    (one.experiment.run / ENDED).write_text("{}")
    working.work([one], ablation)
    assert seen == [one.name]


def test_a_run_that_was_killed_says_so(corpus, tmp_path):
    _, (one, *_) = all_trained(corpus, tmp_path / "runs")
    (one.experiment.run / "output.log").write_text("step 10/30 | loss 10.5\n")
    process = subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    process.wait()
    collect([Working(task=Task(runs=[one], stage="train"), process=process)])
    said = (one.experiment.run / FAILED).read_text().splitlines()
    assert said[-1] == "killed by signal 9 (for want of memory?)" and "step 10/30" in said[1]


def test_a_run_that_did_not_fit_says_what_to_ask_for(corpus, tmp_path):
    _, (one, *_) = all_trained(corpus, tmp_path / "runs")
    (one.experiment.run / "output.log").write_text("JaxRuntimeError: RESOURCE_EXHAUSTED: 24 GiB\n")
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"])
    process.wait()
    collect([Working(task=Task(runs=[one], stage="train"), process=process)])
    said = (one.experiment.run / FAILED).read_text().splitlines()
    assert said[-1] == "the device's memory ran out: ask for fewer --together or --workers"


def test_a_corpus_that_was_built_anew_from_other_texts_is_refused(corpus, tmp_path):
    ablation, runs = all_trained(corpus, tmp_path / "runs")
    one = next(run for run in runs if run.row in ablation.table)
    (corpus / "train.tsv").write_text("as it was")
    contents.keep(one.experiment.run, one.experiment.corpus.tables())
    working.check_all_data(runs, ablation)
    (corpus / "train.tsv").write_text("of other texts")
    with pytest.raises(CorpusError, match=f"{one.name} has learnt from another train"):
        working.check_all_data(runs, ablation)


def test_scores_of_another_split_are_refused(corpus, tmp_path):
    ablation, runs = all_trained(corpus, tmp_path / "runs")
    way = evaluations_of(next(run for run in runs if run.row in ablation.table), ablation)[0]
    (corpus / "test.tsv").write_text("as it was")
    evaluating.begin(way, [4], corpus)
    working.check_all_data(runs, ablation)
    (corpus / "test.tsv").write_text("of other texts")
    with pytest.raises(ExperimentError, match=r"is of another test than .* holds now"):
        working.check_all_data(runs, ablation)
    with pytest.raises(ExperimentError, match="--name"):
        evaluating.begin(way, [4], corpus)
