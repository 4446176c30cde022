"""What one process of a grid does: trains runs and evaluates them, alone in their directories."""

import fcntl
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from experiments.ablation import Ablation, Planned, evaluations_of
from experiments.diagnosing import diagnose
from experiments.energy import SPENT, measured
from experiments.evaluating import evaluate
from experiments.experiment import ExperimentError
from experiments.training import train, train_together
from simuljax import document
from simuljax.train.member import ENDED

LOCK = "lock"
Stage = Literal["both", "train", "evaluate"]


def work(runs: Sequence[Planned], ablation: Ablation, stage: Stage = "both") -> None:
    """Trains the runs, or goes on training them, and evaluates those of the table."""
    with ExitStack() as locks:
        for run in runs:
            run.experiment.run.mkdir(parents=True, exist_ok=True)
            locks.enter_context(alone(run.experiment.run))
        if stage != "evaluate":
            train_all([run for run in runs if not (run.experiment.run / ENDED).exists()])
        for run in runs:
            if stage != "train" and run.row in ablation.seeded:
                evaluate_all(run, ablation)


def train_all(runs: Sequence[Planned]) -> None:
    """One run, or several together; what that took is divided among them."""
    if not runs:
        return
    with measured() as spent:
        if len(runs) == 1:
            train(runs[0].experiment)
        else:
            train_together([run.experiment for run in runs])
    joules = None if spent.joules is None else spent.joules / len(runs)
    for run in runs:
        add_spent(run.experiment.run, "training", spent.seconds / len(runs), joules)


def evaluate_all(run: Planned, ablation: Ablation) -> None:
    """In every way that the ablation asks for."""
    ways = evaluations_of(run, ablation)
    with measured() as spent:
        for way in ways:
            evaluate(way)
        if run.experiment.model.monotonic.policy != "offline":  # or no head decides anything
            diagnose(ways[0])
    add_spent(run.experiment.run, "evaluation", spent.seconds, spent.joules)


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
