"""Run a grid: train and evaluate its runs, several at a time, and write and publish its page.

Every run is a process of its own, `simuljax ablate FILE --only NAME`, on this machine or in a job
of a cluster. It holds a lock on its directory, so nothing is trained twice at a time. What a killed
process has done is kept, and the next call resumes it. A failed run keeps its error; runs that need
it are not started, the others are.

With several workers, other processes evaluate what was trained, so that runs which start from it
need not wait. Evaluations in real time come last, one at a time: nothing else of the grid may take
their computing time. Idle workers compile runs whose predecessor is still being trained. Runs that
differ only in seeds and loss weights can share a process and a compiled update (`--together`).
"""

import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from tqdm import tqdm

from data_pipelines.dataset import check_used_data
from simuljax.ablate import launchers
from simuljax.ablate.grid import FAILED, Grid, Planned, Stage
from simuljax.ablate.launchers import Jobs, Process
from simuljax.ablate.scheduler import Program, Task, next_tasks, to_compile
from simuljax.ablate.summary import publish, write_summary
from simuljax.ablate.worker import work
from simuljax.config.experiment import Experiment
from simuljax.config.fields import ConfigError
from simuljax.errors import ChoiceError
from simuljax.runs.evaluate import Models, check_data, corpus_of
from simuljax.train.lock import is_locked
from simuljax.train.run_log import duration

OUTPUT = "output.log"  # in a run's directory
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
    """Runs at a time on this machine; they share its devices."""
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
    """With --only: compile, train, evaluate without a clock, or evaluate in real time."""
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

    @property
    def command(self) -> str:
        """Return the command that runs the grid."""
        return f"simuljax ablate {self.file}" + (f" --grid {self.grid}" if self.grid else "")


def ablate(
    options: AblateOptions, grid: Grid, runs: Sequence[Planned], part: Sequence[Planned]
) -> None:
    """Work on a part of a grid, or list it; the summary covers every result there is."""
    if options.list:
        print("\n".join(f"{run.state:8} {run.name}" for run in part))
        return
    if options.only:
        work(part, grid, options.stage)
        return
    check_all_data(runs)
    if not options.report:
        run_all(options, part)
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
    for run in runs:
        own = None
        if isinstance(run.experiment, Experiment):
            own = run.experiment.data.directory
            check_used_data(run.directory, run.experiment.data.tables())
        for evaluation in run.evaluations:
            check_data(evaluation, own or corpus_of(evaluation, Models()))


@dataclass(frozen=True, kw_only=True)
class Started:
    """A process and its task."""

    task: Task
    process: Process


def run_all(options: AblateOptions, runs: Sequence[Planned]) -> None:
    """Keep the workers busy until nothing is left, show the progress, and print what failed."""
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
            states = {run.name: run.state for run in runs}
            show(bar, runs, states)
            at_work = [each.task for each in working]
            counts = {"workers": options.workers, "together": options.together}
            tasks = next_tasks(runs, states, at_work, **counts)
            if local:  # a job would wait for a device, and its node may have another cache
                compiled += [task.program for task in tasks]
                at_work += tasks
                ahead = to_compile(runs, states, at_work, compiled, options.together)
                ahead = ahead[: options.workers - len(at_work)]
                compiled += [task.program for task in ahead]
                tasks += ahead
            working += [start(options, task) for task in tasks]
            if not working and "running" not in states.values():
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
        explained = explained or each.task.stage == "compile"  # training will meet the same error
        if each.process.returncode and not explained:
            error = _error_of(each)
            for run in [run for run in each.task.runs if not is_locked(run.directory)]:
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
