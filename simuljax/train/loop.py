"""The training loop: updates, validation, records, checkpoints; goes on after any interruption.

The host never waits for an update: what one says is read when the next has been started. A run is
a function of its configuration: random numbers follow from the step, batches from the iterator's
state, which is saved with the parameters.
"""

import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.audio import FeatureRecord
from simuljax.batch import Batch
from simuljax.models import config as models
from simuljax.models.translator import Translator
from simuljax.train.average import average_around_best
from simuljax.train.checkpoint import CHECKPOINTS, Checkpoints
from simuljax.train.cluster import is_primary
from simuljax.train.console import duration
from simuljax.train.drive import Driver
from simuljax.train.interruption import Interruption
from simuljax.train.objective import Objective
from simuljax.train.optimiser import Optimiser
from simuljax.train.parallel import Replicas, Way
from simuljax.train.record import Record
from simuljax.train.schedule import LatencyStart, advance, last_update, weights_at
from simuljax.train.step import AXIS, Report, TrainState, Update
from simuljax.train.watch import Watch

ENDED = "ended.json"  # in the directory of a run that was not merely interrupted
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
    """How long, how fast, what counts when, and what is kept."""

    updates: int = 100_000
    epochs: float | None = None  # at most; whichever of the two ends first
    optimiser: Optimiser = field(default_factory=Optimiser)
    objective: Objective = field(default_factory=Objective)
    distil_after: int = 0  # updates before online distillation counts
    latency_after: LatencyStart = 0  # updates before latency counts; convergence: patience ran out
    accumulate: int = 1  # batches to an update
    seed: int = 0
    way: Way = "pmap"
    log_every: int = 50  # updates
    validate_every: int = 1_000
    patience: int | None = None  # validations without a better loss before the run (or phase) ends
    keep_last: int = 3
    keep_best: int = 5
    keep_every: int | None = None  # updates; saved and kept beside those of validations
    average: int | None = None  # checkpoints around the best, averaged when the run has ended
    tensorboard: Literal["off", "on"] = "off"

    def __post_init__(self) -> None:
        if self.latency_after == "convergence" and self.patience is None:
            raise ValueError("latency_after='convergence' needs patience: when is it reached?")


def fit(
    run: Path,
    model: models.Translator,
    training: Training,
    data: Data,
    *,
    begin: Callable[[Any], Any] | None = None,
    driver: Driver | None = None,
) -> TrainState:
    """Trains, or goes on training, in the directory `run`; gives the state at the end.

    `begin` changes the first parameters of a run that has no checkpoint yet. A `driver` that
    `drive` made for the same model and training saves compiling again, where a process trains
    several runs. A run that ended by itself leaves `ended.json`; one that was told to stop does
    not, and is to be started again.
    """
    loop = _Loop(
        run=run,
        training=training,
        data=data,
        driver=driver or drive(model, training, data.heard),
        begin=begin,
    )
    return loop.run_to_end()


def drive(model: models.Translator, training: Training, heard: FeatureRecord) -> Driver:
    """The compiled functions of a run, on all devices of all processes."""
    update = Update(
        model=Translator(model, axis=AXIS),
        objective=training.objective,
        optimiser=training.optimiser.build(),
        statistics=heard.statistics,
    )
    return Driver(update, Replicas.on_all(training.way), seed=training.seed)


