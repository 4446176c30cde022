"""Run a grid: train and evaluate its runs, several at a time, and write and publish its page.

Every run is a process of its own, `simuljax ablate FILE --only NAME`, on this machine or in a job
of a cluster. It holds a lock on its directory, so nothing is trained twice at a time. What a killed
process has done is kept, and the next call resumes it. A failed run keeps its error; runs that need
it are not started, the others are.

With several workers, other processes evaluate what was trained, each what no other has started, so
that runs which start from it need not wait. Evaluations in real time come last, one at a time:
nothing else of the grid may take their computing time. Idle workers load and compile what starts
from a run that is still being trained, and wait for it. Runs that differ only in seeds and loss
weights can share a process and a compiled update (`--together`).
"""

import math
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import jax
import tyro
from tqdm import tqdm

from data_pipelines.dataset import check_used_data
from simuljax.ablate import launchers
from simuljax.ablate.grid import FAILED, Grid, Planned, Stage, missing, plan
from simuljax.ablate.launchers import Jobs, Process
from simuljax.ablate.scheduler import Program, Task, next_tasks, to_begin_early
from simuljax.ablate.summary import publish, write_summary
from simuljax.config.experiment import Experiment
from simuljax.config.fields import ConfigError, read_object, write_json
from simuljax.errors import ChoiceError, SimuljaxError
from simuljax.lock import is_locked, locked, try_lock
from simuljax.runs.diagnosis import diagnose
from simuljax.runs.evaluate import Models, check_folder, corpus_of, evaluate
from simuljax.runs.train import train
from simuljax.train.loop import DivergedError
from simuljax.train.run_log import duration

OUTPUT, SPENT = "output.log", "spent.json"  # in a run's directory
BLOCKED = 75  # EX_TEMPFAIL of sysexits.h: a run that this one needs is not trained
SHOWN = 2_000  # characters of a failed run's output
POLL_S, REFRESH_S = 0.5, 30.0  # of the progress line: on a terminal, and in a log


@dataclass(frozen=True, kw_only=True)
class AblateOptions:
    """Choose a grid, and how many of its runs to work on at a time."""

    file: Annotated[Path, tyro.conf.Positional]
    """A Python file that defines GRID, like experiments/zaidi2022/demo_grid.py."""
    grid: str | None = None
    """Name of the grid, if the file defines several in GRIDS."""
    workers: int = 1
    """Runs at a time: processes that share this machine's devices, or jobs with --engine."""
    together: int = 1
    """Runs per process, if they differ only in seeds and loss weights."""
    variants: tuple[str, ...] = ()
    """Only these variants ('dar_*' for several), and the runs they start from."""
    seeds: tuple[int, ...] = ()
    """Only these seeds."""
    jobs: Jobs = field(default_factory=Jobs)
    only: tuple[str, ...] = ()
    """Train and evaluate this run, or these together, in this process."""
    stage: Stage = "both"
    """With --only: train, evaluate without a clock, or evaluate in real time."""
    list: bool = False
    """List the runs of the grid with their states."""
    report: bool = False
    """Train and evaluate nothing: write the summary from the results so far."""
    publish: bool = False
    """Write the page, the scores, the curves and the logs to experiments/results/NAME."""

    def __post_init__(self) -> None:
        for option, count in (("workers", self.workers), ("together", self.together)):
            if count < 1:
                raise ChoiceError(f"--{option} {count}: say 1 or more")
        if self.stage != "both" and not self.only:
            raise ChoiceError(f"--stage {self.stage} is for runs that are named: say --only, too")
        if self.only and (self.variants or self.seeds):
            raise ChoiceError("--only names runs: leave --variants and --seeds")
        for ignored in ("report", "publish"):
            if getattr(self, ignored) and (self.only or self.list):
                other = "only" if self.only else "list"
                raise ChoiceError(f"--{other} writes no page: leave --{ignored} out")

    @property
    def command(self) -> str:
        """Return the command that runs the grid."""
        return f"simuljax ablate {self.file}" + (f" --grid {self.grid}" if self.grid else "")


