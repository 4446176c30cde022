"""The optimiser and its schedule, as configuration."""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import optax


@dataclass(frozen=True, kw_only=True)
class Optimiser:
    """Adam with a warm-up; clipping is by the global norm of the gradient."""

    learning_rate: float = 2e-3  # at the end of the warm-up
    schedule: Literal["inverse_sqrt", "cosine", "constant"] = "inverse_sqrt"
    warmup: int = 20_000
    decay_updates: int = 100_000  # of cosine: where it reaches `final`
    final: float = 0.0  # of cosine
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0  # above 0: AdamW
    clip: float = 10.0
    method: Literal["adam", "sgd"] = "adam"  # sgd shows mistakes that Adam hides

    def rate(self) -> optax.Schedule:
        """The learning rate by update, from 0."""
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
        """Is asked during the warm-up too, when it does not count."""
        warmup = max(1, self.warmup)
        return self.learning_rate * (warmup / (jnp.maximum(since_warmup, 0) + warmup)) ** 0.5

    def build(self) -> optax.GradientTransformation:
        """The transformation of gradients into updates."""
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
