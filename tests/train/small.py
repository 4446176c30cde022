"""A translator and a corpus small enough to compile and train in seconds."""

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from simuljax.audio import FeatureRecord, Features, Statistics
from simuljax.batch import Batch
from simuljax.config import model as config
from simuljax.config.model import ModelConfig, SpeechConfig
from simuljax.config.training import Objective, Optimiser
from simuljax.losses import JointObjective
from simuljax.models.joint import JointModel
from simuljax.train.step import AXIS, CompiledUpdate, Replicas, Update

SOURCE, TARGET = 20, 24  # vocabularies
HEARD = FeatureRecord(
    features=Features(),
    statistics=Statistics(mean=np.full(80, 8.0), std=np.full(80, 4.0), frames=1),
)
# The speech branch without any help.
ALONE = JointObjective(
    distillation=0.0, cross_attentive=0.0, translation=0.0, decision_attentive=0.0
)
SPEECH = SpeechConfig(layers=1, shared=0, channels=16)  # the least, of a model without text
SGD = Optimiser(learning_rate=0.5, warmup=0, clip=0.0, method="sgd")  # which hides nothing


def translator(**changes: Any) -> ModelConfig:
    """A joint translator of two own and one shared encoder layers; dropout and noise are off."""
    given = {
        "source_vocabulary": SOURCE,
        "target_vocabulary": TARGET,
        "width": config.Width(model=16, hidden=32, heads=2, dropout=0.0),
        "speech": SpeechConfig(layers=2, shared=1, channels=16),
        "text": config.TextConfig(layers=1),
        "decoder_layers": 1,
        "monotonic": config.Monotonic(noise=0.0, bias=0.0),
        "predecision": config.PreDecision(step_ms=80),
    }
    return ModelConfig(**given | changes)


def objective(**changes: Any) -> Objective:
    given: dict[str, Any] = {"latency": 0.05}
    starts = {n: changes.pop(n) for n in ("latency_after", "distil_after") if n in changes}
    return Objective(terms=JointObjective(**given | changes).terms(**starts))


def update(model: ModelConfig, optimiser: Optimiser = SGD, **changes: Any) -> Update:
    given: dict[str, Any] = {"objective": objective(), "front_end": HEARD}
    return Update(
        model=JointModel(model, axis=AXIS),
        optimiser=optimiser,
        **given | changes,
    )


def compiled(
    update: Update, devices: int = 1, way: Any = "shard_map", seeds: tuple[int, ...] = (0,)
) -> CompiledUpdate:
    mesh = Mesh(np.array(jax.devices()[:devices]), (AXIS,))
    return CompiledUpdate(update, Replicas(mesh=mesh, parallelism=way), seeds=seeds)


def weights_of(driver: CompiledUpdate) -> Any:
    return driver.weights([driver.per_replica.objective.weights()] * driver.members)


def batch(rows: int = 4, seed: int = 0, seconds: float = 0.4) -> Batch:
    """Random sound and tokens of ragged lengths; one row lacks speech, one a transcript."""
    random = np.random.default_rng(seed)
    samples, source, target = int(seconds * 16_000), 6, 7
    lengths = [random.integers(low, high + 1, rows) for low, high in
               ((samples // 2, samples), (2, source), (2, target))]  # fmt: skip
    if rows > 2:
        lengths[0][-1], lengths[1][-2] = 0, 0
    arrays = (
        random.integers(-9_000, 9_000, (rows, samples)).astype(np.int16),
        random.integers(4, SOURCE, (rows, source)).astype(np.int32),
        random.integers(4, TARGET, (rows, target)).astype(np.int32),
    )
    for array, length in zip(arrays, lengths, strict=True):
        array[np.arange(array.shape[1]) >= length[:, None]] = 0
    (audio, transcript, translation), (n, k, t) = arrays, (x.astype(np.int32) for x in lengths)
    return Batch(
        audio=audio, audio_length=n, source=transcript, source_length=k,
        target=translation, target_length=t, index=np.arange(rows, dtype=np.int32),
        words=np.zeros((rows, 1 + (samples - 400) // 160), np.int16),
    )  # fmt: skip


@dataclass
class Cycle:
    """Batches in turn without end; the place is the state."""

    batches: list[Batch]
    place: int = field(default=0)

    def __iter__(self) -> "Cycle":
        return self

    def __next__(self) -> Batch:
        self.place += 1
        return self.batches[(self.place - 1) % len(self.batches)]

    def get_state(self) -> dict[str, int]:
        return {"next_index": self.place}

    def set_state(self, state: dict[str, int]) -> None:
        self.place = state["next_index"]