def ablate(
    options: AblateOptions, grid: Grid, runs: Sequence[Planned], part: Sequence[Planned]
) -> None:
    """Work on a part of a grid, or list it; the summary covers every result there is."""
    if options.list:
        lacking = {} if options.variants or options.only else missing(grid)
        lines = [f"{run.state:8} {run.name}" for run in part]
        lines += [f"{'no data':8} {variant}" for variant in lacking]
        print("\n".join([*lines, *dict.fromkeys(lacking.values())]))
        return
    if options.only:
        work(part, grid, options.stage)
        return
    check_all_data(runs)
    if not options.report:
        run_all(options, runs, part)
    if any((run.directory / "eval").exists() for run in runs):
        print(f"summary: {write_summary(grid, runs, options.command)}")
    elif options.report or options.publish:
        raise ConfigError(f"{grid.runs} holds no evaluation of this grid")
    if options.publish:
        where = Path("experiments") / "results"
        print(f"published: {publish(grid, runs, where, options.command)}")
    failed = [] if options.report else [run for run in part if run.state == "failed"]
    if failed:
        raise ConfigError(
            f"{len(failed)} of {len(part)} runs failed; see {FAILED} in their directories"
        )


def check_all_data(runs: Sequence[Planned]) -> None:
    """Reject a grid whose corpora have changed since its runs were trained or evaluated."""
    models = Models()
    for run in runs:
        own = None
        if isinstance(run.experiment, Experiment):
            own = run.experiment.data.directory
            check_used_data(run.directory, run.experiment.data.tables())
        for evaluation in run.evaluations:
            check_folder(evaluation, own or corpus_of(evaluation, models))


@dataclass(kw_only=True, eq=False)
class Started:
    """A process and its task."""

    task: Task
    process: Process
    is_stopped: bool = False  # to make room

    def stop(self) -> None:
        self.is_stopped = True
        self.process.terminate()


def run_all(options: AblateOptions, every: Sequence[Planned], runs: Sequence[Planned]) -> None:
    """Keep the workers busy until nothing is left, show the progress, and print what failed.

    Other commands may work on `every` run of the grid meanwhile.
    """
    for run in runs:
        (run.directory / FAILED).unlink(missing_ok=True)  # tried again
    began, local = time.monotonic(), options.jobs.engine == "none"
    compiled: list[Program | None] = []  # or about to be
    with (
        tqdm(total=len(runs), unit="run", desc=options.file.stem, smoothing=0.0) as bar,
        stopped_with_us() as working,
    ):
        while True:
            collect(working)
            states = {run.name: run.state for run in every}
            show(bar, runs, states)
            waiting = [each for each in working if each.task.waits]
            at_work = [each.task for each in working if each not in waiting]
            counts = {"workers": options.workers, "together": options.together}
            tasks = next_tasks(runs, states, at_work, **counts, waiting=len(waiting))
            for each in waiting[: max(0, len(working) + len(tasks) - options.workers)]:
                each.stop()
                compiled = [program for program in compiled if program != each.task.program]
            if local:  # a job would wait for a device, and its node may have another cache
                compiled += [task.program for task in tasks]
                at_work += [*(each.task for each in waiting), *tasks]
                ahead = to_begin_early(runs, states, at_work, compiled, options.together)
                ahead = ahead[: max(0, options.workers - len(at_work))]
                compiled += [task.program for task in ahead]
                tasks += ahead
            working += [start(options, task) for task in tasks]
            if not working and not {"running", "untimed"} & {states[run.name] for run in runs}:
                break
            time.sleep(POLL_S)
    print(describe(runs, time.monotonic() - began))


def show(bar: tqdm, runs: Sequence[Planned], states: Mapping[str, str]) -> None:
    """Show the runs that are done, the progress of those that run, and the time."""
    if bar.disable:  # by TQDM_DISABLE; it has no fields then
        return
    bar.n = sum(state == "done" for state in states.values())
    text = ", ".join(run.progress for run in runs if states[run.name] == "running")
    due = bar.fp.isatty() or time.time() - bar.last_print_t > REFRESH_S
    changed = (bar.n, text) != (bar.last_print_n, bar.postfix or "")
    if due or changed:
        bar.set_postfix_str(text)
        bar.last_print_n, bar.last_print_t = bar.n, time.time()


@contextmanager
def stopped_with_us() -> Iterator[list[Started]]:
    """Hold processes that are stopped when this one is; trainings save their state first."""
    working: list[Started] = []
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield working
    finally:
        for each in working:
            each.process.terminate()
        for each in working:
            each.process.wait()
        signal.signal(signal.SIGTERM, before)


