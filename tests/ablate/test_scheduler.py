"""Schedule a grid and work on its runs: states, tasks, groups, locks, failures."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data_pipelines.dataset import record_used_data
from data_pipelines.utterance import CorpusError
from simuljax.ablate.grid import FAILED, Grid, Planned, Stage, plan
from simuljax.ablate.run import (
    BLOCKED,
    AblateOptions,
    Meter,
    Started,
    check_all_data,
    collect,
    describe,
    run_all,
    work,
)
from simuljax.ablate.scheduler import Program, Task, groups, next_tasks, to_begin_early
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import Joining
from simuljax.config.fields import ConfigError, read_json, write_json
from simuljax.decode.policies import policy_class
from simuljax.errors import ChoiceError
from simuljax.eval import Record
from simuljax.eval.logs import record_line
from simuljax.lock import locked
from simuljax.runs import evaluate as evaluating
from simuljax.train.loop import DivergedError
from simuljax.train.run import ENDED
from simuljax.train.run_log import FILE as METRICS
from tests.helpers.experiments import documented
from tests.helpers.grids import (
    all_trained,
    grid,
    summarised_corpus,
    trained,
    with_training,
    write_scores,
)

RUN = "simuljax.ablate.run"


@pytest.fixture
def corpus(tmp_path) -> Path:
    return summarised_corpus(tmp_path / "corpus")


def test_state_of_a_run(corpus, tmp_path):
    ablation = grid(corpus, tmp_path / "runs", seeds=(0,), curves={})
    donor, one, other = plan(ablation)
    assert donor.state == "waiting"
    donor.experiment.run.mkdir(parents=True)
    with locked(donor.experiment.run):
        assert donor.state == "running"
    assert donor.progress == "donor loads and compiles"
    (donor.experiment.run / METRICS).write_text('\n{"step": 3}\n')
    assert donor.progress == f"donor 3/{donor.to_train.training.updates}"
    (donor.experiment.run / FAILED).write_text("exit 1\nno memory")
    assert donor.state == "failed"
    assert one.state == "blocked"
    assert "no memory" in describe([donor, one, other], 3.0)
    (donor.experiment.run / FAILED).unlink()
    (donor.experiment.run / ENDED).write_text("{}")
    assert donor.state == "done"
    assert one.state == "waiting"


def tasks_of(
    runs: Sequence[Planned], workers: int, working: Sequence[Task] = ()
) -> list[tuple[str, list[str]]]:
    """What comes next."""
    states = {run.name: run.state for run in runs}
    found = next_tasks(runs, states, working, workers=workers, together=2)
    return [(task.stage, [f"{run.variant}{run.seed}" for run in task.runs]) for task in found]


def test_idle_workers_help_to_evaluate_and_the_clock_runs_alone(corpus, tmp_path):
    _, runs = all_trained(corpus, tmp_path / "runs")
    _, one, other = runs
    assert one.progress == "one/0 evaluated 0/3"
    ones, others = ("evaluate", ["one0"]), ("evaluate", ["other0"])
    assert tasks_of(runs, 2) == [ones, others]
    assert tasks_of(runs, 3) == [ones, others, ones]
    assert tasks_of(runs, 9) == [ones, others, ones, others], "two ways need no clock"
    busy = [Task(runs=[run], stage="evaluate") for run in (one, other, one)]
    assert tasks_of(runs, 9, busy) == [others]
    (other.experiment.run / FAILED).write_text("exit 1")
    assert tasks_of(runs, 9, busy) == [], "what fails is not begun again and again"
    (other.experiment.run / FAILED).unlink()
    for way in [*one.evaluations, *other.evaluations]:
        if way.mode != "live":
            write_scores(way)
    assert [run.state for run in runs] == ["done", "untimed", "untimed"]
    assert tasks_of(runs, 9, busy) == [], "it waits until they have ended"
    assert tasks_of(runs, 9) == [("clock", ["one0", "other0"])]
    (live,) = one.pending()
    live.folder.mkdir(parents=True)
    with locked(live.folder):  # by whoever else works on this grid
        assert one.state == "running"
        assert tasks_of(runs, 9) == []


def test_one_worker_is_left_for_training(corpus, tmp_path):
    """Whole variants first; of several workers one is left to training while there is some."""
    ablation = grid(corpus, tmp_path / "runs", seeds=(0, 1), order=0)
    runs = plan(ablation)

    def tasks(workers: int, working: Sequence[Task] = ()) -> list[tuple[str, list[str]]]:
        return tasks_of(runs, workers, working)

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


def test_of_runs_that_wait_for_the_same_trainings_one_for_each_program_begins_early(tmp_path):
    corpus = summarised_corpus(tmp_path / "corpus")
    ablation = grid(corpus, tmp_path / "runs", seeds=(0, 1), order=0)
    runs = plan(ablation)
    variants = {name: [run for run in runs if run.variant == name] for name in ablation.variants}
    states = {run.name: run.state for run in runs}
    training, known = [Task(runs=variants["donor"], stage="train")], []

    def early(working=training) -> list[list[str]]:
        found = to_begin_early(runs, states, working, known, together=2)
        assert all(task.stage == "train" for task in found)
        return [[f"{run.variant}{run.seed}" for run in task.runs] for task in found]

    assert early() == [], "the donor has no vocabulary yet"
    for run in variants["donor"] + variants["other"]:
        run.experiment.run.mkdir(parents=True)
        (run.experiment.run / METRICS).touch()
    assert early() == [["one0", "one1"], ["other0", "other1"]], "`later` is far away"
    assert early([]) == [], "nobody trains it"
    states[variants["donor"][0].name] = "running"  # by another command
    assert early([]) == early(training)
    states[variants["donor"][0].name] = "waiting"
    known += [Task(runs=variants["one"], stage="train").program]
    assert early() == [["other0", "other1"]]
    (variants["donor"][0].experiment.run / ENDED).touch()
    assert early() == [], "they can be trained now"
    assert early([Task(runs=variants["other"], stage="train")]) == [["later0", "later1"]]
    apart = [Task(runs=[run], stage="train") for run in variants["other"]]
    assert early(apart) == [["later0"]], "not ready at once, and one program serves both"


def test_groups_that_share_a_program_compile_it_once(corpus, tmp_path):
    ablation = grid(corpus, tmp_path / "runs", seeds=(0, 1), order=None)

    def programs(variant: str, ablation: Grid, size: int = 1) -> list[Program | None]:
        runs = [run for run in plan(ablation) if run.variant == variant]
        return [Task(runs=[run] * size, stage="train").program for run in runs]

    first, second = programs("one", ablation)
    assert first == second, "another order of batches"
    assert first != programs("other", ablation)[0] and first != programs("one", ablation, 2)[0]
    own = trained(ablation)["one"]
    for weight, same in ((0.3, True), (0.0, False)):
        objective = own.training.objective.with_weights(st_nll=weight)
        changed = with_training(ablation, "one", objective=objective)
        assert (programs("one", changed)[0] == first) == same
    joined = replace(own, data=replace(own.data, joining=Joining(utterances=2)))
    drawn = programs("one", replace(ablation, variants={**ablation.variants, "one": joined}))
    assert drawn[0] != drawn[1], "other recordings are joined"
    assert Task(runs=plan(ablation), stage="evaluate").program is None


KILL, FAIL = "import os; os.kill(os.getpid(), 9)", "raise SystemExit(1)"


def ended(code: str) -> subprocess.Popen[bytes]:
    """Return a process that has run this code and ended."""
    process = subprocess.Popen([sys.executable, "-c", code])
    process.wait()
    return process


def test_waiting_is_not_counted(monkeypatch):
    times, joules = iter([0.0, 1.0, 5.0, 7.0]), iter([10.0, 20.0, 90.0, 110.0])
    monkeypatch.setattr(f"{RUN}.time.perf_counter", lambda: next(times))
    monkeypatch.setattr(f"{RUN}._joules", lambda: next(joules))
    meter = Meter()
    with meter.counting(), meter.counting(-1):
        pass
    assert (meter.seconds, meter.joules) == (7.0 - 4.0, 100.0 - 70.0)


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

    def slowly(way: Evaluation, *_: object) -> None:
        done.append(way.mode)
        time.sleep(0.5)
        write_scores(way)

    monkeypatch.setattr(f"{RUN}.evaluate", slowly)
    monkeypatch.setattr(f"{RUN}.diagnose", lambda way: done.append("heads"))
    both = [threading.Thread(target=work, args=([one], ablation, "evaluate")) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert sorted(done) == ["heads", "offline", "streamed"]
    work([one], ablation, "clock")
    assert done[3:] == ["live"]
    assert one.state == "done"


def test_failed_evaluation_leaves_the_other_runs_alone(corpus, tmp_path, monkeypatch):
    ablation, (_, one, other) = all_trained(corpus, tmp_path / "runs")
    seen = []

    def evaluate_pending(run: Planned, *_: object) -> None:
        seen.append(run.variant)
        if run == one:
            raise ValueError("one is broken")

    monkeypatch.setattr(f"{RUN}.evaluate_pending", evaluate_pending)
    for stage in ("evaluate", "clock"):
        with pytest.raises(ConfigError, match="could not be evaluated: one-seed0"):
            work([one, other], ablation, stage)
    assert seen == ["one", "other"] * 2
    assert "one is broken" in (one.experiment.run / FAILED).read_text()
    assert not (other.experiment.run / FAILED).exists()

    task = Task(runs=[one, other], stage="evaluate")
    collect([Started(task=task, process=ended(FAIL))])
    assert not (other.experiment.run / FAILED).exists(), "it was said which one failed"
    (one.experiment.run / FAILED).unlink()
    collect([Started(task=task, process=ended(FAIL))])
    assert "no output" in (other.experiment.run / FAILED).read_text()


def test_evaluation_of_another_checkpoint_removes_old_results(tmp_path):
    way = Evaluation(run=tmp_path / "run", mode="offline")
    evaluating.open_folder(way, [100], tmp_path)
    write_scores(way)
    (way.folder / "instances.log").write_text("")
    config = way.folder / evaluating.CONFIG
    write_json(config, read_json(config) | evaluating.GONE)
    evaluating.open_folder(way, [200], tmp_path)
    assert [path.name for path in way.folder.iterdir()] == ["config.json"]


def test_results_of_other_settings_or_of_other_code_are_rejected(tmp_path):
    own = tmp_path / "own.py"
    own.write_text(documented("own_policy.py").read_text())
    patient: Any = policy_class(f"{own}:Patient")
    way = Evaluation(run=tmp_path / "run", name="mine", policy=patient(share=0.3))
    evaluating.open_folder(way, [100], tmp_path)
    evaluating.check_folder(way, tmp_path)
    with pytest.raises(ConfigError, match=r"holds another evaluation .*mode was"):
        evaluating.check_folder(replace(way, mode="offline"), tmp_path)
    own.write_text(own.read_text() + "\n")
    with pytest.raises(ConfigError, match=r"holds another evaluation .*own\.py"):
        evaluating.check_folder(way, tmp_path)


def test_results_of_another_model_file_are_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr("simuljax.config.evaluation.RUNS", tmp_path / "runs")
    ways = []
    for name in ("a", "b", "copy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.bin").write_bytes(b"a" if name == "copy" else name.encode())
        ways.append(Evaluation(run=tmp_path / name / "model.bin", corpus=tmp_path))
    one, other, copy = ways
    for _ in range(2):
        evaluating.open_folder(one, [], tmp_path)
        evaluating.open_folder(copy, [], tmp_path)
        with pytest.raises(ConfigError, match=r"other weights than .*b/model\.bin"):
            evaluating.open_folder(other, [], tmp_path)
    config = read_json(one.folder / evaluating.CONFIG)
    one.run.write_bytes(b"replaced")
    with pytest.raises(ConfigError, match="other weights"):
        evaluating.check_data(one, tmp_path)
    del config["weights"]  # an older folder
    write_json(one.folder / evaluating.CONFIG, config)
    evaluating.open_folder(one, [], tmp_path)
    with pytest.raises(ConfigError, match="other weights"):
        evaluating.open_folder(other, [], tmp_path)


@pytest.mark.parametrize("page", ["report", "publish"])
@pytest.mark.parametrize("instead", [{"only": ("one-seed0",)}, {"list": True}])
def test_pages_are_not_asked_of_commands_that_write_none(page, instead):
    with pytest.raises(ChoiceError, match=f"--{next(iter(instead))} .*--{page}"):
        AblateOptions(file=Path("grid.py"), **{page: True}, **instead)


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
    monkeypatch.setattr(f"{RUN}.train", lambda *some, **_: trained.extend(some))
    with locked(one.experiment.run):
        work([one, other], ablation, "train")
        assert trained == [other.to_train]
        assert "one-seed0" in capsys.readouterr().out
        with pytest.raises(ConfigError, match="another process"):
            work([one], ablation, "train")


def test_a_run_does_not_wait_for_one_that_its_process_would_train(corpus, tmp_path, monkeypatch):
    ablation = grid(corpus, tmp_path / "runs", seeds=(0,), curves={})
    donor, one, _ = plan(ablation)
    monkeypatch.setattr(f"{RUN}.train", lambda *_, **__: pytest.fail("it was not refused"))
    cases: tuple[tuple[Stage, list[Planned]], ...] = (("train", [donor, one]), ("evaluate", [one]))
    for stage, runs in cases:
        with pytest.raises(SystemExit) as end:
            work(runs, ablation, stage)
        assert end.value.code == BLOCKED and not (one.directory / FAILED).exists()


def test_a_run_that_diverges_fails_alone(corpus, tmp_path, monkeypatch):
    ablation, (_, one, other) = all_trained(corpus, tmp_path / "runs")
    for run in (one, other):
        (run.directory / ENDED).unlink()

    def train(*_: object, **__: object) -> None:
        raise DivergedError(one.directory, "its gradient is not finite")

    monkeypatch.setattr(f"{RUN}.train", train)
    with pytest.raises(DivergedError):
        work([one, other], ablation, "train")
    collect([Started(task=Task(runs=[one, other], stage="train"), process=ended(FAIL))])
    assert (one.state, other.state) == ("failed", "waiting")
    (other.directory / ENDED).touch()
    (one.directory / FAILED).unlink()
    collect([Started(task=Task(runs=[one, other], stage="train"), process=ended(KILL))])
    assert (one.state, other.state) == ("failed", "trained"), "it had ended before"


def test_real_time_is_left_to_a_quiet_machine_and_errors_are_sentences(
    corpus, tmp_path, monkeypatch
):
    ablation, (donor, one, other) = all_trained(corpus, tmp_path / "runs")
    (donor.directory / ENDED).unlink()
    assert not Task(runs=[one], stage="evaluate").waits, "it is trained"
    lacking = replace(trained(ablation)["other"].data, directory=tmp_path / "nowhere")
    changed = replace(trained(ablation)["other"], data=lacking)
    variants = {**ablation.variants, "lacking": changed}
    ablation = replace(ablation, variants=variants, table=(*ablation.table, "lacking"))
    seen = []
    monkeypatch.setattr(f"{RUN}.evaluate_pending", lambda run, stage: seen.append(stage))
    with locked(other.directory):
        work([one], ablation)
    assert seen == ["evaluate"]
    work([one], ablation)
    assert seen == ["evaluate", "evaluate", "clock"]

    def refuse(*_: object) -> None:
        raise ConfigError("there is no corpus")

    monkeypatch.setattr(f"{RUN}.evaluate_pending", refuse)
    with pytest.raises(ConfigError, match="could not be evaluated"):
        work([one], ablation, "evaluate")
    assert (one.directory / FAILED).read_text() == "there is no corpus\n"


class Idle:
    """A process that runs until it is terminated."""

    returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode

    def terminate(self) -> None:
        self.returncode = -signal.SIGTERM

    def wait(self) -> None:
        pass


def test_a_run_that_waits_makes_room_for_one_that_can_be_trained(corpus, tmp_path, monkeypatch):
    ablation = grid(corpus, tmp_path / "runs", seeds=(0, 1), order=0)
    runs = plan(with_training(ablation, "later", updates=7))  # a program of its own
    ones = [run for run in runs if run.variant == "one"]
    for run in runs:
        run.directory.mkdir(parents=True)
        (run.directory / METRICS).touch()
        if run.variant == "donor":
            (run.directory / ENDED).touch()
    for way in [way for run in ones for way in run.evaluations]:
        write_scores(way)
    started: dict[str, Started] = {}

    def start(options: AblateOptions, task: Task) -> Started:
        process: Any = Idle()
        started[task.runs[0].variant] = Started(task=task, process=process)
        return started[task.runs[0].variant]

    def end_one() -> None:  # so that `later` begins early
        started.pop("one").process.terminate()
        for run in ones:
            (run.directory / ENDED).touch()

    def need_one() -> None:
        for run in ones:
            (run.directory / ENDED).unlink()

    def stop() -> None:
        assert [started[name].process.poll() for name in ("other", "one")] == [None, None]
        assert started["later"].is_stopped
        raise InterruptedError

    turns = iter((end_one, need_one, lambda: None, stop))

    monkeypatch.setattr(f"{RUN}.start", start)
    monkeypatch.setattr(f"{RUN}.time.sleep", lambda _: next(turns)())
    options = AblateOptions(file=tmp_path / "grid.py", workers=2, together=2)
    with pytest.raises(InterruptedError):
        run_all(options, runs, runs)
    assert [*started] == ["other", "later", "one"]
    assert started["later"].task.waits
    assert not any((run.directory / FAILED).exists() for run in runs)


def test_interrupted_training_is_not_evaluated(corpus, tmp_path, monkeypatch):
    ablation = grid(corpus, tmp_path / "runs")
    (donor, one, *_), seen = plan(ablation), []
    donor.directory.mkdir(parents=True)
    (donor.directory / ENDED).touch()
    monkeypatch.setattr(f"{RUN}.evaluate_pending", lambda run, *_: seen.append(run.name))
    monkeypatch.setattr(f"{RUN}.train", lambda *_, **__: None)  # SIGTERM, and it saved its state
    work([one], ablation)
    assert not seen
    (one.experiment.run / ENDED).write_text("{}")
    work([one], ablation)
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
    (one.directory / ENDED).unlink()
    (one.experiment.run / "output.log").write_text(f"{output}\n")
    collect([Started(task=Task(runs=[one], stage="train"), process=ended(code))])
    assert all(fact in (one.experiment.run / FAILED).read_text() for fact in facts)
    blocked = f"import sys; sys.exit({BLOCKED})"
    waited = [Started(task=Task(runs=[other], stage="train"), process=ended(blocked))]
    collect(waited)
    assert not waited and not (other.experiment.run / FAILED).exists(), "its donor failed"


def test_changed_data_is_rejected(corpus, tmp_path):
    ablation, runs = all_trained(corpus, tmp_path / "runs")
    one = next(run for run in runs if run.variant in ablation.table)
    way = one.evaluations[0]
    (corpus / "test.tsv").write_text("as it was")
    evaluating.open_folder(way, [4], corpus)
    check_all_data(runs)
    (corpus / "test.tsv").write_text("of other texts")
    with pytest.raises(ConfigError, match=r"other data than test in"):
        check_all_data(runs)
    with pytest.raises(ConfigError, match="--name"):
        evaluating.open_folder(way, [4], corpus)
    (corpus / "test.tsv").write_text("as it was")
    (corpus / "train.tsv").write_text("as it was")
    record_used_data(one.experiment.run, one.to_train.data.tables())
    check_all_data(runs)
    (corpus / "train.tsv").write_text("of other texts")
    with pytest.raises(CorpusError, match=rf"{one.name} .* another train than"):
        check_all_data(runs)
