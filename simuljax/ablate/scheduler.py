"""Read the state of a grid's runs from their directories, and decide what its workers do next."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from data_pipelines.dataset import check_used_data
from simuljax.ablate.grid import Grid, Planned, Pretrained, evaluations_of
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import Experiment, Joining
from simuljax.runs.evaluate import SCORES, Models, check_data, corpus_of
from simuljax.train.checkpoint import CHECKPOINTS, Checkpoints
from simuljax.train.lock import is_locked
from simuljax.train.run import ENDED
from simuljax.train.run_log import FILE as METRICS

FAILED = "failed.txt"  # in a run's directory
Stage = Literal["both", "compile", "train", "evaluate", "clock"]  # evaluate: without a clock
# trained: to be evaluated; untimed: to be evaluated in real time; blocked: a run it needs failed
State = Literal["done", "running", "failed", "trained", "untimed", "waiting", "blocked"]


def state_of(run: Planned, grid: Grid) -> State:
    """Return the state of a run."""
    directory, trained, pending = run.experiment.run, is_trained(run), lacking(run, grid)
    if trained and not pending:
        return "done"
    if is_locked(directory) or any(is_locked(each.folder) for each in pending):
        return "running"
    if (directory / FAILED).exists():
        return "failed"
    if trained:
        return "trained" if of_stage(pending, "evaluate") else "untimed"
    states = [state_of(need, grid) for need in run.needs if not is_trained(need)]
    return "blocked" if {"failed", "blocked"} & set(states) else "waiting"


def is_trained(run: Planned) -> bool:
    """Return True if the training has ended, so that others can start from the run."""
    return isinstance(run.experiment, Pretrained) or (run.experiment.run / ENDED).exists()


def lacking(run: Planned, grid: Grid) -> list[Evaluation]:
    """Return the evaluations of a run that have no result."""
    return [each for each in evaluations_of(run, grid) if not is_evaluated(each)]


def is_evaluated(evaluation: Evaluation) -> bool:
    """Return True if there is a result."""
    return (evaluation.folder / SCORES).exists()


def of_stage(evaluations: Sequence[Evaluation], stage: Stage) -> list[Evaluation]:
    """Return those in real time for the stage `clock`, the others for any other stage."""
    return [each for each in evaluations if (each.mode == "live") == (stage == "clock")]


def to_evaluate(run: Planned, grid: Grid) -> int:
    """Count the evaluations of a run that are left, without those in real time; 0 if it failed."""
    failed = (run.experiment.run / FAILED).exists()
    return 0 if failed else len(of_stage(lacking(run, grid), "evaluate"))


def progress(run: Planned, grid: Grid) -> str:
    """Describe how far a running run is, such as "dar/0 1200/5000" or "dar/0 evaluated 1/3"."""
    name = f"{run.variant}{'' if run.seed is None else f'/{run.seed}'}"
    if is_trained(run):
        every = len(evaluations_of(run, grid))
        return f"{name} evaluated {every - len(lacking(run, grid))}/{every}"
    path, training = run.experiment.run / METRICS, run.to_train.training
    lines = path.read_bytes()[-4_000:].split(b"\n")[1:-1] if path.exists() else []
    if not lines:
        return f"{name} starting"
    steps = [re.search(rb'"step": *(\d+)', line) for line in lines]
    last = max((int(step[1]) for step in steps if step), default=0)
    return f"{name} {last}{'' if training.epochs else f'/{training.updates}'}"


def check_all_data(runs: Sequence[Planned], grid: Grid) -> None:
    """Reject a grid whose corpora have changed since its runs were trained or evaluated."""
    for run in runs:
        own = None
        if isinstance(run.experiment, Experiment):
            own = run.experiment.data.directory
            check_used_data(run.experiment.run, run.experiment.data.tables())
        for evaluation in evaluations_of(run, grid):
            check_data(evaluation, own or corpus_of(evaluation, Models()))


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
        training = first.training.without_seed_and_weights()
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
    # Neighbours may share a program.
    parts = np.array_split(np.arange(len(trained)), room) if room > 0 else []
    shares = [[trained[i] for i in part] for part in parts if len(part)]
    tasks = [Task(runs=share, stage="evaluate") for share in shares]
    begun = groups(ready, together)[: max(0, free - len(tasks))]
    stage = "train" if workers > 1 else "both"  # no other worker could evaluate meanwhile
    tasks += [Task(runs=group, stage=stage) for group in begun]
    evaluated = [task for task in [*working, *tasks] if task.stage == "evaluate"]
    helpers = more_evaluators(evaluated, evaluations)[: free - len(tasks)]
    tasks += [Task(runs=[run], stage="evaluate") for run in helpers]
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


def more_evaluators(tasks: Sequence[Task], evaluations: Mapping[str, int]) -> list[Planned]:
    """Return the runs that more processes could evaluate, once for each, most work first."""
    runs = {run.name: run for task in tasks for run in task.runs}
    processes = Counter(run.name for task in tasks for run in task.runs)
    more = {name: evaluations[name] - count for name, count in processes.items()}
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
    common = [each.training.without_seed_and_weights() for each in (one, two)]
    same = replace(two, run=one.run, init_from=one.init_from, training=one.training)
    if same != one or common[0] != common[1]:
        return False
    steps = [Checkpoints(each.run / CHECKPOINTS).steps()[-1:] for each in (one, two)]
    return steps[0] == steps[1]
