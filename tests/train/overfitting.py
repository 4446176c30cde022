"""Small translators trained on utterances of the language of tones until they know them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import jax

from simuljax.batch import Batch
from simuljax.config.model import ModelConfig, Monotonic, PreDecision, SpeechConfig, Width
from simuljax.config.training import Objective, Optimiser
from simuljax.losses import JointObjective
from simuljax.train.step import CompiledUpdate, TrainState
from tests.train import small, tones

SPEECH_ALONE = replace(small.ALONE, smoothing=0.0)
ADAM = Optimiser(learning_rate=4e-3, warmup=40, betas=(0.9, 0.98), clip=1.0)
EVERY = 20  # updates between looks


def translator(**changes: Any) -> ModelConfig:
    given: dict[str, Any] = {
        "source_vocabulary": tones.VOCABULARY,
        "target_vocabulary": tones.VOCABULARY,
        "width": Width(model=32, hidden=64, heads=2, dropout=0.0),
        "speech": SpeechConfig(layers=2, shared=0, channels=64),
        "text": None,
        "decoder_layers": 2,
    }
    return ModelConfig(**given | changes)


CAAT = translator(
    speech=SpeechConfig(
        kind="streaming", layers=1, shared=0, channels=32, chunk=4, left=16, right=2
    ),
    decoder="caat",
    decoder_layers=1,
    joiner_layers=1,
    predecision=PreDecision(step_ms=160),
    monotonic=Monotonic(policy="offline"),
)


def driver_of(
    model: ModelConfig, objective: JointObjective, batch: Batch, **changes: Any
) -> CompiledUpdate:
    heard = tones.heard_in(batch)
    terms = Objective(terms=objective.terms())
    return small.compiled(small.update(model, ADAM, objective=terms, front_end=heard, **changes))


@dataclass(frozen=True, kw_only=True)
class Known:
    """How well a batch is known without noise: per token, in each branch."""

    nll: dict[str, float]
    accuracy: dict[str, float]

    @property
    def is_enough(self) -> bool:
        return max(self.nll.values()) < 0.05 and min(self.accuracy.values()) >= 0.99


def overfit(driver: CompiledUpdate, batch: Batch, most: int = 400) -> tuple[Known, TrainState]:
    """Trains until every branch knows the batch, or for about so many updates."""
    state, weights, updates = driver.first(), small.weights_of(driver), 0
    known = look(driver, state, batch)
    while updates < most and not known.is_enough:
        for _ in range(EVERY):
            state, _ = driver.update(state, [batch], weights)
        updates += EVERY
        known = look(driver, state, batch)
    print(f"{known} after {updates} updates")
    return known, state


def look(driver: CompiledUpdate, state: TrainState, batch: Batch) -> Known:
    """Validation, on what was trained on."""
    seen = jax.device_get(driver.validate(state, [batch]))
    branches = [name.removesuffix("_accuracy") for name in seen.logged if "_accuracy" in name]
    found = {b: (seen.sums[f"{b}_nll"], seen.logged[f"{b}_accuracy"]) for b in branches}
    of = [{b: float(s[i].numerator / s[i].denominator) for b, s in found.items()} for i in (0, 1)]
    return Known(nll=of[0], accuracy=of[1])


@contextmanager
def compiling_quickly() -> Iterator[None]:
    """A third of the time to compile, twice the time to run: better for a hundred updates."""
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", False)
