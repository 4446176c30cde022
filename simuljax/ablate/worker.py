"""Work on runs of a grid in one process: train them, alone in their directories, and evaluate them.

Several processes may evaluate a run; each takes evaluations that no other has started.
"""

import contextlib
import math
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext

import jax

from simuljax.ablate.grid import FAILED, Grid, Planned, Stage
from simuljax.config.experiment import Experiment
from simuljax.config.fields import ConfigError, read_object, write_json
from simuljax.runs.diagnosis import diagnose
from simuljax.runs.evaluate import Models, evaluate
from simuljax.runs.train import compile_together, train
from simuljax.train.lock import locked, try_lock

SPENT = "spent.json"  # in a run's directory


def work(runs: Sequence[Planned], grid: Grid, stage: Stage = "both") -> None:
    """Train the runs, or resume their training, and evaluate them."""
    if stage in ("both", "compile", "train"):
        with ExitStack() as locks:
            runs = _lock_free(runs, locks)
            untrained = [run for run in runs if not run.is_trained]
            experiments = [run.to_train for run in untrained]
            if untrained and stage == "compile":
                compile_together(experiments)
            elif untrained:  # alone, or together; time and energy are divided among them
                with measured(untrained, "training"):
                    train(*experiments)
        if stage == "both":  # a run that was interrupted has not ended
            runs = [run for run in runs if run.is_trained]
    if stage in ("both", "evaluate", "clock"):
        failed = [run for run in runs if not _try_to_evaluate(run, grid, stage)]
        if failed:
            names = ", ".join(run.name for run in failed)
            raise ConfigError(f"could not be evaluated: {names}")


def _lock_free(runs: Sequence[Planned], locks: ExitStack) -> list[Planned]:
    """Lock the runs that no other process works on, and return them."""
    mine, others = [], []
    for run in runs:
        run.directory.mkdir(parents=True, exist_ok=True)
        (mine if locks.enter_context(try_lock(run.directory)) else others).append(run)
    if others:
        names = ", ".join(str(run.directory) for run in others)
        message = f"another process works on {names}"
        if not mine:
            raise ConfigError(message)
        print(f"{message}: left to it", flush=True)
    return mine


def _try_to_evaluate(run: Planned, grid: Grid, stage: Stage) -> bool:
    """Evaluate a run; on an error, write it to the run's directory and return False."""
    clock = locked(grid.runs, patience_s=math.inf) if stage == "clock" else nullcontext()
    try:
        with clock:  # one at a time
            evaluate_pending(run, stage)
    except Exception:
        error = traceback.format_exc()
        print(error, file=sys.stderr, flush=True)
        (run.directory / FAILED).write_text(error, "utf-8")
        return False
    return True


def evaluate_pending(run: Planned, stage: Stage) -> None:
    """Run every evaluation of the stage that has no result and that no process has started."""
    pending, held = run.pending(stage), run.experiment
    if not pending:
        return
    heads = isinstance(held, Experiment) and held.model.monotonic.policy != "offline"
    models = Models()
    with measured([run], "evaluation"):
        for evaluation in pending:
            evaluation.folder.mkdir(parents=True, exist_ok=True)
            with try_lock(evaluation.folder) as mine:
                if not mine or evaluation not in run.pending():  # by another process, meanwhile
                    continue
                if heads and evaluation == run.evaluations[0] and evaluation.branch == "speech":
                    diagnose(evaluation)
                evaluate(evaluation, models)


@contextmanager
def measured(runs: Sequence[Planned], what: str) -> Iterator[None]:
    """Add time and energy, divided among the runs, to spent.json in their directories.

    Interruptions add up; a process that is killed is not counted.
    """
    before, start = _joules(), time.perf_counter()
    yield
    seconds, after = (time.perf_counter() - start) / len(runs), _joules()
    joules = None if before is None or after is None else (after - before) / len(runs)
    for directory in [run.directory for run in runs]:
        with locked(directory, patience_s=30.0) if what == "evaluation" else nullcontext():
            spent = read_object(directory / SPENT)
            old = spent.get(what, {"seconds": 0.0, "joules": None})
            total = old["joules"] if joules is None else joules + (old["joules"] or 0.0)
            spent[what] = {"seconds": old["seconds"] + seconds, "joules": total}
            write_json(directory / SPENT, spent)


def _joules() -> float | None:
    """Return the energy counters of this host's GPUs; None if there is no way to read them.

    NVIDIA's counter (Volta and later) covers the whole board and everything that runs on it.
    """
    if jax.default_backend() != "gpu":
        return None
    try:
        import pynvml  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(d.id) for d in jax.local_devices()]
        return sum(pynvml.nvmlDeviceGetTotalEnergyConsumption(h) for h in handles) / 1e3
    return None