def start(options: AblateOptions, task: Task) -> Started:
    """Start the task in a process of its own; its output goes to the first run's directory."""
    for run in task.runs:
        run.directory.mkdir(parents=True, exist_ok=True)
    names = [run.name for run in task.runs]
    command = launchers.simuljax_command("ablate", str(options.file), "--only", *names)
    command += ["--stage", task.stage]
    command += ["--grid", options.grid] if options.grid else []
    output = task.runs[0].directory / OUTPUT
    shared = options.workers > 1
    process = launchers.start(options.jobs, command, output, names[0], shared=shared)
    return Started(task=task, process=process)


def collect(working: list[Started]) -> None:
    """Remove processes that have ended; write the error of those that failed without one."""
    for each in [each for each in working if each.process.poll() is not None]:
        working.remove(each)
        explained = any((run.directory / FAILED).exists() for run in each.task.runs)
        if each.process.returncode not in (0, BLOCKED) and not explained and not each.is_stopped:
            error, trains = _error_of(each), each.task.stage == "train"
            for run in [run for run in each.task.runs if not is_locked(run.directory)]:
                if not (trains and run.is_trained):  # it had ended before
                    (run.directory / FAILED).write_text(error, "utf-8")


def _error_of(started: Started) -> str:
    """Return the exit status of a process and the end of its output."""
    output, status = started.task.runs[0].directory / OUTPUT, started.process.returncode or 0
    tail = output.read_text(errors="replace")[-SHOWN:].strip() if output.exists() else ""
    tail = tail or "no output: did the job start?"
    if status < 0:
        tail += f"\nkilled by signal {-status}"
        tail += " (out of memory?)" if status == -signal.SIGKILL else ""
    elif "RESOURCE_EXHAUSTED" in tail:
        tail += "\nout of device memory: lower --together or --workers"
    return f"exit {status}\n{tail}"


def describe(runs: Sequence[Planned], seconds: float) -> str:
    """Describe what is done, what failed and why, and what was not run."""
    states = {run.name: run.state for run in runs}
    done = sum(state == "done" for state in states.values())
    lines = [f"{done} of {len(runs)} runs are done, after {duration(seconds)}"]
    for run in runs:
        if states[run.name] == "failed":
            error = (run.directory / FAILED).read_text("utf-8").strip().splitlines()
            lines.append(f"failed: {run.directory}: {error[-1] if error else 'no output'}")
        elif states[run.name] != "done":
            lines.append(f"not run: {run.directory} ({states[run.name]})")
    return "\n".join(lines)


def work(runs: Sequence[Planned], grid: Grid, stage: Stage = "both") -> None:
    """Train the runs, or resume their training, and evaluate them."""
    if stage in ("both", "train"):
        with ExitStack() as locks:
            runs = _lock_free(runs, locks)
            for run in runs:
                (run.directory / FAILED).unlink(missing_ok=True)  # tried again
            train_all([run for run in runs if not run.is_trained])
        if stage == "both":  # a run that was interrupted has not ended
            runs = [run for run in runs if run.is_trained]
    for untrained in [run for run in runs if stage != "train" and not run.is_trained]:
        block(untrained)
    if stage != "train":
        evaluate_all(runs, grid, "evaluate" if stage == "both" else stage)
    if stage == "both" and any(run.pending("clock") for run in runs):
        own = {run.name for run in runs}
        if any(run.state == "running" for run in plan(grid, ()) if run.name not in own):
            print("other runs of the grid are at work: evaluations in real time are left")
        else:
            evaluate_all(runs, grid, "clock")


def evaluate_all(runs: Sequence[Planned], grid: Grid, stage: Stage) -> None:
    """Evaluate all runs, also after one that fails."""
    if failed := [run for run in runs if not _try_to_evaluate(run, grid, stage)]:
        names = ", ".join(run.name for run in failed)
        raise ConfigError(f"could not be evaluated: {names}")


def train_all(runs: Sequence[Planned]) -> None:
    """Train runs in this process, alone or together; they divide its time and energy."""
    in_training(runs)
    if runs:
        with measured(runs, "training") as meter:
            try:
                experiments = [run.to_train for run in runs]
                train(*experiments, await_donors=partial(await_needs, runs, meter))
            except DivergedError as error:  # the others are healthy
                (error.run / FAILED).write_text(f"{error}\n", "utf-8")
                raise


def await_needs(runs: Sequence[Planned], meter: "Meter") -> None:
    """Wait until the runs that these need are trained."""
    with meter.counting(-1):
        while in_training(runs):
            time.sleep(POLL_S)


