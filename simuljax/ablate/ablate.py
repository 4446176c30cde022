"""`simuljax ablate`: trains and evaluates a grid of runs, as many at a time as asked for.

Every run is a process of its own, `simuljax ablate FILE --only NAME`, which a cluster can start as
well as this program. It holds a lock on its directory, so that nothing is trained twice at a time,
and whoever is killed leaves what the next call goes on with. A run that fails is kept with what it
said; those that would begin with it are not run; the others are.

Where there are several workers, what was trained is evaluated by other processes: whoever begins
with it need not wait, and evaluations, which leave a device idler than trainings do, go on side by
side, those of one run too. What is played with the clock running comes last, one after the other:
nothing else of the grid may take the clock's time. Who has nothing else to do compiles what begins
with a run that is still trained.

Runs that differ in seeds and weights of losses alone can share a process and a compiled update
(`--together`): small models leave most of a device idle.
"""

import fnmatch
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from tqdm import tqdm

from simuljax.ablate import launchers as submitting
from simuljax.ablate.grid import Ablation, Planned, plan
from simuljax.ablate.launchers import Jobs, Process
from simuljax.ablate.publish import publish
from simuljax.ablate.scheduler import (
    Task,
    next_tasks,
    progress,
    state_of,
    to_compile,
    to_evaluate,
)
from simuljax.ablate.summary import write_answer
from simuljax.ablate.worker import FAILED, Stage, check_all_data, is_locked, work
from simuljax.config.experiment import ExperimentError
from simuljax.errors import ChoiceError, unknown
from simuljax.train.console import duration

OUTPUT = "output.log"
SHOWN = 2_000  # characters of what a failed run said


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Which grid, and how many of its runs at a time."""

    file: Annotated[Path, tyro.conf.Positional]
    """A Python file that defines ABLATION, like experiments/zaidi2022/demo_grid.py."""
    grid: str | None = None
    """Which one, of a file that defines several in ABLATIONS."""
    workers: int = 1
    """Runs at a time on this machine; they share its devices."""
    together: int = 1
    """Runs to a process, where they differ in seeds and weights of losses alone."""
    rows: tuple[str, ...] = ()
    """Of the grid these rows alone ('dar_*' for several), and what they begin with."""
    seeds: tuple[int, ...] = ()
    """Of the grid these seeds alone."""
    jobs: Jobs = field(default_factory=Jobs)
    only: tuple[str, ...] = ()
    """Train and evaluate this run, or these together, in this process."""
    stage: Stage = "both"
    """With --only: compile what training needs, train, evaluate what was trained, or play it with
    the clock running."""
    list: bool = False
    """Say what the grid consists of and where it stands."""
    report: bool = False
    """Train and evaluate nothing: write the answer from what is there."""
    publish: bool = False
    """Copy the answer and its evidence, but no weights, to experiments/results and docs/results."""


def check_counts(chosen: Grid) -> None:
    """Refuses to work on no run at a time, which would wait for ever."""
    for option, count in (("workers", chosen.workers), ("together", chosen.together)):
        if count < 1:
            raise ChoiceError(f"--{option} {count}: say 1 or more")


def ablate(chosen: Grid, ablation: Ablation) -> None:
    """The whole grid, a part of it, or a list; the answer is always of all that is there."""
    runs = plan(ablation)
    part = part_of(runs, chosen.rows, chosen.seeds)
    if chosen.list:
        print("\n".join(f"{state_of(run, ablation):8} {run.name}" for run in part))
    elif chosen.only:
        work([the_one(runs, name) for name in chosen.only], ablation, chosen.stage)
    else:
        check_all_data(runs, ablation)
        if not chosen.report:
            work_all(chosen, ablation, part)
        answer(chosen, ablation, runs)
        if chosen.publish:
            where = Path("experiments") / "results", Path("docs") / "results"
            print(f"published: {publish(ablation, runs, *where)}")
        failed = [] if chosen.report else [r for r in part if state_of(r, ablation) == "failed"]
        if failed:
            raise ExperimentError(
                f"{len(failed)} of {len(part)} runs failed: {FAILED} in their directories says why"
            )


def part_of(
    runs: Sequence[Planned], rows: Sequence[str], seeds: Sequence[int]
) -> Sequence[Planned]:
    """The runs of these rows and seeds, and what they begin with; all, where none are named."""
    known = [*dict.fromkeys(run.row for run in runs)]
    for row in rows:
        if not fnmatch.filter(known, row):
            raise ChoiceError(
                f"the grid has the rows {', '.join(known)}: {unknown(row, known)} (--rows)"
            )
    drawn = [*dict.fromkeys(run.seed for run in runs if run.seed is not None)]
    for seed in seeds:
        if seed not in drawn:
            told = ", ".join(map(str, drawn))
            raise ChoiceError(f"the grid has the seeds {told}: there is no {seed} (--seeds)")
    asked = {name for row in rows or known for name in fnmatch.filter(known, row)}
    part = {
        each.name
        for run in runs
        if run.row in asked and (not seeds or run.seed in (None, *seeds))
        for each in with_needs(run)
    }
    return [run for run in runs if run.name in part]


def with_needs(run: Planned) -> list[Planned]:
    """The run and all that must be there before it."""
    return [run, *(each for need in run.needs for each in with_needs(need))]


def the_one(runs: Sequence[Planned], name: str) -> Planned:
    """The run of this name."""
    found = [run for run in runs if run.name == name]
    if not found:
        names = [run.name for run in runs]
        raise ChoiceError(
            f"the grid has the runs {', '.join(names)}: {unknown(name, names)} (--only)"
        )
    return found[0]


def work_all(chosen: Grid, ablation: Ablation, runs: Sequence[Planned]) -> None:
    """Starts what can be started, shows how far it is, and says what failed."""
    for run in runs:
        (run.experiment.run / FAILED).unlink(missing_ok=True)  # it is tried again
    began, here = time.monotonic(), chosen.jobs.engine == "none"
    compiled: set[str] = set()  # or about to be
    with (
        tqdm(total=len(runs), unit="run", desc=chosen.file.stem, smoothing=0.0) as bar,
        ended_with_us() as working,
    ):
        while True:
            collect(working)
            states = {run.name: state_of(run, ablation) for run in runs}
            show(bar, runs, states)
            tasks = next_tasks(
                runs,
                states,
                [each.task for each in working],
                {run.name: to_evaluate(run, ablation) for run in runs},
                workers=chosen.workers,
                together=chosen.together,
            )
            if here:  # a job would wait for a device, and its node may have another cache
                idle = chosen.workers - len(working) - len(tasks)
                at_work = [*(each.task for each in working), *tasks]
                ahead = to_compile(runs, states, at_work, compiled, chosen.together)[:idle]
                compiled |= {run.name for task in ahead for run in task.runs}
                tasks += ahead
            working += [start(chosen, task) for task in tasks]
            if not working and "running" not in states.values():
                break
            time.sleep(0.5)
    print(summary(runs, ablation, time.monotonic() - began))


def answer(chosen: Grid, ablation: Ablation, runs: Sequence[Planned]) -> None:
    """The page and its tables, as far as runs were evaluated."""
    if any((run.experiment.run / "eval").exists() for run in runs):
        grid = f" --grid {chosen.grid}" if chosen.grid else ""
        command = f"simuljax ablate {chosen.file}{grid}"
        print(f"answer: {write_answer(ablation, [*runs], command)}")
    elif chosen.report or chosen.publish:
        raise ExperimentError(f"{ablation.runs}: nothing of this grid was evaluated there")


def show(bar: tqdm, runs: Sequence[Planned], states: Mapping[str, str]) -> None:
    """How many are done and how far those are that run; nothing new is not said again."""
    done = sum(state == "done" for state in states.values())
    running = ", ".join(progress(run) for run in runs if states[run.name] == "running")
    if (done, running) != (bar.n, bar.postfix or ""):
        bar.n = done
        bar.set_postfix_str(running)


@dataclass(frozen=True, kw_only=True)
class Working:
    """A process, and what it works on."""

    task: Task
    process: Process


@contextmanager
def ended_with_us() -> Iterator[list[Working]]:
    """Processes that are told to stop when this one is; a training saves its state first."""
    working: list[Working] = []
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield working
    finally:
        for each in working:
            each.process.terminate()
        for each in working:
            each.process.wait()
        signal.signal(signal.SIGTERM, before)


def start(chosen: Grid, task: Task) -> Working:
    """The runs in a process of their own, which says what it has to say in the first one's file."""
    for run in task.runs:
        run.experiment.run.mkdir(parents=True, exist_ok=True)
    # Each takes what it needs of the memory; half of it or a tenth is not known beforehand.
    share = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if chosen.workers > 1 else {}
    command = [sys.executable, "-m", "simuljax.cli.main", "ablate", str(chosen.file), "--only"]
    command += [run.name for run in task.runs]
    command += ["--stage", task.stage]
    command += ["--grid", chosen.grid] if chosen.grid else []
    first = task.runs[0]
    path = first.experiment.run / OUTPUT
    if chosen.jobs.engine != "none":
        job = submitting.submit(chosen.jobs, command, path, path.parents[1], first.name)
        return Working(task=task, process=job)
    with path.open("a") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=share | dict(os.environ)
        )
    return Working(task=task, process=process)


