"""Small runs of a translator of text: what they learn, from what, and on how many hosts."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from simuljax.batch import Batch, Data
from simuljax.config.model import ModelConfig
from simuljax.config.training import Optimiser, Training
from simuljax.train.loop import Loop, TrainingRun, compile_update
from simuljax.train.run_log import FILE, complete_lines
from simuljax.train.step import TrainState
from tests.train import small

MODEL = small.translator(speech=None)  # compiles in a third of the time of the joint one
BATCHES = [small.batch(rows=4, seed=seed, seconds=0.1) for seed in range(3)]


@dataclass(frozen=True, kw_only=True)
class Share:
    """Which rows of every batch a host reads."""

    index: int = 0
    count: int = 1

    def of(self, batch: Batch) -> Batch:
        return jax.tree.map(lambda x: np.split(x, self.count)[self.index], batch)


class Paused(small.Cycle):
    """Batches that take a while."""

    pause: Callable[[], None]

    def __next__(self) -> Batch:
        self.pause()
        return super().__next__()


def training(*, method: Any = "adam", **changes: Any) -> Training:
    rate = 5e-3 if method == "adam" else 0.5
    given: dict[str, Any] = {
        "updates": 12,
        "optimiser": Optimiser(learning_rate=rate, warmup=2, method=method),
        "objective": small.objective(),
        "log_every": 2,
        "validate_every": 4,
        "parallelism": "shard_map",
    }
    return Training(**given | changes)


def data(share: Share | None = None, pause: Callable[[], None] = lambda: None) -> Data:
    share = share or Share()
    batches = [share.of(batch) for batch in BATCHES]
    train = Paused(batches)
    train.pause = pause
    return Data(
        train=train,
        valid=lambda: batches[:1],
        shapes=lambda: batches[:1],
        steps_per_epoch=3,
        features=small.HEARD,
    )


def fit(
    members: list[TrainingRun], model: ModelConfig = MODEL, given: Data | None = None
) -> TrainState:
    """Train them by an update that is compiled for them."""
    given = given or data()
    compiled = compile_update(model, [member.training for member in members], given)
    return Loop(members, compiled, given).run()


def metrics(run: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics, without one that is still being written."""
    return [line for line, _ in complete_lines(run / FILE)]
