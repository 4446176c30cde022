"""What one process of a grid does: trains runs, alone in their directories, and evaluates them.

Several may evaluate a run, each in ways that no other has begun with.
"""

import fcntl
import math
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Literal

from data_pipelines import contents
from simuljax.ablate.energy import SPENT, measured
from simuljax.ablate.grid import Ablation, Planned, evaluations_of
from simuljax.config import document
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import ExperimentError
from simuljax.runs.evaluate import SCORES, check_data, evaluate
from simuljax.runs.heads import diagnose
from simuljax.runs.train import compile_together, train, train_together
from simuljax.train.member import ENDED

LOCK, FAILED = "lock", "failed.txt"
Stage = Literal["both", "compile", "train", "evaluate", "clock"]  # evaluate: what needs no clock


def work(runs: Sequence[Planned], ablation: Ablation, stage: Stage = "both") -> None:
    """Trains the runs, or goes on training them, and evaluates those of the table."""
    if stage in ("both", "compile", "train"):
        with ExitStack() as locks:
            runs = held(runs, locks)
            left = [run for run in runs if not (run.experiment.run / ENDED).exists()]
            if stage != "compile":
                train_all(left)
            elif left:
                compile_together([run.experiment for run in left])
        if stage == "both":  # one that was told to stop has not ended, and has nothing to show yet
            runs = [run for run in runs if (run.experiment.run / ENDED).exists()]
    if stage in ("both", "evaluate", "clock"):
        failed = [run for run in runs if not try_to_evaluate(run, ablation, stage)]
        if failed:
            raise ExperimentError(f"could not be evaluated: {', '.join(r.name for r in failed)}")


def held(runs: Sequence[Planned], locks: ExitStack) -> list[Planned]:
    """Those that nobody else works on, for as long as the locks are held."""
    mine, others = [], []
    for run in runs:
        run.experiment.run.mkdir(parents=True, exist_ok=True)
        (mine if locks.enter_context(if_free(run.experiment.run)) else others).append(run)
    if others:
        what = ", ".join(str(run.experiment.run) for run in others)
        said = f"{what}: being worked on by another process"
        if not mine:
            raise ExperimentError(said)
        print(f"{said}, and left to it", flush=True)
    return mine


def try_to_evaluate(run: Planned, ablation: Ablation, stage: Stage) -> bool:
    """Whether that went well; if not, why is said in the run's directory, and the others go on."""
    clock = alone(ablation.runs, patience_s=math.inf) if stage == "clock" else nullcontext()
    try:
        with clock:  # one at a time
            evaluate_all(run, ablation, stage)
    except Exception:
        why = traceback.format_exc()
        print(why, file=sys.stderr, flush=True)
        (run.experiment.run / FAILED).write_text(why)
        return False
    return True


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


def evaluate_all(run: Planned, ablation: Ablation, stage: Stage = "both") -> None:
    """In every way that the ablation asks for and nobody has begun with."""
    asked = evaluations_of(run, ablation)
    ways = lacking(run, ablation) if stage == "both" else of_stage(lacking(run, ablation), stage)
    if not ways:
        return
    with measured() as spent:
        for way in ways:
            way.folder.mkdir(parents=True, exist_ok=True)
            with if_free(way.folder) as mine:
                if not mine or is_evaluated(way):  # by another process, meanwhile
                    continue
                if way == asked[0] and decides_by_itself(run, way):
                    diagnose(way)
                evaluate(way)
    with alone(run.experiment.run, patience_s=30.0):
        add_spent(run.experiment.run, "evaluation", spent.seconds, spent.joules)


def decides_by_itself(run: Planned, way: Evaluation) -> bool:
    """Whether there are heads to look at, as they hear speech."""
    return run.experiment.model.monotonic.policy != "offline" and way.branch == "speech"


def lacking(run: Planned, ablation: Ablation) -> list[Evaluation]:
    """The evaluations of a run that have no result yet."""
    return [way for way in evaluations_of(run, ablation) if not is_evaluated(way)]


def check_all_data(runs: Sequence[Planned], ablation: Ablation) -> None:
    """Refuses a grid whose runs were trained or evaluated on what its corpora no longer hold."""
    for run in runs:
        corpus = run.experiment.corpus
        contents.check(run.experiment.run, corpus.tables())
        for way in evaluations_of(run, ablation):
            check_data(way, corpus.directory)


def is_evaluated(way: Evaluation) -> bool:
    """Whether there is a result."""
    return (way.folder / SCORES).exists()


def of_stage(ways: Sequence[Evaluation], stage: Stage) -> list[Evaluation]:
    """Those that are played while the clock runs, or the others."""
    return [way for way in ways if (way.mode == "live") == (stage == "clock")]


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


@contextmanager
def if_free(directory: Path) -> Iterator[bool]:
    """Holds a directory that nobody works in, and says whether it does."""
    with ExitStack() as held:
        try:
            held.enter_context(alone(directory, patience_s=0.2))
        except ExperimentError:
            yield False
        else:
            yield True


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
