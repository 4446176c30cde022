"""Read the state of a grid's runs from the files in their directories."""

import re
from collections.abc import Sequence
from typing import Literal

from data_pipelines.dataset import check_used_data
from simuljax.ablate.grid import Grid, Planned, Pretrained, evaluations_of
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import Experiment
from simuljax.runs.evaluate import SCORES, check_data, corpus_of
from simuljax.train.lock import is_locked
from simuljax.train.loop import ENDED
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
            check_data(evaluation, own or corpus_of(evaluation))