def in_training(runs: Sequence[Planned]) -> list[Planned]:
    """Return the runs that these need and that are in training; exit if one is not to be."""
    lacking = [need for run in runs for need in run.needs if not need.is_trained]
    own = {run.name for run in runs}
    for need in lacking:
        if need.name in own or (need.state != "running" and not need.is_trained):
            block(need)
    return lacking


def block(run: Planned) -> NoReturn:
    """Exit: the run is not trained, and nothing here trains it in time."""
    print(f"simuljax: {run.name} must be trained first", file=sys.stderr, flush=True)
    sys.exit(BLOCKED)


def _lock_free(runs: Sequence[Planned], locks: ExitStack) -> list[Planned]:
    """Lock the runs that no other process works on, and return them."""
    mine, others = [], []
    for run in runs:
        run.directory.mkdir(parents=True, exist_ok=True)
        (mine if locks.enter_context(try_lock(run.directory)) else others).append(run)
    if others:
        names = ", ".join(str(run.directory) for run in others)
        message = f"another process works on {names}"
        if not mine:
            raise ConfigError(message)
        print(f"{message}: left to it", flush=True)
    return mine


def _try_to_evaluate(run: Planned, grid: Grid, stage: Stage) -> bool:
    """Evaluate a run; on an error, write it to the run's directory and return False."""
    clock = locked(grid.runs, patience_s=math.inf) if stage == "clock" else nullcontext()
    try:
        with clock:  # one at a time
            evaluate_pending(run, stage)
    except Exception as error:
        expected = isinstance(error, SimuljaxError)
        text = f"{error}\n" if expected else traceback.format_exc()
        print(text, file=sys.stderr, flush=True)
        (run.directory / FAILED).write_text(text, "utf-8")
        return False
    return True


def evaluate_pending(run: Planned, stage: Stage) -> None:
    """Run every evaluation of the stage that has no result and that no process has started."""
    pending, held = run.pending(stage), run.experiment
    if not pending:
        return
    heads = isinstance(held, Experiment) and held.model.monotonic.policy != "offline"
    models = Models()
    with measured([run], "evaluation"):
        for evaluation in pending:
            evaluation.folder.mkdir(parents=True, exist_ok=True)
            with try_lock(evaluation.folder) as mine:
                if not mine or evaluation not in run.pending():  # by another process, meanwhile
                    continue
                if heads and evaluation == run.evaluations[0] and evaluation.branch == "speech":
                    diagnose(evaluation)
                evaluate(evaluation, models)


@dataclass
class Meter:
    """Time and energy of the GPUs of this host, where they can be read."""

    seconds: float = 0.0
    joules: float | None = 0.0

    @contextmanager
    def counting(self, sign: int = 1) -> Iterator[None]:
        """Add what is spent inside; take it off with `sign` -1."""
        before, start = _joules(), time.perf_counter()
        yield
        self.seconds += sign * (time.perf_counter() - start)
        after = _joules()
        if self.joules is None or before is None or after is None:
            self.joules = None
        else:
            self.joules += sign * (after - before)


@contextmanager
def measured(runs: Sequence[Planned], what: str) -> Iterator[Meter]:
    """Add time and energy, divided among the runs, to spent.json in their directories.

    Interruptions add up; a process that is killed is not counted.
    """
    meter = Meter()
    with meter.counting():
        yield meter
    seconds = meter.seconds / len(runs)
    joules = None if meter.joules is None else meter.joules / len(runs)
    for directory in [run.directory for run in runs]:
        with locked(directory, patience_s=30.0) if what == "evaluation" else nullcontext():
            spent = read_object(directory / SPENT)
            old = spent.get(what, {"seconds": 0.0, "joules": None})
            total = old["joules"] if joules is None else joules + (old["joules"] or 0.0)
            spent[what] = {"seconds": old["seconds"] + seconds, "joules": total}
            write_json(directory / SPENT, spent)


def _joules() -> float | None:
    """Return the energy counters of this host's GPUs; None if there is no way to read them.

    NVIDIA's counter (Volta and later) covers the whole board and everything that runs on it.
    """
    if jax.default_backend() != "gpu":
        return None
    try:
        import pynvml  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(d.id) for d in jax.local_devices()]
        return sum(pynvml.nvmlDeviceGetTotalEnergyConsumption(h) for h in handles) / 1e3
    return None