class _Loop:
    """What a run holds while it lasts."""

    def __init__(
        self,
        *,
        run: Path,
        training: Training,
        data: Data,
        driver: Driver,
        begin: Callable[[Any], Any] | None,
    ):
        self.run, self.training, self.data, self.driver = run, training, data, driver
        self.watch, self.weights = Watch(), {}
        self.last = last_update(
            training.updates, training.epochs, data.steps_per_epoch, training.accumulate
        )
        self.checkpoints = Checkpoints(
            run / CHECKPOINTS,
            keep_last=training.keep_last,
            keep_best=training.keep_best,
            every=training.keep_every,
            around=training.average or 0,
        )
        (run / ENDED).unlink(missing_ok=True)
        self.state = self._begin(begin)
        self.step = self.saved = self.started = int(jax.device_get(self.state.step))
        self.record = Record(
            run,
            resume_from=self.step,
            last=self.last,
            updates_per_epoch=data.steps_per_epoch / training.accumulate,
            tensorboard=training.tensorboard,
        )
        self.late: tuple[int, Report] | None = None
        self.refused = 0

    def _begin(self, begin: Callable[[Any], Any] | None) -> TrainState:
        """The first state, or the last that was saved; batches go on from where they were."""
        found = self.checkpoints.restore(self.driver.template())
        if found is None:
            advance(self.watch, 0, self.training.latency_after, None)
            return self.driver.first(begin)
        self.data.train.set_state(found.extra["iterator"])
        self.watch = Watch(**found.extra["watch"])
        return self.driver.replicas.over_own_host(found.state)

    def run_to_end(self) -> TrainState:
        """Updates until there were enough, nothing gets better, or the machine is wanted back."""
        try:
            with Interruption() as interruption:
                stopped = False
                while self.step < self.last and not stopped and not self._is_converged():
                    self._one_update()
                    stopped = interruption.asked(self.step)
                self._look_back()
                self._save(None)
            self.checkpoints.wait()
            if not stopped:
                self._end()
        finally:
            self.checkpoints.close()
            self.record.close()
        return self.state

    def _end(self) -> None:
        """The average, and a sign to whoever started the run that there is no more to do."""
        validated = len(self.checkpoints.scored())
        if self.training.average and validated:
            average_around_best(self.run, min(self.training.average, validated))
        if is_primary():
            why = "updates" if self.step >= self.last else "patience"
            (self.run / ENDED).write_text(json.dumps({"step": self.step, "by": why}) + "\n")

    def _is_converged(self) -> bool:
        return self.watch.latency is not None and self.watch.is_tired(self.training.patience)

    def _one_update(self) -> None:
        batches = [next(self.data.train) for _ in range(self.training.accumulate)]
        compiled = self.driver.compile_s
        state, report = self.driver.update(self.state, batches, self._weights())
        self._count(batches, self.driver.compile_s - compiled)
        self._look_back()  # at the update before, while this one runs
        self.state, self.late = state, (self.step + 1, report)
        self.step += 1
        if self.step == self.started + 1:
            self._look_back()  # a first sign of life
        validates = self.step % self.training.validate_every == 0
        loss = self._validate() if validates else None
        advance(self.watch, self.step, self.training.latency_after, self.training.patience)
        if validates or (self.training.keep_every and self.step % self.training.keep_every == 0):
            self._look_back()
            self._save(loss)

    def _weights(self) -> Mapping[str, jax.Array]:
        """On the devices, so that no update sends them."""
        distils = self.step >= self.training.distil_after
        latency = "off" if self.watch.latency is None else "on"
        if (distils, latency) not in self.weights:
            weights = weights_at(
                self.step,
                self.training.objective.joint,
                distil_after=self.training.distil_after,
                latency=latency,
            )
            on_host = {name: np.float32(weight) for name, weight in weights.items()}
            self.weights[distils, latency] = self.driver.replicas.replicate(on_host)
        return self.weights[distils, latency]

    def _count(self, batches: list[Batch], compile_s: float) -> None:
        work = self.record.work
        work.samples += [batch.audio_length for batch in batches]
        work.tokens += [batch.target_length for batch in batches]
        work.aside_s += compile_s
        if self.record.wants_flops:
            work.flops += self.driver.flops(batches)

    def _look_back(self) -> None:
        """At what the last update said: refusals always, numbers at intervals."""
        if self.late is None:
            return
        (step, report), self.late = self.late, None
        if not jax.device_get(report.finite):
            self._refuse(step, report)
            return
        self.refused = 0
        first, due = step == self.started + 1, step % self.training.log_every == 0
        if first or due:
            report = jax.device_get(report)
            rate = np.asarray(self.training.optimiser.rate()(jnp.int32(step - 1))).item()
            note = f"compiled in {duration(self.record.work.aside_s)}" if first else None
            self.record.line(step, report, rate, note)
            if due:
                self.record.update(step, report, rate)

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
        if is_primary():
            print(message, file=sys.stderr)

    def _validate(self) -> float:
        """The loss that decides which checkpoint is best: of the speech branch, if there is one."""
        self._look_back()
        start = time.perf_counter()
        seen = jax.device_get(self.driver.validate(self.state, self.data.valid()))
        values = self.record.validation(self.step, seen)
        loss = values.get("st_nll", values.get("mt_nll", math.nan))
        self.watch.see(loss)
        self.record.work.aside_s += time.perf_counter() - start
        return loss

    def _save(self, loss: float | None) -> None:
        if self.step == self.saved:
            return
        start = time.perf_counter()
        extra = {
            "iterator": self.data.train.get_state(),
            "watch": dataclasses.asdict(self.watch),
        }
        self.checkpoints.save(
            self.step,
            self.driver.replicas.over_all_hosts(self.state),
            extra,
            score=None if loss is None else -loss,
            since=self.watch.phase_start,
        )
        self.saved = self.step
        self.record.work.aside_s += time.perf_counter() - start
