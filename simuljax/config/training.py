"""Declare a training: its objective, optimiser, schedule, and the processes it runs on."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from simuljax.audio import SpecAugment, WaveAugment
from simuljax.config.fields import Checked, ConfigError, setting
from simuljax.errors import unknown
from simuljax.losses import JointObjective, Term
from simuljax.losses.terms import BUILT_IN

Parallelism = Literal["pmap", "shard_map"]
Random = Literal["rbg", "threefry"]


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The terms of the loss, as `simuljax.losses.objective` adds them; augmentation of speech."""

    terms: tuple[Term, ...] = setting(JointObjective().terms(), help="Terms of the loss.")
    augment: SpecAugment | None = setting(None, help="Augmentation of features.")
    wave_augment: WaveAugment = setting(WaveAugment(), help="Augmentation of audio.")

    def __post_init__(self) -> None:
        names = [term.name for term in self.terms]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"terms has two called {name!r}; names must differ")
        for name, kind in ((term.name, term.kind) for term in self.terms):
            if kind in BUILT_IN and name != kind and (name in BUILT_IN or kind not in names):
                raise ConfigError(
                    f"term {name!r} has the built-in function {kind!r}; call it {kind!r}, as it is "
                    "known by that name to the best checkpoint and to other terms"
                )

    def weight(self, name: str) -> float:
        """Return the weight of a term; 0 if there is none."""
        return self.weights().get(name, 0.0)

    def weights(self) -> dict[str, float]:
        """Return the weight of every term once all have started."""
        return {term.name: term.weight for term in self.terms}

    def weights_at(self, step: int, converged: int | None) -> dict[str, float]:
        """Return the weight of every term in an update that comes after `step` others."""
        return {term.name: term.weight_at(step, converged) for term in self.terms}

    def with_weights(self, **weights: float) -> "Objective":
        """Return the objective with other weights, by the names of terms."""
        for name in weights.keys() - self.weights():
            raise ConfigError(f"the objective: {unknown(name, self.weights())}")
        new = self.weights() | weights
        terms = tuple(replace(term, weight=float(new[term.name])) for term in self.terms)
        return replace(self, terms=terms)

    def without_weights(self) -> "Objective":
        """Return the same for all objectives that differ in the weights of their terms alone.

        Those that save a teacher's parameters stay apart from others.
        """
        return self.with_weights(**{t.name: float(t.has_teacher) for t in self.terms})

    def computing(self, others: Iterable["Objective"]) -> "Objective":
        """Return an objective that computes every term that counts here or in any of the others."""
        every = (self, *others)
        most = {t.name: max(abs(one.weight(t.name)) for one in every) for t in self.terms}
        return self.with_weights(**most)

    def needs(self, part: str) -> bool:
        """Return True if a term that counts uses "text" or "lattice"."""
        return any(term.needs(part) for term in self.terms)

    @property
    def matching(self) -> dict[str, Any]:
        """Return the options of DAR that say how columns are matched."""
        options = next((term.options for term in self.terms if term.name == "dar"), {})
        return {name: options[name] for name in ("temperature", "across_heads") if name in options}

    @property
    def teacher(self) -> Mapping[str, Any] | None:
        """Return the options of the teacher if it has parameters of its own."""
        return next((term.options for term in self.terms if term.has_teacher), None)


@dataclass(frozen=True, kw_only=True)
class RateFactor(Checked):
    """A part of the model that learns faster or slower than the rest, or not at all."""

    part: str = setting(help="Beginning of the parameters' paths, such as speech/whisper.")
    factor: float = setting(0.0, help="Factor of the learning rate; 0: frozen.", low=0, high=1000)

    def holds(self, path: str) -> bool:
        return f"{path}/".startswith(f"{self.part.strip('/')}/")


