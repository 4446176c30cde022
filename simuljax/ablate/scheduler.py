"""Decide what the workers of a grid do next, from the states of its runs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from simuljax.ablate.grid import FAILED, Planned, Stage
from simuljax.config.experiment import Experiment
from simuljax.train.checkpoint import CHECKPOINTS, Checkpoints
from simuljax.train.run_log import FILE as METRICS

Program = tuple[int, Experiment]  # the size of a group, and what its experiments have in common


@dataclass(frozen=True, kw_only=True)
class Task:
    """The work of one process."""

    runs: Sequence[Planned]
    stage: Stage

    @property
    def waits(self) -> bool:
        """Return True if what is to be trained starts from a run that is still in training."""
        untrained = [run for run in self.runs if not run.is_trained]
        return any(not need.is_trained for run in untrained for need in run.needs)

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
        training = first.training.without_seed_and_weights()
        order = training.order if first.data.joining.active else None
        training = replace(training, objective=objective.with_weights(**counts), order=order)
        return len(self.runs), replace(first, run=Path(), init_from=(), training=training)


def next_tasks(
    runs: Sequence[Planned],
    states: Mapping[str, str],
    working: Sequence[Task],
    *,
    workers: int,
    together: int,
    waiting: int = 0,
) -> list[Task]:
    """Return the tasks of free workers, and of those that are `waiting` with a run begun early.

    Evaluations come first, so that variants are finished, but half of several workers are left for
    training. Runs that are trained together end one after the other; what starts from them waits
    for the last, so that it is trained together too. An idle worker helps with a run that has
    more evaluations left than processes. Evaluations in real time run when nothing else does, here
    or by another command.
    """
    busy = {run.name for task in working for run in task.runs}
    idle = [run for run in runs if run.name not in busy]
    trained = [run for run in idle if states[run.name] == "trained"]
    training = {run.name for task in working if task.stage == "train" for run in task.runs}
    ready = [
        run
        for run in idle
        if states[run.name] == "waiting"
        and all(need.is_trained and need.name not in training for need in run.needs)
    ]
    ready.sort(key=generation, reverse=True)  # finish variants before starting others
    free, reserved = workers - len(working), 0
    if workers > 1:
        reserved = min(len(groups(ready, together)), (workers + 1) // 2)
    evaluating = sum(task.stage == "evaluate" for task in working)
    room = min(free, workers - reserved - evaluating)
    # Neighbours may share a program.
    parts = np.array_split(np.arange(len(trained)), room) if room > 0 else []
    shares = [[trained[i] for i in part] for part in parts if len(part)]
    tasks = [Task(runs=share, stage="evaluate") for share in shares]
    begun = groups(ready, together)[: max(0, free - len(tasks))]
    stage = "train" if workers > 1 else "both"  # no other worker could evaluate meanwhile
    tasks += [Task(runs=group, stage=stage) for group in begun]
    evaluated = [task for task in [*working, *tasks] if task.stage == "evaluate"]
    helpers = more_evaluators(evaluated)[: max(0, free - waiting - len(tasks))]
    tasks += [Task(runs=[run], stage="evaluate") for run in helpers]
    if not working and not tasks and "running" not in states.values():
        untimed = [run for run in runs if states[run.name] == "untimed"]
        tasks += [Task(runs=untimed, stage="clock")] if untimed else []
    return tasks


def to_begin_early(
    runs: Sequence[Planned],
    states: Mapping[str, str],
    working: Sequence[Task],
    compiled: Sequence[Program | None],
    together: int,
) -> list[Task]:
    """Return what can load and compile while the runs it starts from are being trained.

    Runs that wait for the same trainings, here or by another command, will be ready at once, in the
    groups returned. The trainings must have started: compiling needs their vocabularies. Of groups
    that share a program one begins, none if it is one of `compiled`: the others take it from the
    cache.
    """
    trained_by = {run.name: i for i, task in enumerate(working) for run in task.runs}
    elsewhere = {n for n, state in states.items() if state == "running"} - trained_by.keys()
    trained_by |= {name: len(working) + i for i, name in enumerate(sorted(elsewhere))}
    waiting: dict[tuple[int, ...], list[Planned]] = {}
    for run in runs:
        needs = [need for need in run.needs if not need.is_trained]
        awaited = sorted({trained_by.get(need.name, -1) for need in needs})
        if (
            states[run.name] == "waiting"
            and awaited
            and awaited[0] >= 0
            and all((need.directory / METRICS).exists() for need in needs)
        ):
            waiting.setdefault(tuple(awaited), []).append(run)
    known, tasks = [*compiled], []
    for group in (group for some in waiting.values() for group in groups(some, together)):
        task = Task(runs=group, stage="train")
        if task.program not in known:
            known.append(task.program)
            tasks.append(task)
    return tasks


def more_evaluators(tasks: Sequence[Task]) -> list[Planned]:
    """Return the runs that more processes could evaluate, once for each, most work first."""
    runs = {run.name: run for task in tasks for run in task.runs}
    sound = [run for run in runs.values() if not (run.directory / FAILED).exists()]
    processes = Counter(run.name for task in tasks for run in task.runs)
    more = {run.name: len(run.pending("evaluate")) - processes[run.name] for run in sound}
    turns = [(turn, -more[name], name) for name in more for turn in range(more[name])]
    return [runs[name] for _, _, name in sorted(turns, key=lambda each: each[:2])]


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
    """Return True if one compiled update, the same batches and the same step serve both."""
    one, two = run.to_train, other.to_train
    steps = [Checkpoints(each.run / CHECKPOINTS).steps()[-1:] for each in (one, two)]
    return one.trains_like(two) and steps[0] == steps[1]
