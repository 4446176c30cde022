"""`simuljax ablate`: trains and evaluates a grid of runs, as many at a time as asked for.

Every run is a process of its own, `simuljax ablate FILE --only NAME`, which a cluster can start as
well as this program. It holds a lock on its directory, so that nothing is trained twice at a time,
and whoever is killed leaves what the next call goes on with. A run that fails is kept with what it
said; those that would begin with it are not run; the others are.

Runs that differ in seeds and weights of losses alone can share a process and a compiled update
(`--together`): small models leave most of a device idle.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tqdm import tqdm

from experiments.ablation import Ablation, Planned, evaluations_of, load_ablation, plan
from experiments.ablation_report import write_answer
from experiments.choosing import ChoiceError, absent
from experiments.publishing import publish
from experiments.training import can_be_together
from experiments.working import is_locked, work
from simuljax.train.checkpoint import CHECKPOINTS, Checkpoints
from simuljax.train.console import duration
from simuljax.train.member import ENDED
from simuljax.train.metrics import FILE as METRICS

OUTPUT, FAILED = "output.log", "failed.txt"
SHOWN = 2_000  # characters of what a failed run said
State = Literal["done", "running", "failed", "waiting", "blocked"]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Which grid, and how many of its runs at a time."""

    file: Annotated[Path, tyro.conf.Positional]
    """A Python file that defines ABLATION, like experiments/ablation_demo.py."""
    grid: str | None = None
    """Which one, of a file that defines several in ABLATIONS."""
    workers: int = 1
    """Runs at a time on this machine; they share its devices."""
    together: int = 1
    """Runs to a process, where they differ in seeds and weights of losses alone."""
    only: tuple[str, ...] = ()
    """Train and evaluate this run, or these together, in this process: for clusters."""
    list: bool = False
    """Say what the grid consists of and where it stands."""
    publish: bool = False
    """Copy the answer and its evidence, but no weights, to experiments/results and docs/results."""


def ablate_command(chosen: Grid) -> Callable[[], None]:
    """Train and evaluate every run of a grid; what is done is not done again."""
    check_counts(chosen)
    ablation = load_ablation(chosen.file, chosen.grid)
    runs = plan(ablation) if chosen.only else []
    for name in chosen.only:
        the_one(runs, name)
    return lambda: ablate(chosen, ablation)


def check_counts(chosen: Grid) -> None:
    """Refuses to work on no run at a time, which would wait for ever."""
    for option, count in (("workers", chosen.workers), ("together", chosen.together)):
        if count < 1:
            raise ChoiceError(f"--{option} {count}: say 1 or more")


def ablate(chosen: Grid, ablation: Ablation) -> None:
    """The whole grid, one run of it, or a list."""
    runs = plan(ablation)
    if chosen.list:
        print("\n".join(f"{state_of(run, ablation):8} {run.name}" for run in runs))
    elif chosen.only:
        work([the_one(runs, name) for name in chosen.only], ablation)
    else:
        work_all(chosen, ablation, runs)
        if chosen.publish:
            where = Path("experiments") / "results", Path("docs") / "results"
            print(f"published: {publish(ablation, runs, *where)}")


def the_one(runs: Sequence[Planned], name: str) -> Planned:
    """The run of this name."""
    found = [run for run in runs if run.name == name]
    if not found:
        names = [run.name for run in runs]
        raise ChoiceError(
            f"the grid has the runs {', '.join(names)}: {absent(name, names)} (--only)"
        )
    return found[0]


def state_of(run: Planned, ablation: Ablation) -> State:
    """Where a run stands, by what is in its directory."""
    directory = run.experiment.run
    if is_locked(directory):
        return "running"
    evaluated = all((way.folder / "scores.json").exists() for way in evaluations_of(run, ablation))
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
    working: list[Working] = []
    began = time.monotonic()
    with tqdm(total=len(runs), unit="run", desc=chosen.file.stem, smoothing=0.0) as bar:
        while True:
            collect(working)
            states = {run.name: state_of(run, ablation) for run in runs}
            show(bar, runs, states)
            busy = {run.name for each in working for run in each.runs}
            ready = [
                r
                for r in runs
                if states[r.name] == "waiting" and r.name not in busy and is_ready(r, states)
            ]
            ready.sort(key=generation, reverse=True)  # whole rows first, not all beginnings
            for group in groups(ready, chosen.together)[: max(0, chosen.workers - len(working))]:
                working.append(start(chosen, group))
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


def generation(run: Planned) -> int:
    """How many runs, one after the other, come before it."""
    return max((1 + generation(need) for need in run.needs), default=0)


def groups(runs: Sequence[Planned], size: int) -> list[list[Planned]]:
    """The runs, those together that can be, so many at most."""
    found: list[list[Planned]] = []
    for run in runs:
        fits = [group for group in found if len(group) < size and can_join(run, group[0])]
        if fits:
            fits[0].append(run)
        else:
            found.append([run])
    return found


def can_join(run: Planned, other: Planned) -> bool:
    """Whether the two can be trained together from where they stand."""
    steps = [Checkpoints(each.experiment.run / CHECKPOINTS).steps()[-1:] for each in (run, other)]
    ended = [(each.experiment.run / ENDED).exists() for each in (run, other)]
    alike = can_be_together(run.experiment, other.experiment)
    return alike and steps[0] == steps[1] and ended[0] == ended[1]


@dataclass(frozen=True, kw_only=True)
class Working:
    """A process, and what it works on."""

    runs: Sequence[Planned]
    process: subprocess.Popen


def start(chosen: Grid, runs: Sequence[Planned]) -> Working:
    """The runs in a process of their own, which says what it has to say in the first one's file."""
    for run in runs:
        run.experiment.run.mkdir(parents=True, exist_ok=True)
    share = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / chosen.workers:.2f}"}
    command = [sys.executable, "-m", "simuljax.cli", "ablate", str(chosen.file), "--only"]
    command += [run.name for run in runs]
    command += ["--grid", chosen.grid] if chosen.grid else []
    with (runs[0].experiment.run / OUTPUT).open("a") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=share | dict(os.environ)
        )
    return Working(runs=runs, process=process)


def collect(working: list[Working]) -> None:
    """Notes the end of processes; of those that failed, why."""
    for each in [each for each in working if each.process.poll() is not None]:
        working.remove(each)
        if each.process.returncode:
            said = (each.runs[0].experiment.run / OUTPUT).read_text(errors="replace")[-SHOWN:]
            for run in each.runs:
                why = f"exit {each.process.returncode}\n{said}"
                (run.experiment.run / FAILED).write_text(why)


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
