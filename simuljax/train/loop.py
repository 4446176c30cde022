"""The training loop: updates, validation, records, checkpoints; goes on after any interruption.

The host never waits for an update: what one says is read when the next has been started. A run is
a function of its configuration: random numbers follow from the step, batches from the iterator's
state, which is saved with the parameters.
"""

import functools
import math
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.audio import FeatureRecord
from simuljax.batch import Batch
from simuljax.losses import TermSum, combine
from simuljax.models import config as models
from simuljax.models.initialise import initialise
from simuljax.models.translator import Translator
from simuljax.train.checkpoint import Checkpoints
from simuljax.train.console import ConsoleLine, Progress
from simuljax.train.drive import Driver
from simuljax.train.metrics import MetricsWriter
from simuljax.train.objective import Objective
from simuljax.train.optimiser import Optimiser
from simuljax.train.parallel import Replicas, Way
from simuljax.train.step import AXIS, Report, TrainState, Update

CHECKPOINTS = "checkpoints"
MOST_REFUSED = 10  # updates in a row whose gradient is not finite


class BatchIterator(Protocol):
    """Batches without end, whose place can be saved and restored (Grain's iterators)."""

    def __iter__(self) -> Iterator[Batch]: ...
    def __next__(self) -> Batch: ...
    def get_state(self) -> Any: ...
    def set_state(self, state: Any) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Data:
    """What a run is fed: this host's part of every batch."""

    train: BatchIterator
    valid: Callable[[], Iterable[Batch]]
    steps_per_epoch: int
    heard: FeatureRecord


@dataclass(frozen=True, kw_only=True)
class Training:
    """How long, how fast, and what is kept."""

    updates: int = 100_000
    optimiser: Optimiser = field(default_factory=Optimiser)
    objective: Objective = field(default_factory=Objective)
    distil_after: int = 0  # updates before online distillation counts
    accumulate: int = 1  # batches to an update
    seed: int = 0
    way: Way = "pmap"
    log_every: int = 50  # updates
    validate_every: int = 1_000
    patience: int | None = None  # validations without a better loss before the run ends
    keep_last: int = 3
    keep_best: int = 5
    tensorboard: Literal["off", "on"] = "off"


@dataclass(kw_only=True)
class Watch:
    """The best validation so far, and how many have passed since; saved with every checkpoint."""

    best: float | None = None
    since: int = 0

    def see(self, loss: float) -> None:
        """Takes note of a validation."""
        better = self.best is None or loss < self.best
        self.best, self.since = (loss, 0) if better else (self.best, self.since + 1)

    def gives_up(self, patience: int | None) -> bool:
        """Whether there is no use in going on."""
        return patience is not None and self.since >= patience


def fit(run: Path, model: models.Translator, training: Training, data: Data) -> TrainState:
    """Trains, or goes on training, in the directory `run`; gives the state at the end."""
    loop = _Loop(run=run, model=model, training=training, data=data)
    return loop.run_to_end()


