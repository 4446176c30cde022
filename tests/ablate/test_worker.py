"""Work on runs: locks, evaluations shared by processes, failures, corpora that changed."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from data_pipelines.dataset import record_used_data
from data_pipelines.utterance import CorpusError
from simuljax.ablate import worker
from simuljax.ablate.grid import Planned, evaluations_of, plan
from simuljax.ablate.run import Worker, collect, write_summary
from simuljax.ablate.scheduler import Task, state_of
from simuljax.ablate.worker import FAILED, SPENT, locked, work
from simuljax.config.evaluation import Evaluation
from simuljax.config.fields import ConfigError
from simuljax.eval import Record
from simuljax.eval.logs import record_line
from simuljax.runs import evaluate as evaluating
from simuljax.train.loop import ENDED
from tests.helpers.grids import all_trained, grid, summarised_corpus, write_scores

KILL, FAIL = "import os; os.kill(os.getpid(), 9)", "raise SystemExit(1)"


@pytest.fixture
def corpus(tmp_path) -> Path:
    return summarised_corpus(tmp_path / "corpus")


def ended(code: str) -> subprocess.Popen[bytes]:
    """Return a process that has run this code and ended."""
    process = subprocess.Popen([sys.executable, "-c", code])
    process.wait()
    return process


def test_lock_waits_for_a_moment(tmp_path):
    def hold() -> None:
        with locked(tmp_path):
            time.sleep(0.5)

    holder = threading.Thread(target=hold)
    holder.start()
    time.sleep(0.1)
    with pytest.raises(ConfigError, match="another process"), locked(tmp_path, 0.0):
        pass
    with locked(tmp_path):
        holder.join()


def test_two_processes_share_the_evaluations_of_a_run(corpus, tmp_path, monkeypatch):
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


def test_failed_evaluation_leaves_the_other_runs_alone(corpus, tmp_path, monkeypatch):
    ablation, (_, one, other) = all_trained(corpus, tmp_path / "runs")
    seen = []

    def evaluate_all(run: Planned, *_: object) -> None:
        seen.append(run.variant)
        if run == one:
            raise ValueError("one is broken")

    monkeypatch.setattr(worker, "evaluate_all", evaluate_all)
    for stage in ("evaluate", "clock"):
        with pytest.raises(ConfigError, match="could not be evaluated: one-seed0"):
            worker.work([one, other], ablation, stage)
    assert seen == ["one", "other"] * 2
    assert "one is broken" in (one.experiment.run / FAILED).read_text()
    assert not (other.experiment.run / FAILED).exists()

    task = Task(runs=[one, other], stage="evaluate")
    collect([Worker(task=task, process=ended(FAIL))])
    assert not (other.experiment.run / FAILED).exists(), "it was said which one failed"
    (one.experiment.run / FAILED).unlink()
    collect([Worker(task=task, process=ended(FAIL))])
    assert "no output" in (other.experiment.run / FAILED).read_text()


def test_killed_run_has_no_training_time(corpus, tmp_path):
    ablation, (_, one, _) = all_trained(corpus, tmp_path / "runs")
    (one.experiment.run / SPENT).write_text('{"evaluation": {"seconds": 1.0, "joules": null}}')
    with pytest.raises(ConfigError, match=str(ablation.runs)):
        write_summary(ablation, plan(ablation), "simuljax ablate x.py")


def test_evaluation_of_another_checkpoint_removes_old_results(tmp_path):
    way = Evaluation(run=tmp_path / "run", mode="offline")
    evaluating.open_folder(way, [100], tmp_path)
    write_scores(way)
    (way.folder / "instances.log").write_text("")
    evaluating.open_folder(way, [200], tmp_path)
    assert [path.name for path in way.folder.iterdir()] == ["config.json"]


def test_partial_log_cut_inside_a_character_is_read(tmp_path):
    part = tmp_path / "instances.log.part"
    record = Record(index=0, prediction="für", delays=(1.0,), reference="für", source_length=1.0)
    line = (record_line(record) + "\n").encode()
    part.write_bytes(line + line[: line.index("ü".encode()) + 1])
    assert [each.prediction for each in evaluating.read_partial(part)] == ["für"]
    assert part.read_bytes() == line


def test_locked_run_is_left_to_its_process(corpus, tmp_path, monkeypatch, capsys):
    ablation, (_, one, other) = all_trained(corpus, tmp_path / "runs")
    for run in (one, other):
        (run.experiment.run / ENDED).unlink()
    trained = []
    monkeypatch.setattr(worker, "train_all", trained.extend)
    with worker.locked(one.experiment.run):
        worker.work([one, other], ablation, "train")
        assert trained == [other]
        assert "one-seed0" in capsys.readouterr().out
        with pytest.raises(ConfigError, match="another process"):
            worker.work([one], ablation, "train")


def test_interrupted_training_is_not_evaluated(corpus, tmp_path, monkeypatch):
    ablation = grid(corpus, tmp_path / "runs")
    one, seen = plan(ablation)[1], []
    monkeypatch.setattr(worker, "evaluate_all", lambda run, *_: seen.append(run.name))
    monkeypatch.setattr(worker, "train_all", lambda runs: None)  # SIGTERM, and it saved its state
    worker.work([one], ablation)
    assert not seen
    (one.experiment.run / ENDED).write_text("{}")
    worker.work([one], ablation)
    assert seen == [one.name]


@pytest.mark.parametrize(
    ("code", "output", "facts"),
    [
        (KILL, "step 10/30 | loss 10.5", ["signal 9", "step 10/30"]),
        (FAIL, "JaxRuntimeError: RESOURCE_EXHAUSTED: 24 GiB", ["--together", "--workers"]),
    ],
)
def test_a_process_that_fails_without_an_error_of_its_own(corpus, tmp_path, code, output, facts):
    _, (one, other, _) = all_trained(corpus, tmp_path / "runs")
    (one.experiment.run / "output.log").write_text(f"{output}\n")
    collect([Worker(task=Task(runs=[one], stage="train"), process=ended(code))])
    assert all(fact in (one.experiment.run / FAILED).read_text() for fact in facts)
    compiling = [Worker(task=Task(runs=[other], stage="compile"), process=ended(code))]
    collect(compiling)  # training will meet the same error
    assert not compiling and not (other.experiment.run / FAILED).exists()


def test_changed_data_is_rejected(corpus, tmp_path):
    ablation, runs = all_trained(corpus, tmp_path / "runs")
    one = next(run for run in runs if run.variant in ablation.table)
    way = evaluations_of(one, ablation)[0]
    (corpus / "test.tsv").write_text("as it was")
    evaluating.open_folder(way, [4], corpus)
    worker.check_all_data(runs, ablation)
    (corpus / "test.tsv").write_text("of other texts")
    with pytest.raises(ConfigError, match=r"other data than test in"):
        worker.check_all_data(runs, ablation)
    with pytest.raises(ConfigError, match="--name"):
        evaluating.open_folder(way, [4], corpus)
    (corpus / "test.tsv").write_text("as it was")
    (corpus / "train.tsv").write_text("as it was")
    record_used_data(one.experiment.run, one.experiment.data.tables())
    worker.check_all_data(runs, ablation)
    (corpus / "train.tsv").write_text("of other texts")
    with pytest.raises(CorpusError, match=rf"{one.name} .* another train than"):
        worker.check_all_data(runs, ablation)
