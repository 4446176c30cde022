"""The schedule of a run, as it is declared in an experiment and stored with it.

The optimiser and its schedule, as configuration.
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from simuljax.config.fields import ConfigError, check, setting
from simuljax.train.objective import Objective
from simuljax.train.step import Parallelism, Random


@dataclass(frozen=True, kw_only=True)
class Optimiser:
    """Adam with a warm-up; clipping is by the global norm of the gradient."""

    learning_rate: float = setting(2e-3, help="Rate at the end of the warm-up.", above=0)
    schedule: Literal["inverse_sqrt", "cosine", "constant"] = setting(
        "inverse_sqrt", help="Decay after the warm-up."
    )
    warmup: int = setting(20_000, help="Updates of the warm-up.", low=0)
    decay_updates: int = setting(
        100_000, help="Update at which the cosine reaches `final`.", low=1, applies="cosine"
    )
    final: float = setting(0.0, help="Last rate of the cosine.", low=0, applies="cosine")
    betas: tuple[float, float] = setting((0.9, 0.999), help="Adam's betas.", low=0, below=1)
    epsilon: float = setting(1e-8, help="Adam's epsilon.", above=0)
    weight_decay: float = setting(0.0, help="Weight decay; above 0 it is AdamW.", low=0)
    clip: float = setting(10.0, help="Greatest norm of the gradient; 0: no clipping.", low=0)
    method: Literal["adam", "sgd"] = setting("adam", help="sgd shows mistakes that Adam hides.")

    def __post_init__(self) -> None:
        check(self)

    def rate(self) -> optax.Schedule:
        """Return the learning rate by update, from 0."""
        warmup = max(1, self.warmup)
        up = optax.linear_schedule(0.0, self.learning_rate, warmup)
        match self.schedule:
            case "inverse_sqrt":
                down = self._inverse_sqrt
            case "cosine":
                rest = max(1, self.decay_updates - warmup)
                low = self.final / self.learning_rate
                down = optax.cosine_decay_schedule(self.learning_rate, rest, low)
            case "constant":
                down = optax.constant_schedule(self.learning_rate)
        return optax.join_schedules([up, down], [warmup]) if self.warmup else down

    def _inverse_sqrt(self, since_warmup: jax.typing.ArrayLike) -> jax.Array:
        """Return the decayed rate; during the warm-up it is not used."""
        warmup = max(1, self.warmup)
        return self.learning_rate * (warmup / (jnp.maximum(since_warmup, 0) + warmup)) ** 0.5

    def build(self) -> optax.GradientTransformation:
        """Return the transformation of gradients into updates."""
        clip = optax.clip_by_global_norm(self.clip) if self.clip else optax.identity()
        if self.method == "sgd":
            return optax.chain(clip, optax.sgd(self.rate()))
        b1, b2 = self.betas
        return optax.chain(
            clip,
            optax.adamw(
                self.rate(), b1=b1, b2=b2, eps=self.epsilon, weight_decay=self.weight_decay
            ),
        )


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
