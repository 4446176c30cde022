"""Decide what the workers of a grid do next."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from simuljax.ablate.grid import Planned
from simuljax.ablate.state import Stage, is_trained
from simuljax.config.experiment import Experiment, Joining
from simuljax.train.checkpoint import CHECKPOINTS, Checkpoints
from simuljax.train.loop import alike
from simuljax.train.run_log import FILE as METRICS

Program = tuple[int, Experiment]  # the size of a group, and what its experiments have in common


@dataclass(frozen=True, kw_only=True)
class Task:
    """The work of one process."""

    runs: Sequence[Planned]
    stage: Stage

    @property
    def program(self) -> Program | None:
        """Return what decides the update that the task compiles; None if it compiles none.

        Weights decide only which losses are computed. The order of batches changes no shape, except
        where it also draws the recordings that are joined.
        """
        if self.stage in ("evaluate", "clock"):
            return None
        first, *others = [run.to_train for run in self.runs]
        objective = first.training.objective.computing(each.training.objective for each in others)
        counts = {name: float(weight > 0) for name, weight in objective.weights().items()}
        training = alike(first.training)
        order = training.order if first.data.joining != Joining() else None
        training = replace(training, objective=objective.with_weights(**counts), order=order)
        return len(self.runs), replace(first, run=Path(), init_from=(), training=training)


def next_tasks(
    runs: Sequence[Planned],
    states: Mapping[str, str],
    working: Sequence[Task],
    evaluations: Mapping[str, int],
    *,
    workers: int,
    together: int,
) -> list[Task]:
    """Return the tasks of free workers; `evaluations` is `to_evaluate` of each run.

    Evaluations come first, so that variants are finished, but half of several workers are left for
    training. Runs that are trained together end one after the other; what starts from them waits
    for the last, so that it is trained together too. An idle worker helps with a run that has
    more evaluations left than processes. Evaluations in real time run when nothing else does.
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
    ready.sort(key=generation, reverse=True)  # finish variants before starting others
    free, reserved = workers - len(working), 0
    if workers > 1:
        reserved = min(len(groups(ready, together)), (workers + 1) // 2)
    evaluating = sum(task.stage == "evaluate" for task in working)
    room = min(free, workers - reserved - evaluating)
    tasks = [Task(runs=some, stage="evaluate") for some in evenly(trained, room)]
    begun = groups(ready, together)[: max(0, free - len(tasks))]
    stage = "train" if workers > 1 else "both"  # no other worker could evaluate meanwhile
    tasks += [Task(runs=group, stage=stage) for group in begun]
    evaluated = [task for task in [*working, *tasks] if task.stage == "evaluate"]
    tasks += [Task(runs=[run], stage="evaluate") for run in helped(evaluated, evaluations)][
        : free - len(tasks)
    ]
    if not working and not tasks and "running" not in states.values():
        untimed = [run for run in runs if states[run.name] == "untimed"]
        tasks += [Task(runs=untimed, stage="clock")] if untimed else []
    return tasks


def to_compile(
    runs: Sequence[Planned],
    states: Mapping[str, str],
    working: Sequence[Task],
    compiled: Sequence[Program | None],
    together: int,
) -> list[Task]:
    """Return what can be compiled while the runs that others start from are being trained.

    Runs that wait for the same trainings will be ready at once, in the groups that will be
    trained. The trainings must have started: compiling needs their vocabularies. A program that
    several groups share is compiled once, and not at all if it is one of `compiled`.
    """
    trained_by = {run.name: i for i, task in enumerate(working) for run in task.runs}
    waiting: dict[tuple[int, ...], list[Planned]] = {}
    for run in runs:
        needs = [need for need in run.needs if not is_trained(need)]
        awaited = sorted({trained_by.get(need.name, -1) for need in needs})
        if (
            states[run.name] == "waiting"
            and awaited
            and awaited[0] >= 0
            and all((need.experiment.run / METRICS).exists() for need in needs)
        ):
            waiting.setdefault(tuple(awaited), []).append(run)
    known, tasks = [*compiled], []
    for group in (group for some in waiting.values() for group in groups(some, together)):
        task = Task(runs=group, stage="compile")
        if task.program not in known:
            known.append(task.program)
            tasks.append(task)
    return tasks


def helped(evaluating: Sequence[Task], evaluations: Mapping[str, int]) -> list[Planned]:
    """Return the runs that more processes could evaluate, once for each, most work first."""
    processes = Counter(run.name for task in evaluating for run in task.runs)
    runs = {run.name: run for task in evaluating for run in task.runs}
    more = {name: evaluations[name] - count for name, count in processes.items()}
    return [
        runs[name]
        for turn in range(max(more.values(), default=0))
        for name in sorted(more, key=lambda name: -more[name])
        if turn < more[name]
    ]


def evenly(runs: Sequence[Planned], parts: int) -> Iterator[list[Planned]]:
    """Divide runs into at most so many parts of neighbours, which may share a program."""
    if parts < 1:
        return
    for part in np.array_split(np.arange(len(runs)), parts):
        if len(part):
            yield [runs[i] for i in part]


def generation(run: Planned) -> int:
    """Count the trainings, one after the other, that come before the run."""
    return max((1 + generation(need) for need in run.needs), default=0)


def groups(runs: Sequence[Planned], size: int) -> list[list[Planned]]:
    """Group the runs that can be trained together, at most so many to a group."""
    found: list[list[Planned]] = []
    for run in runs:
        fits = [group for group in found if len(group) < size and can_join(run, group[0])]
        if fits:
            fits[0].append(run)
        else:
            found.append([run])
    return found


def can_join(run: Planned, other: Planned) -> bool:
    """Return True if the two can be trained together from their last checkpoints."""
    steps = [Checkpoints(each.experiment.run / CHECKPOINTS).steps()[-1:] for each in (run, other)]
    return can_be_together(run.to_train, other.to_train) and steps[0] == steps[1]


def can_be_together(one: Experiment, other: Experiment) -> bool:
    """Return True if one compiled update and the same batches serve both."""
    same = replace(other, run=one.run, init_from=one.init_from, training=one.training)
    return same == one and alike(one.training) == alike(other.training)
