"""One update of the parameters, as every replica computes it.

A replica takes the gradient of its own numerators over the denominators of the whole update, on
all devices and in all micro-batches, and gradients are summed: the result is that of one device
that sees everything at once. Denominators come from lengths alone, so they are known beforehand.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import flax.struct
import jax
import jax.numpy as jnp
import optax

from simuljax.audio import Statistics
from simuljax.batch import Batch
from simuljax.losses import Loss, TermSum, combine
from simuljax.models.translator import Translator
from simuljax.text import Words
from simuljax.train.objective import Forward, Objective, Variables, forward

AXIS = "replicas"
TEXT_PARTS = ("text", "shared", "decoder")  # parameters that a text branch computes with
Random = Literal["rbg", "threefry"]


@flax.struct.dataclass
class TrainState:
    """All that changes in training; the random keys follow from `step` and the run's seed."""

    step: jax.Array  # int32 []: updates made
    params: Any
    statistics: Any  # BatchNorm's; {} for a model without
    optimiser: optax.OptState
    teacher: Any = flax.struct.field(default_factory=dict)  # parameters; {} where DAR needs none


@flax.struct.dataclass
class Gathered:
    """Gradients and sums over some of an update's micro-batches, on all replicas."""

    gradient: Any
    statistics: Any
    sums: dict[str, TermSum]
    logged: dict[str, TermSum]


@flax.struct.dataclass
class Report:
    """Metrics of an update, over all replicas."""

    loss: Loss
    logged: dict[str, TermSum]
    gradient_norm: jax.Array
    finite: jax.Array  # bool []: whether the update was made


@flax.struct.dataclass
class Validation:
    """The sums of a validation batch, over all replicas."""

    sums: dict[str, TermSum]
    logged: dict[str, TermSum]


@dataclass(frozen=True, kw_only=True, eq=False)
class Update:
    """The per-replica functions of training; `train.parallel` wraps them for devices.

    Weights and seed are arguments, so that runs that differ in nothing else share what is compiled.
    """

    model: Translator
    objective: Objective
    optimiser: optax.GradientTransformation
    statistics: Statistics
    words: Words | None = None
    random: Random = "rbg"

    def whole(
        self, state: TrainState, batch: Batch, weights: Mapping[str, jax.Array], seed: jax.Array
    ) -> tuple[TrainState, Report]:
        """Make one update from one batch."""
        return self.apply(state, self.gather(state, batch, weights, seed, 0, None), weights)

    def totals(self, state: TrainState, batch: Batch) -> dict[str, jax.Array]:
        """Return the denominators of a micro-batch; nothing else is computed."""
        sums = self._forward(state, state.params, batch, None).sums
        return jax.lax.psum({name: s.denominator for name, s in sums.items()}, AXIS)

    def gather(
        self,
        state: TrainState,
        batch: Batch,
        weights: Mapping[str, jax.Array],
        seed: jax.Array,
        micro: jax.Array | int,
        totals: Mapping[str, jax.Array] | None,
    ) -> Gathered:
        """Return a micro-batch's part of the gradient; `totals` None: it is the only one."""
        key = jax.random.fold_in(self._key(seed, state.step), micro)

        def loss(params: Any) -> tuple[jax.Array, Forward]:
            passed = self._forward(state, params, batch, key)
            own = {name: s.denominator for name, s in passed.sums.items()}
            whole = jax.lax.psum(own, AXIS) if totals is None else totals
            shares = {name: TermSum(s.numerator, whole[name]) for name, s in passed.sums.items()}
            return combine(shares, weights).total, passed

        gradient, passed = jax.grad(loss, has_aux=True)(state.params)
        gradient, sums, logged = jax.lax.psum((gradient, passed.sums, passed.logged), AXIS)
        return Gathered(gradient=gradient, statistics=passed.statistics, sums=sums, logged=logged)

    @jax.named_scope("optimiser")
    def apply(
        self, state: TrainState, gathered: Gathered, weights: Mapping[str, jax.Array]
    ) -> tuple[TrainState, Report]:
        """Apply the gradient, unless it is not finite: then the state stays as it was."""
        norm = jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(gathered.gradient)))
        finite = jnp.isfinite(norm)
        change, optimiser = self.optimiser.update(gathered.gradient, state.optimiser, state.params)
        params = optax.apply_updates(state.params, change)
        made = TrainState(
            step=state.step,
            params=params,
            statistics=gathered.statistics,
            optimiser=optimiser,
            teacher=self._next_teacher(state.teacher, params),
        )
        kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), made, state)
        report = Report(
            loss=combine(gathered.sums, weights),
            logged=gathered.logged,
            gradient_norm=norm,
            finite=finite,
        )
        return dataclasses.replace(kept, step=state.step + 1), report

    def validate(self, state: TrainState, batch: Batch) -> Validation:
        """Return the terms without dropout, noise or augmentation, and what else is watched."""
        return self._seen(state, batch, watch=True)

    def terms(self, state: TrainState, batch: Batch) -> Validation:
        """Return the terms alone: the forward pass whose operations are counted."""
        return self._seen(state, batch, watch=False)

    def _seen(self, state: TrainState, batch: Batch, *, watch: bool) -> Validation:
        passed = self._forward(state, state.params, batch, None, watch=watch)
        return jax.lax.psum(Validation(sums=passed.sums, logged=passed.logged), AXIS)

    def first_teacher(self, params: Any) -> Any:
        """Return a copy of the parameters of the text branch, or {} where DAR needs no teacher."""
        if self.objective.teacher is None:
            return {}
        return jax.tree.map(jnp.copy, {part: params[part] for part in TEXT_PARTS if part in params})

    def _next_teacher(self, teacher: Any, params: Any) -> Any:
        options = self.objective.teacher
        if options is None or options["teacher"] != "averaged":
            return teacher
        decay = options.get("decay", 0.999)
        own = {part: params[part] for part in teacher}
        return jax.tree.map(lambda old, new: decay * old + (1 - decay) * new, teacher, own)

    def _forward(
        self,
        state: TrainState,
        params: Any,
        batch: Batch,
        key: jax.Array | None,
        *,
        watch: bool = False,
    ) -> Forward:
        variables = Variables(params=params, statistics=state.statistics, teacher=state.teacher)
        given = (batch, self.statistics, self.objective, key, self.words)
        return forward(self.model, variables, *given, watch=watch)

    def first_key(self, seed: jax.Array | int) -> jax.Array:
        """Return the random key of a run."""
        impl = {"rbg": "rbg", "threefry": "threefry2x32"}[self.random]
        return jax.random.key(seed, impl=impl)

    def _key(self, seed: jax.Array, step: jax.Array) -> jax.Array:
        """Return the random key of one replica in one update."""
        key = jax.random.fold_in(self.first_key(seed), step)
        return jax.random.fold_in(key, jax.lax.axis_index(AXIS))