def collect(working: list[Working]) -> None:
    """Notes the end of processes; of those that failed, why."""
    for each in [each for each in working if each.process.poll() is not None]:
        working.remove(each)
        told = any((run.experiment.run / FAILED).exists() for run in each.task.runs)
        told = told or each.task.stage == "compile"  # what is wrong, training will say
        if each.process.returncode and not told:  # or it has said which one failed, and why
            output = each.task.runs[0].experiment.run / OUTPUT
            said = output.read_text(errors="replace")[-SHOWN:] if output.exists() else ""
            said = said.strip() or "nothing was said: was the job begun?"
            if each.process.returncode < 0:
                said += f"\nkilled by signal {-each.process.returncode}"
                said += " (for want of memory?)" if each.process.returncode == -9 else ""
            elif "RESOURCE_EXHAUSTED" in said:
                said += "\nthe device's memory ran out: ask for fewer --together or --workers"
            for run in [run for run in each.task.runs if not is_locked(run.experiment.run)]:
                why = f"exit {each.process.returncode}\n{said}"
                (run.experiment.run / FAILED).write_text(why)


def summary(runs: Sequence[Planned], ablation: Ablation, seconds: float) -> str:
    """What is done, and what is not and why."""
    states = {run.name: state_of(run, ablation) for run in runs}
    done = sum(state == "done" for state in states.values())
    lines = [f"{done} of {len(runs)} runs are done, after {duration(seconds)}"]
    for run in runs:
        if states[run.name] == "failed":
            said = (run.experiment.run / FAILED).read_text().strip().splitlines()
            lines.append(
                f"failed: {run.experiment.run}: {said[-1] if said else 'nothing was said'}"
            )
        elif states[run.name] != "done":
            lines.append(f"not run: {run.experiment.run} ({states[run.name]})")
    return "\n".join(lines)
