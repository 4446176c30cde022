"""The schedule of a run, as it is declared in an experiment and stored with it."""

from dataclasses import dataclass
from typing import Literal

from simuljax.config.fields import ConfigError, check, setting
from simuljax.train.objective import Objective
from simuljax.train.optimiser import Optimiser
from simuljax.train.parallel import Parallelism
from simuljax.train.step import Random


@dataclass(frozen=True, kw_only=True)
class Training:
    """Duration, optimiser, objective, and what is kept."""

    updates: int = setting(100_000, help="Updates at most; 0 only initialises.", low=0)
    epochs: float | None = setting(None, help="Epochs at most; None: no limit.", above=0)
    optimiser: Optimiser = setting(Optimiser(), help="Optimiser and learning rate.")
    objective: Objective = setting(Objective(), help="Losses, features and augmentation.")
    accumulate: int = setting(1, help="Batches to an update.", low=1)
    seed: int = setting(0, help="Seed of parameters, dropout, noise and augmentation.", low=0)
    order: int | None = setting(None, help="Seed of the order of batches; None: `seed`.", low=0)
    random: Random = setting(
        "rbg", help="Generator; threefry is slower, and the same for runs trained together."
    )
    parallelism: Parallelism = setting("pmap", help="How an update is spread over devices.")
    log_every: int = setting(50, help="Updates between log lines.", low=1)
    validate_every: int = setting(1_000, help="Updates between validations.", low=1)
    patience: int | None = setting(
        None, help="Validations without improvement that end the run (or phase).", low=1
    )
    best_by: Literal["loss", "accuracy", "loss_and_latency"] = setting(
        "loss", help="Criterion of the best checkpoint."
    )
    keep_last: int = setting(3, help="Newest checkpoints to keep.", low=1)
    keep_best: int = setting(5, help="Best checkpoints to keep.", low=0)
    keep_every: int | None = setting(
        None, help="Updates between further checkpoints, all of them kept.", low=1
    )
    average: int | None = setting(
        None, help="Checkpoints around the best to average at the end.", low=1
    )
    tensorboard: Literal["off", "on"] = setting("off", help="Write TensorBoard logs too.")

    def __post_init__(self) -> None:
        check(self)
        waiting = [t.name for t in self.objective.terms if t.start == "convergence"]
        if waiting and self.patience is None:
            raise ConfigError(
                f"term {waiting[0]!r} starts at convergence; set patience, which detects it"
            )
