"""A small translator trained on 32 utterances of the language of tones until it knows them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from simuljax.batch import Batch
from simuljax.config.model import (
    Attention,
    DecisionKind,
    HeadPolicy,
    ModelConfig,
    Monotonic,
    PreDecision,
    SpeechConfig,
    TextConfig,
    Width,
)
from simuljax.config.training import Objective, Optimiser
from simuljax.losses import JointObjective
from simuljax.models.joint import JointModel
from simuljax.train.step import AXIS, CompiledUpdate, Replicas, TrainState, Update
from tests.train import small, tones

SPEECH_ALONE = JointObjective(
    smoothing=0.0, distillation=0.0, cross_attentive=0.0, translation=0.0, decision_attentive=0.0
)
JOINT = JointObjective(smoothing=0.0, latency=0.05)
EVERY, MOST = 20, 400  # updates between looks, and in all


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a translator of the grid is."""

    attention: Attention = "lookback"
    kind: DecisionKind = "fixed"
    policy: HeadPolicy = "learned"
    k: int = 1
    branches: tuple[str, ...] = ("st",)

    def __str__(self) -> str:
        k = f"-{self.k}" if self.policy == "wait_k" else ""
        joint = "-joint" if len(self.branches) > 1 else ""
        return f"{self.attention}-{self.kind}-{self.policy}{k}{joint}"

    def translator(self) -> ModelConfig:
        joint = len(self.branches) > 1
        return ModelConfig(
            source_vocabulary=tones.VOCABULARY,
            target_vocabulary=tones.VOCABULARY,
            width=Width(model=32, hidden=64, heads=2, dropout=0.0),
            speech=SpeechConfig(layers=2, shared=int(joint), channels=64),
            text=TextConfig(layers=1) if joint else None,
            decoder_layers=2,
            monotonic=Monotonic(
                attention=self.attention, policy=self.policy, chunk=4, wait_k=(self.k, self.k)
            ),
            predecision=PreDecision(kind=self.kind, step_ms=120),
        )


@dataclass(frozen=True, kw_only=True)
class Known:
    """How well a batch is known without noise: per token, in each branch."""

    nll: dict[str, float]
    accuracy: dict[str, float]

    @property
    def is_enough(self) -> bool:
        return max(self.nll.values()) < 0.05 and min(self.accuracy.values()) >= 0.99

    def __str__(self) -> str:
        return "  ".join(f"{b} {self.nll[b]:.4f} {self.accuracy[b]:6.1%}" for b in self.nll)


@dataclass(frozen=True, kw_only=True)
class Overfit:
    """What became of a training."""

    known: Known
    updates: int
    compile_s: float
    train_s: float

    def __str__(self) -> str:
        return (
            f"{self.known}  {self.updates:4} updates  "
            f"{self.compile_s:5.1f} s compiling  {self.train_s:5.1f} s training"
        )


def driver_of(translator: ModelConfig, objective: JointObjective, batch: Batch) -> CompiledUpdate:
    """On one device: there is nothing to divide."""
    update = Update(
        model=JointModel(translator, axis=AXIS),
        objective=Objective(terms=objective.terms()),
        optimiser=Optimiser(learning_rate=4e-3, warmup=40, betas=(0.9, 0.98), clip=1.0).build(),
        statistics=tones.heard_in(batch).statistics,
    )
    mesh = Mesh(np.array(jax.devices()[:1]), (AXIS,))
    return CompiledUpdate(update, Replicas(mesh=mesh, parallelism="shard_map"))


def overfit(case: Case, batch: Batch, most: int = MOST) -> Overfit:
    """Trains until every branch knows the batch, or for about so many updates."""
    objective = JOINT if len(case.branches) > 1 else SPEECH_ALONE
    start, driver = time.perf_counter(), driver_of(case.translator(), objective, batch)
    state, weights = driver.first(), weights_of(driver)
    state, _ = driver.update(state, [batch], weights)
    known = look(driver, state, batch, case.branches)
    compiled, updates = time.perf_counter(), 1
    while updates < most and not known.is_enough:
        for _ in range(EVERY):
            state, _ = driver.update(state, [batch], weights)
        updates += EVERY
        known = look(driver, state, batch, case.branches)
    return Overfit(
        known=known,
        updates=updates,
        compile_s=compiled - start,
        train_s=time.perf_counter() - compiled,
    )


def weights_of(driver: CompiledUpdate) -> dict[str, Any]:
    return driver.replicas.replicate(small.weights(driver.model.objective))


def look(
    driver: CompiledUpdate, state: TrainState, batch: Batch, branches: tuple[str, ...]
) -> Known:
    """Validation, on what was trained on."""
    seen = jax.device_get(driver.validate(state, [batch]))
    nll = {b: seen.sums[f"{b}_nll"] for b in branches}
    right = {b: seen.logged[f"{b}_accuracy"] for b in branches}
    return Known(
        nll={b: float(s.numerator / s.denominator) for b, s in nll.items()},
        accuracy={b: float(s.numerator / s.denominator) for b, s in right.items()},
    )


@contextmanager
def compiling_quickly() -> Iterator[None]:
    """A third of the time to compile, twice the time to run: better for a hundred updates."""
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", False)
