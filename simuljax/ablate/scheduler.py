"""Where the runs of a grid stand, by what is in their directories, and which come next."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simuljax.ablate.grid import Ablation, Planned
from simuljax.ablate.worker import FAILED, Stage, is_locked, lacking, of_stage
from simuljax.runs.train import can_be_together
from simuljax.train.checkpoint import CHECKPOINTS, Checkpoints
from simuljax.train.member import ENDED
from simuljax.train.metrics import FILE as METRICS

State = Literal["done", "running", "failed", "trained", "unclocked", "waiting", "blocked"]


def state_of(run: Planned, ablation: Ablation) -> State:
    """Where a run stands; what was trained alone waits for its evaluation, and for the clock."""
    directory, trained, left = run.experiment.run, is_trained(run), lacking(run, ablation)
    if trained and not left:
        return "done"
    if is_locked(directory) or any(is_locked(way.folder) for way in left):
        return "running"
    if (directory / FAILED).exists():
        return "failed"
    if trained:
        return "trained" if of_stage(left, "evaluate") else "unclocked"
    states = [state_of(need, ablation) for need in run.needs if not is_trained(need)]
    return "blocked" if {"failed", "blocked"} & set(states) else "waiting"


def to_evaluate(run: Planned, ablation: Ablation) -> int:
    """In how many ways a run is still to be evaluated without a clock; one that failed, in none."""
    failed = (run.experiment.run / FAILED).exists()
    return 0 if failed else len(of_stage(lacking(run, ablation), "evaluate"))


def is_trained(run: Planned) -> bool:
    """Whether others can begin with it."""
    return (run.experiment.run / ENDED).exists()


@dataclass(frozen=True, kw_only=True)
class Task:
    """What one process is to do."""

    runs: Sequence[Planned]
    stage: Stage


def next_tasks(
    runs: Sequence[Planned],
    states: Mapping[str, str],
    working: Sequence[Task],
    left: Mapping[str, int],
    *,
    workers: int,
    together: int,
) -> list[Task]:
    """What free workers do now; `left` is what `to_evaluate` says of each run.

    Evaluations first, so that rows are finished; but of several workers one is left to training.
    Runs that are trained together end one after the other, and what begins with them waits for the
    last of them, or it would be begun in pieces.
    Whoever would be idle helps with a run that is evaluated in more ways than it has processes.
    The clock runs when nothing else does.
    """
    busy = {run.name for task in working for run in task.runs}
    idle = [run for run in runs if run.name not in busy]
    trained = [run for run in idle if states[run.name] == "trained"]
    training = {run.name for task in working if task.stage == "train" for run in task.runs}
    ready = [
        run
        for run in idle
        if states[run.name] == "waiting"
        and all(is_trained(need) and need.name not in training for need in run.needs)
    ]
    ready.sort(key=generation, reverse=True)  # whole rows first, not all beginnings
    free, reserved = workers - len(working), int(bool(ready) and workers > 1)
    evaluating = sum(task.stage == "evaluate" for task in working)
    room = min(free, workers - reserved - evaluating)
    tasks = [Task(runs=some, stage="evaluate") for some in evenly(trained, room)]
    begun = groups(ready, together)[: max(0, free - len(tasks))]
    stage = "train" if workers > 1 else "both"  # nobody else could go on meanwhile
    tasks += [Task(runs=group, stage=stage) for group in begun]
    evaluated = [task for task in [*working, *tasks] if task.stage == "evaluate"]
    tasks += [Task(runs=[run], stage="evaluate") for run in helped(evaluated, left)][
        : free - len(tasks)
    ]
    if not working and not tasks and "running" not in states.values():
        unclocked = [run for run in runs if states[run.name] == "unclocked"]
        tasks += [Task(runs=unclocked, stage="clock")] if unclocked else []
    return tasks


def to_compile(
    runs: Sequence[Planned],
    states: Mapping[str, str],
    working: Sequence[Task],
    compiled: Collection[str],
    together: int,
) -> list[Task]:
    """What can be compiled while runs that others begin with are trained: whoever waits for them.

    Those that wait for the same trainings, of which there are notes already, will be ready at once,
    and are the groups that will be trained.
    """
    trained_by = {run.name: i for i, task in enumerate(working) for run in task.runs}
    waiting: dict[tuple[int, ...], list[Planned]] = {}
    for run in runs:
        needs = [need for need in run.needs if not is_trained(need)]
        awaited = sorted({trained_by.get(need.name, -1) for need in needs})
        new = states[run.name] == "waiting" and run.name not in compiled
        if new and awaited and awaited[0] >= 0 and all(map(is_begun, needs)):
            waiting.setdefault(tuple(awaited), []).append(run)
    return [
        Task(runs=group, stage="compile")
        for some in waiting.values()
        for group in groups(some, together)
    ]


def is_begun(run: Planned) -> bool:
    """Whether it has made an update."""
    return (run.experiment.run / METRICS).exists()


def helped(evaluating: Sequence[Task], left: Mapping[str, int]) -> list[Planned]:
    """Runs that more processes could evaluate, once for each; first those with most to do."""
    there = Counter(run.name for task in evaluating for run in task.runs)
    runs = {run.name: run for task in evaluating for run in task.runs}
    more = {name: left[name] - count for name, count in there.items()}
    return [
        runs[name]
        for turn in range(max(more.values(), default=0))
        for name in sorted(more, key=lambda name: -more[name])
        if turn < more[name]
    ]


def evenly(runs: Sequence[Planned], parts: int) -> Iterator[list[Planned]]:
    """The runs in so many parts at most; neighbours, which may share a program, stay together."""
    if parts < 1:
        return
    for part in np.array_split(np.arange(len(runs)), parts):
        if len(part):
            yield [runs[i] for i in part]


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
    return can_be_together(run.experiment, other.experiment) and steps[0] == steps[1]


def progress(run: Planned) -> str:
    """How far a run that is worked on is."""
    name = f"{run.row}{'' if run.seed is None else f'/{run.seed}'}"
    if is_trained(run):
        return f"{name} evaluated"
    path, training = run.experiment.run / METRICS, run.experiment.training
    lines = path.read_bytes()[-4_000:].split(b"\n")[1:-1] if path.exists() else []
    last = max((json.loads(line) for line in lines), key=lambda e: e.get("step", 0), default={})
    total = "" if training.epochs else f"/{training.updates}"  # or only the corpus knows
    return f"{name} {last.get('step', 0)}{total}"
