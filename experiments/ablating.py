"""`simuljax ablate`: trains and evaluates a grid of runs, as many at a time as asked for.

Every run is a process of its own, `simuljax ablate FILE --only NAME`, which a cluster can start as
well as this program. It holds a lock on its directory, so that nothing is trained twice at a time,
and whoever is killed leaves what the next call goes on with. A run that fails is kept with what it
said; those that would begin with it are not run; the others are.
"""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tqdm import tqdm

from experiments.ablation import Ablation, Planned, load_ablation, plan
from experiments.ablation_report import SPENT, write_answer
from experiments.diagnosing import diagnose
from experiments.energy import measured
from experiments.evaluating import evaluate
from experiments.experiment import ExperimentError
from experiments.training import train
from simuljax import document
from simuljax.train.console import duration
from simuljax.train.loop import ENDED
from simuljax.train.metrics import FILE as METRICS

LOCK, OUTPUT, FAILED = "lock", "output.log", "failed.txt"
SHOWN = 2_000  # characters of what a failed run said
State = Literal["done", "running", "failed", "waiting", "blocked"]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Which grid, and how many of its runs at a time."""

    file: Annotated[Path, tyro.conf.Positional]
    """A Python file that defines ABLATION, like experiments/ablation_demo.py."""
    workers: int = 1
    """Runs at a time on this machine; they share its devices."""
    only: str | None = None
    """Train and evaluate this run alone, in this process: for clusters."""
    list: bool = False
    """Say what the grid consists of and where it stands."""


def ablate_command(chosen: Grid) -> Callable[[], None]:
    """Train and evaluate every run of a grid; what is done is not done again."""
    ablation = load_ablation(chosen.file)
    return lambda: ablate(chosen, ablation)


def ablate(chosen: Grid, ablation: Ablation) -> None:
    """The whole grid, one run of it, or a list."""
    runs = plan(ablation)
    if chosen.list:
        print("\n".join(f"{state_of(run, ablation):8} {run.name}" for run in runs))
    elif chosen.only is not None:
        work(the_one(runs, chosen.only), ablation)
    else:
        work_all(chosen, ablation, runs)


def the_one(runs: Sequence[Planned], name: str) -> Planned:
    """The run of this name."""
    found = [run for run in runs if run.name == name]
    if not found:
        raise ExperimentError(f"the grid has no run {name!r}: it has {[run.name for run in runs]}")
    return found[0]


def work(run: Planned, ablation: Ablation) -> None:
    """Trains the run, or goes on training it, and evaluates it if it is one of the table."""
    directory = run.experiment.run
    directory.mkdir(parents=True, exist_ok=True)
    with alone(directory):
        if not (directory / ENDED).exists():
            with measured() as spent:
                train(run.experiment)
            add_spent(directory, "training", spent.seconds, spent.joules)
        if run.row in ablation.seeded:
            with measured() as spent:
                for way in ablation.evaluations:
                    evaluate(replace(way, run=directory))
                diagnose(replace(ablation.evaluations[0], run=directory))
            add_spent(directory, "evaluation", spent.seconds, spent.joules)


@contextmanager
def alone(directory: Path, patience_s: float = 2.0) -> Iterator[None]:
    """Refuses a directory that another process works in; a process that dies gives it back.

    Who only asks whether it is locked holds the lock for a moment: hence the patience.
    """
    deadline = time.monotonic() + patience_s
    with (directory / LOCK).open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    what = f"{directory} is being worked on by another process"
                    raise ExperimentError(what) from None
                time.sleep(0.01)
        yield


def is_locked(directory: Path) -> bool:
    """Whether somebody works in it."""
    if not (directory / LOCK).exists():
        return False
    try:
        with alone(directory, patience_s=0.0):
            return False
    except ExperimentError:
        return True


def add_spent(directory: Path, what: str, seconds: float, joules: float | None) -> None:
    """Adds up over interruptions that were announced; what was killed is not counted."""
    path = directory / SPENT
    spent = document.read(path) if path.exists() else {}
    old = spent.get(what, {"seconds": 0.0, "joules": None})
    total = old["joules"] if joules is None else joules + (old["joules"] or 0.0)
    spent[what] = {"seconds": old["seconds"] + seconds, "joules": total}
    document.write(path, spent)


def state_of(run: Planned, ablation: Ablation) -> State:
    """Where a run stands, by what is in its directory."""
    directory = run.experiment.run
    if is_locked(directory):
        return "running"
    evaluated = run.row not in ablation.seeded or all(
        (replace(way, run=directory).folder / "scores.json").exists()
        for way in ablation.evaluations
    )
    if (directory / ENDED).exists() and evaluated:
        return "done"
    if (directory / FAILED).exists():
        return "failed"
    states = [state_of(need, ablation) for need in run.needs]
    return "blocked" if {"failed", "blocked"} & set(states) else "waiting"


def work_all(chosen: Grid, ablation: Ablation, runs: Sequence[Planned]) -> None:
    """Starts what can be started, shows how far it is, and says what failed."""
    for run in runs:
        (run.experiment.run / FAILED).unlink(missing_ok=True)  # it is tried again
    working: dict[str, subprocess.Popen] = {}
    began = time.monotonic()
    with tqdm(total=len(runs), unit="run", desc=chosen.file.stem, smoothing=0.0) as bar:
        while True:
            collect(working, runs)
            states = {run.name: state_of(run, ablation) for run in runs}
            show(bar, runs, states)
            ready = [r for r in runs if states[r.name] == "waiting" and is_ready(r, states)]
            for run in ready[: max(0, chosen.workers - len(working))]:
                if run.name not in working:
                    working[run.name] = start(chosen, run)
            if not working and not ready and "running" not in states.values():
                break
            time.sleep(0.5)
    print(summary(runs, ablation, time.monotonic() - began))
    if any((r.experiment.run / "eval").exists() for r in runs):
        print(f"answer: {write_answer(ablation, [*runs], f'simuljax ablate {chosen.file}')}")


def show(bar: tqdm, runs: Sequence[Planned], states: Mapping[str, str]) -> None:
    """How many are done and how far those are that run; nothing new is not said again."""
    done = sum(state == "done" for state in states.values())
    running = ", ".join(progress(run) for run in runs if states[run.name] == "running")
    if (done, running) != (bar.n, bar.postfix or ""):
        bar.n = done
        bar.set_postfix_str(running)


def is_ready(run: Planned, states: Mapping[str, str]) -> bool:
    """Whether all that it begins with is there."""
    return all(states[need.name] == "done" for need in run.needs)


def start(chosen: Grid, run: Planned) -> subprocess.Popen:
    """The run in a process of its own, which says what it has to say in a file."""
    directory = run.experiment.run
    directory.mkdir(parents=True, exist_ok=True)
    share = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / chosen.workers:.2f}"}
    command = [sys.executable, "-m", "simuljax.cli", "ablate", str(chosen.file), "--only", run.name]
    with (directory / OUTPUT).open("a") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=share | dict(os.environ)
        )


def collect(working: dict[str, subprocess.Popen], runs: Sequence[Planned]) -> None:
    """Notes the end of processes; of those that failed, why."""
    for name, process in list(working.items()):
        if process.poll() is None:
            continue
        del working[name]
        if process.returncode:
            directory = the_one(runs, name).experiment.run
            said = (directory / OUTPUT).read_text(errors="replace")[-SHOWN:]
            (directory / FAILED).write_text(f"exit {process.returncode}\n{said}")


def progress(run: Planned) -> str:
    """How far a run is."""
    total, path = run.experiment.training.updates, run.experiment.run / METRICS
    step = 0
    if path.exists():
        lines = path.read_bytes()[-4_000:].split(b"\n")
        known = [json.loads(line) for line in lines[1:-1]]
        step = max([entry.get("step", 0) for entry in known], default=0)
    return f"{run.row}{'' if run.seed is None else f'/{run.seed}'} {step}/{total}"


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