@dataclass(frozen=True, kw_only=True)
class Optimiser(Checked):
    """Adam with a warm-up; clipping is by the global norm of the gradient."""

    learning_rate: float = setting(2e-3, help="Rate at the end of the warm-up.", above=0, high=100)
    schedule: Literal["inverse_sqrt", "cosine"] = setting(
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
    factors: tuple[RateFactor, ...] = setting(
        (), help="Parts of the model with another learning rate; the most specific counts."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method == "sgd" and self.weight_decay:
            raise ConfigError(f"weight_decay is {self.weight_decay:g}; method 'sgd' has none")
        if self.schedule == "cosine" and self.decay_updates <= self.warmup:
            raise ConfigError(
                f"decay_updates is {self.decay_updates} and warmup {self.warmup}; the cosine "
                "begins after the warm-up: set decay_updates above it"
            )
        if self.schedule == "cosine" and self.final > self.learning_rate:
            raise ConfigError(
                f"final is {self.final:g}; it must be at most learning_rate, {self.learning_rate:g}"
            )

    def rate(self) -> optax.Schedule:
        peak, warmup = self.learning_rate, max(1, self.warmup)

        def inverse_sqrt(since_warmup: Any) -> Any:  # called during the warm-up, too, and not used
            return peak * (warmup / (jnp.maximum(since_warmup, 0) + warmup)) ** 0.5

        down: optax.Schedule = inverse_sqrt
        if self.schedule == "cosine":
            rest = self.decay_updates - self.warmup
            down = optax.cosine_decay_schedule(peak, rest, self.final / peak)
        up = optax.linear_schedule(0.0, peak, warmup)
        return optax.join_schedules([up, down], [warmup]) if self.warmup else down

    def factor(self, path: str) -> float:
        """Return the factor of the learning rate of a parameter; 0 if it is frozen."""
        parts = [part for part in self.factors if part.holds(path)]
        return max(parts, key=lambda part: len(part.part.strip("/"))).factor if parts else 1.0

    def build(self) -> optax.GradientTransformation:
        """Return what clips gradients, then takes a step of Adam or SGD, then scales it by part."""
        clip = optax.clip_by_global_norm(self.clip) if self.clip else optax.identity()
        if self.method == "sgd":
            step = optax.sgd(self.rate())
        else:
            step = optax.adamw(
                self.rate(), *self.betas, eps=self.epsilon, weight_decay=self.weight_decay
            )
        return optax.chain(clip, step, *([optax.stateless(self._scale)] if self.factors else []))

    def _scale(self, updates: Any, params: Any = None) -> Any:
        """Multiply the update of every parameter, its weight decay included, by its factor."""

        def scale(keys: tuple, update: Any) -> Any:
            path = jax.tree_util.keystr(keys, simple=True, separator="/")
            return update * self.factor(path)

        return jax.tree_util.tree_map_with_path(scale, updates)


@dataclass(frozen=True, kw_only=True)
class Training(Checked):
    """Duration, optimiser, objective, and what is kept."""

    updates: int = setting(100_000, help="Updates at most; 0 only initialises.", low=0)
    epochs: float | None = setting(None, help="Epochs at most; None: no limit.", above=0)
    optimiser: Optimiser = setting(Optimiser(), help="Optimiser and learning rate.")
    objective: Objective = setting(Objective(), help="Losses and augmentation.")
    accumulate: int = setting(1, help="Batches to an update.", low=1)
    seed: int = setting(
        0, help="Seed of parameters, dropout, noise and augmentation.", low=0, high=2**31 - 1
    )
    order: int | None = setting(None, help="Seed of the order of batches; None: `seed`.", low=0)
    random: Random = setting(
        "rbg", help="Generator; threefry is slower, and the same for runs trained together."
    )
    parallelism: Parallelism = setting("shard_map", help="How an update is spread over devices.")
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
        super().__post_init__()
        waiting = [t.name for t in self.objective.terms if t.start == "convergence"]
        if waiting and self.patience is None:
            raise ConfigError(
                f"term {waiting[0]!r} starts at convergence; set patience, which detects it"
            )

    def last_update(self, batches: int) -> int:
        """Return the last of `updates`, or the one that completes the last epoch of `batches`."""
        if self.epochs is None:
            return self.updates
        return min(self.updates, math.ceil(self.epochs * batches / self.accumulate))

    def without_seed_and_weights(self) -> "Training":
        """Return the same for all trainings that one compiled update serves.

        A loss that counts in one of them is computed for all, with a weight of 0 where it does not.
        """
        order = self.seed if self.order is None else self.order
        return replace(self, objective=self.objective.without_weights(), order=order, seed=0)


@dataclass(frozen=True, kw_only=True)
class Cluster(Checked):
    """Where the processes of a run meet; what is None is detected.

    A process that dies takes the others with it, once it has been silent for `silent_s`, and so
    does one that they wait for longer than `slow_s`: collectives with it would never end. All are
    started again and resume from the last checkpoint.
    """

    coordinator: str | None = setting(None, help="HOST:PORT, the port free on process 0's host.")
    processes: int | None = setting(None, help="Processes; 1: alone, whatever is found.", low=1)
    index: int | None = setting(None, help="Index of this process, from 0.", low=0)
    silent_s: int = setting(100, help="Silence after which a process is dead.", low=1, unit="s")
    slow_s: int = setting(600, help="Time that the others wait for a process.", low=1, unit="s")
    start_s: int = setting(300, help="Time for all processes to arrive.", low=1, unit="s")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.coordinator is not None and not re.fullmatch(r".+:\d+", self.coordinator):
            raise ValueError(
                f"coordinator is {self.coordinator!r}; give host and port, as in 10.0.0.1:1234"
            )
        if self.index is not None and not 0 <= self.index < (self.processes or self.index + 1):
            raise ValueError(
                f"index is {self.index} of {self.processes} processes; the first is 0 and the last "
                f"{(self.processes or 1) - 1}"
            )