class _Loop:
    """What a run holds while it lasts."""

    def __init__(self, *, run: Path, model: models.Translator, training: Training, data: Data):
        self.training, self.data, self.watch = training, data, Watch()
        self.replicas = Replicas.on_all(training.way)
        self.update = Update(
            model=Translator(model, axis=AXIS),
            objective=training.objective,
            optimiser=training.optimiser.build(),
            statistics=data.heard.statistics,
            seed=training.seed,
        )
        self.checkpoints = Checkpoints(
            run / CHECKPOINTS, keep_last=training.keep_last, keep_best=training.keep_best
        )
        self.state = self._begin()
        self.step = int(self.state.step)
        self.saved = self.step
        self.metrics = MetricsWriter(run, resume_from=self.step, tensorboard=training.tensorboard)
        self.console = ConsoleLine(total_steps=training.updates)
        self.driver = Driver(self.update, self.replicas)
        self.late: tuple[int, Report] | None = None
        self.frames = self.tokens = self.refused = 0
        self.stop_asked = False

    def _begin(self) -> TrainState:
        """The first state, or the last that was saved; batches go on from where they were."""
        key = jax.random.key(self.training.seed, impl="rbg")
        params, statistics = initialise(self.update.model, key)
        first = TrainState(
            step=jnp.int32(0),
            params=params,
            statistics=statistics,
            optimiser=self.update.optimiser.init(params),
        )
        first = self.replicas.replicate(first)
        found = self.checkpoints.restore(first)
        if found is None:
            return first
        self.data.train.set_state(found.extra["iterator"])
        self.watch = Watch(**found.extra["watch"])
        return found.state

    def run_to_end(self) -> TrainState:
        """Updates until there were enough, nothing gets better, or the machine is wanted back."""
        before = signal.signal(signal.SIGTERM, self._ask_to_stop)
        try:
            while self.step < self.training.updates and not self._finished():
                self._one_update()
            self._look_back()
            self._save(None)
        finally:
            signal.signal(signal.SIGTERM, before)
            self.checkpoints.close()
            self.metrics.close()
            self.console.finish()
        return self.state

    def _ask_to_stop(self, *_: Any) -> None:
        self.stop_asked = True

    def _finished(self) -> bool:
        return self.stop_asked or self.watch.gives_up(self.training.patience)

    def _one_update(self) -> None:
        batches = [next(self.data.train) for _ in range(self.training.accumulate)]
        weights = self._plain if self.step < self.training.distil_after else self._joint
        state, report = self.driver.update(self.state, batches, weights)
        self._look_back()  # at the update before, while this one runs
        self.state, self.late = state, (self.step + 1, report)
        self.step += 1
        self.frames += sum(int(batch.audio_length.sum()) // 160 for batch in batches)
        self.tokens += sum(int(batch.target_length.sum()) for batch in batches)
        if self.step % self.training.validate_every == 0:
            self._look_back()
            self._save(self._validate())

    @functools.cached_property
    def _plain(self) -> dict[str, jax.Array]:
        """The weights before distillation counts; on the devices, so that no update sends them."""
        return self._on_devices(
            self.training.objective.joint.weights() | {"kd": 0.0, "st_nll": 1.0}
        )

    @functools.cached_property
    def _joint(self) -> dict[str, jax.Array]:
        """The weights of the objective."""
        return self._on_devices(self.training.objective.joint.weights())

    def _on_devices(self, weights: Mapping[str, float]) -> dict[str, jax.Array]:
        return self.replicas.replicate({k: jnp.float32(v) for k, v in weights.items()})

    def _look_back(self) -> None:
        """At what the last update said: refusals always, numbers at intervals."""
        if self.late is None:
            return
        (step, report), self.late = self.late, None
        if not bool(report.finite):
            self._refuse(step, report)
            return
        self.refused = 0
        if step % self.training.log_every == 0:
            self._log(step, jax.device_get(report))

    def _refuse(self, step: int, report: Report) -> None:
        """An update that was not made, because its gradient was not finite."""
        self.refused += 1
        terms = jax.device_get(report.loss.terms)
        guilty = [name for name, value in terms.items() if not np.isfinite(value)]
        cause = f"{', '.join(guilty)} is not finite" if guilty else "every term is finite"
        message = f"update {step} was left out: its gradient is not finite ({cause})"
        if self.refused >= MOST_REFUSED:
            raise FloatingPointError(
                f"{message}, and neither were the {MOST_REFUSED - 1} before it: lower the learning "
                "rate, or look at the data with jax_debug_nans"
            )
        print(message, file=sys.stderr)

    def _log(self, step: int, report: Report) -> None:
        rate = float(np.asarray(self.training.optimiser.rate()(step - 1)))
        values = {
            "loss": float(report.loss.total),
            **{name: float(value) for name, value in report.loss.terms.items()},
            **{f"weighted_{k}": float(v) for k, v in report.loss.weighted.items()},
            **_accuracies(report.right),
            "gradient_norm": float(report.gradient_norm),
            "learning_rate": rate,
        }
        self.metrics.write(step, values)
        progress = Progress(
            step=step,
            loss=values["loss"],
            terms={name: float(value) for name, value in report.loss.terms.items()},
            gradient_norm=values["gradient_norm"],
            learning_rate=rate,
            epoch=step * self.training.accumulate / self.data.steps_per_epoch,
        )
        self.console.show(progress, time.time(), frames=self.frames, tokens=self.tokens)
        self.frames = self.tokens = 0

    def _validate(self) -> float:
        """The loss that decides which checkpoint is best: of the speech branch, if there is one."""
        seen = jax.device_get(self.driver.validate(self.state, self.data.valid()))
        terms = combine(seen.sums, self.training.objective.joint.weights()).terms
        values = {name: float(value) for name, value in terms.items()} | _accuracies(seen.right)
        self.metrics.write(self.step, values, split="valid")
        loss = values.get("st_nll", values.get("mt_nll", math.nan))
        self.watch.see(loss)
        return loss

    def _save(self, loss: float | None) -> None:
        if self.step == self.saved:
            return
        extra = {"iterator": self.data.train.get_state(), "watch": asdict(self.watch)}
        score = None if loss is None else -loss
        self.checkpoints.save(self.step, self.state, extra, score=score)
        self.saved = self.step


def _accuracies(right: Mapping[str, TermSum]) -> dict[str, float]:
    return {
        f"{branch}_accuracy": float(s.numerator) / max(1.0, float(s.denominator))
        for branch, s in right.items()
    }
