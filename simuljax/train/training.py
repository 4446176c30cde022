"""The schedule of a run, as it is declared in an experiment and stored with it."""

from dataclasses import dataclass, field
from typing import Literal

from simuljax.train.objective import Objective
from simuljax.train.optimiser import Optimiser
from simuljax.train.parallel import Way
from simuljax.train.schedule import LatencyStart
from simuljax.train.step import Random


@dataclass(frozen=True, kw_only=True)
class Training:
    """How long, how fast, what counts when, and what is kept."""

    updates: int = 100_000
    epochs: float | None = None  # at most; whichever of the two ends first
    optimiser: Optimiser = field(default_factory=Optimiser)
    objective: Objective = field(default_factory=Objective)
    distil_after: int = 0  # updates before online distillation counts
    latency_after: LatencyStart = 0  # updates before latency counts; convergence: patience ran out
    accumulate: int = 1  # batches to an update
    seed: int = 0
    order: int | None = None  # seed of the order of batches; None: `seed`
    random: Random = "rbg"  # threefry: slower, and the same for a run alone and among others
    way: Way = "pmap"
    log_every: int = 50  # updates
    validate_every: int = 1_000  # and after the last update
    patience: int | None = None  # validations without a better one before the run (or phase) ends
    best_by: Literal["loss", "accuracy", "loss_and_latency"] = "loss"  # of a validation
    keep_last: int = 3
    keep_best: int = 5
    keep_every: int | None = None  # updates; saved and kept beside those of validations
    average: int | None = None  # checkpoints around the best, averaged when the run has ended
    tensorboard: Literal["off", "on"] = "off"

    def __post_init__(self) -> None:
        if self.latency_after == "convergence" and self.patience is None:
            raise ValueError("latency_after='convergence' needs patience: when is it reached?")
