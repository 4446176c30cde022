"""The training loop: updates, validation, records, checkpoints; resumes after any interruption.

The host never waits for an update: its report is read when the next has been started. A run is a
function of its configuration: random numbers follow from the step, batches from the iterator's
state, which is saved with the parameters.

Runs that differ in seeds and in the weights of their losses alone can be trained together, by one
compiled update of all of them: a small model leaves most of a device idle. Each has its own
directory, as if it were alone.
"""

import dataclasses
import hashlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from simuljax.batch import Data
from simuljax.cache import announce_compilation
from simuljax.config.model import ModelConfig
from simuljax.config.training import Training
from simuljax.models.joint import JointModel
from simuljax.train import cluster
from simuljax.train.checkpoint import CHECKPOINTS, Checkpoints, Restored
from simuljax.train.forward import Forward
from simuljax.train.run import ENDED, average_around_best
from simuljax.train.run_log import RunLog, duration
from simuljax.train.step import (
    AXIS,
    CompiledUpdate,
    Initialise,
    Replicas,
    Report,
    TrainState,
    Update,
)

MOST_REFUSED = 10  # updates in a row whose gradient is not finite
COMPILE_S = 30.0  # about, for one batch shape on a few cores; shapes are compiled side by side


def compile_update(model: ModelConfig, trainings: Sequence[Training], data: Data) -> CompiledUpdate:
    """Return the compiled functions of runs, on all devices of all processes."""
    first, *others = trainings
    update = Update(
        model=JointModel(model, axis=AXIS),
        objective=first.objective.computing(other.objective for other in others),
        optimiser=first.optimiser,
        front_end=data.features,
        words=data.words,
        random=first.random,
    )
    seeds = [training.seed for training in trainings]
    return CompiledUpdate(update, Replicas.on_all(first.parallelism), seeds=seeds)


class DivergedError(FloatingPointError):
    """Gradients of a run stayed without a finite value."""

    def __init__(self, run: Path, message: str) -> None:
        super().__init__(message)
        self.run = run


class Loop:
    """Train one run, or several together, or resume them.

    A complete run leaves `ended.json`; an interrupted one does not, and is to be started again.
    """

    def __init__(
        self,
        members: Sequence["TrainingRun"],
        compiled: CompiledUpdate,
        data: Data,
        await_donors: Callable[[], None] = lambda: None,
    ) -> None:
        self.members, self.compiled, self.data = members, compiled, data
        self.running = list(enumerate(members))  # those that have not converged; the first reports
        self.await_donors = await_donors  # the runs that these start from, before the first update
        self.training = members[0].training
        self.last = self.training.last_update(data.steps_per_epoch)
        self.weights: dict[Any, Any] = {}
        self.late: tuple[int, Report, bool] | None = None  # the last update: not yet read
        self.has_speech = self.due = False  # speech has been seen; a report should be logged

    def run(self) -> TrainState:
        """Update until the last update, convergence or an interruption; return the last state."""
        try:
            with Interruption(self.members[0].run) as interruption:
                saved = self._restore()
                self._compile()
                self.state = self._first() if saved is None else saved
                self._open()
                interruption.saves = True
                stopped = False
                while not self._is_over() and not stopped:
                    self._one_update()
                    stopped = interruption.stops_after(self.step)
                self._log_report()
                self._save(self.running)
            self._finish(self.running, ended=not stopped)
        finally:
            for member in self.members:
                member.close()
        return self.state

    def _restore(self) -> TrainState | None:
        """Return the last saved state, if any."""
        cluster.at("reading the last checkpoint")
        found = [member.restore(self.compiled.template()) for member in self.members]
        saved = [each for each in found if each is not None]
        assert len({each and each.step for each in found}) == 1, [m.run for m in self.members]
        self.step = self.started = saved[0].step if saved else 0
        if not saved:
            return None
        self.data.train.set_state(saved[0].extra["iterator"])
        self.has_speech, self.due = saved[0].extra.get("logging", (False, False))
        if cluster.is_primary():
            print(f"resumed from update {self.step}", flush=True)
        return self.compiled.joined([each.state for each in saved])

    def _first(self) -> TrainState:
        """Return the state before the first update, when the runs it starts from have ended."""
        self.await_donors()
        cluster.at("taking the first parameters")
        return self.compiled.first(
            [member.begin for member in self.members], [member.teach for member in self.members]
        )

    def _open(self) -> None:
        """Open the logs; check that all hosts begin with the same parameters."""
        if jax.process_count() > 1:
            cluster.agree("parameters", {"parameters": digest_of(self.state.params)})
        per_epoch = self.data.steps_per_epoch / self.training.accumulate
        for number, member in enumerate(self.members):
            member.open(self.started, self.last, per_epoch, console=number == 0)
        self.members[0].log.work.aside_s += self.compiled.compile_s

    def _is_over(self) -> bool:
        converged = all(member.is_converged(self.step) for member in self.members)
        return self.step >= self.last or converged

    def _compile(self) -> None:
        """Compile updates and validations of all shapes at once, on several hosts one by one.

        Hosts wait for each other: an exchange fails if one of them comes too late to it. Under
        `pmap` they compile as they go.
        """
        hosts = jax.process_count()
        as_it_goes = hosts > 1 and self.training.parallelism == "pmap"
        if self._is_over() or self.training.accumulate > 1 or as_it_goes:
            return
        cluster.at("compiling the update")
        batches = list(self.data.shapes())
        if cluster.is_primary():
            print(f"compiling the update for {len(batches)} batch shapes", flush=True)
        name = f"update of {self.members[0].run}, {len(batches)} shapes"
        with announce_compilation(name, about_s=COMPILE_S * (1 + len(batches)) / 2):
            threads = os.cpu_count() if hosts == 1 else 1  # in the same order everywhere
            validated = self.data.valid_shapes()
            self.compiled.compile(batches, self._weights(), validated, threads=threads)
        cluster.wait_for_all("compiled")

    def _end_converged(self) -> None:
        """End the runs that have converged, and go on with the others."""
        over = [each for each in self.running if each[1].is_converged(self.step)]
        if over:
            self._log_report()
            self._save(over)
            self._finish(over)
            before = self.running[0][1].log
            self.running = [each for each in self.running if each not in over]
            self.running[0][1].log.report_for(before)

    def _finish(self, runs: Sequence[tuple[int, "TrainingRun"]], *, ended: bool = True) -> None:
        for _, member in runs:
            member.checkpoints.wait()
            if ended:
                member.end(self.step)

    def _one_update(self) -> None:
        self._end_converged()
        cluster.at(f"reading the batch of update {self.step + 1}")
        batches = [next(self.data.train) for _ in range(self.training.accumulate)]
        cluster.at(f"update {self.step + 1}")
        log, compiled_s = self.running[0][1].log, self.compiled.compile_s  # others show no speed
        state, report = self.compiled.update(self.state, batches, self._weights())
        log.work.aside_s += self.compiled.compile_s - compiled_s
        log.work.samples += [batch.audio_length for batch in batches]
        log.work.tokens += [batch.target_length for batch in batches]
        if log.peak_flops is not None:
            log.work.flops += self.compiled.flops(batches)
        self._log_report()  # of the update before, while this one runs
        self.step += 1
        speech = any(batch.audio.shape[-1] for batch in batches)
        self.has_speech |= speech
        self.state, self.late = state, (self.step, report, speech or not self.has_speech)
        if self.step == self.started + 1:
            self._log_report()  # a first sign of life
        validates = self.step % self.training.validate_every == 0 or self.step == self.last
        losses = self._validate() if validates else ()
        for _, member in self.running:
            member.advance(self.step)
        every = self.training.keep_every
        if validates or (every and self.step % every == 0):
            self._log_report()
            self._save(self.running, losses)

    def _weights(self) -> Any:
        """Return the weights on the devices, so that no update sends them."""
        weights = [member.weights(self.step) for member in self.members]
        known = tuple(tuple(each.values()) for each in weights)
        if known not in self.weights:
            self.weights = {known: self.compiled.weights(weights)}
        return self.weights[known]

    def _log_report(self) -> None:
        """Log the report of the last update; fetch all of it only if it will be logged.

        Of updates of speech and of text in turn, those of speech are logged: they have all terms.
        """
        if self.late is None:
            return
        (step, report, whole), self.late = self.late, None
        self.due |= step % self.training.log_every == 0
        due, self.due = self.due and whole, self.due and not whole
        finite, first = jax.device_get(report.finite), step == self.started + 1
        fetched = jax.device_get(report) if first or due or not np.all(finite) else None
        for number, member in self.running:
            one = None if fetched is None else self.compiled.of(fetched, number)
            member.log_update(step, one, due=due)

    def _validate(self) -> list[float]:
        self._log_report()
        cluster.at(f"validation after update {self.step}")
        start = time.perf_counter()
        sums = jax.device_get(self.compiled.validate(self.state, self.data.valid()))
        losses = [
            member.log_validation(self.step, self.compiled.of(sums, number))
            for number, member in self.running
        ]
        self.running[0][1].log.work.aside_s += time.perf_counter() - start
        return losses

    def _save(
        self, runs: Sequence[tuple[int, "TrainingRun"]], losses: Sequence[float] = ()
    ) -> None:
        cluster.at(f"saving after update {self.step}")
        iterator = self.data.train.get_state()
        for (number, member), loss in zip_longest(runs, losses):
            if member.saved != self.step:
                state = self.compiled.replicas.over_all_hosts(self.compiled.of(self.state, number))
                member.save(self.step, state, iterator, loss, [self.has_speech, self.due])


def digest_of(params: Any) -> str:
    """Hash parameters that are replicated on the devices of every host."""
    held = hashlib.sha256()
    for leaf in jax.tree.leaves(params):
        held.update(np.asarray(leaf.addressable_data(0)).tobytes())
    return held.hexdigest()[:16]


@dataclass(kw_only=True)
class Phase:
    """The best validation of the phase, how many have passed since, and where the phase started.

    A phase starts with every term that starts to count, after its ramp. Scores of one phase do not
    compare with those of another, so the best is chosen anew.
    """

    best: float | None = None
    since: int = 0
    phase_start: int = 0  # updates made before it
    converged: int | None = None  # the update at which terms that wait for convergence start


class TrainingRun:
    """One of the runs that are trained together: the weights of its terms, log, checkpoints.

    `begin` changes the first parameters of a run that has no checkpoint yet, `teach` those of DAR's
    teacher where it has its own.
    """

    log: RunLog  # from `open` on

    def __init__(
        self, run: Path, training: Training, begin: Initialise = None, teach: Initialise = None
    ) -> None:
        self.run, self.training, self.begin, self.teach = run, training, begin, teach
        self.phase, self.refused = Phase(), 0
        self.started = self.last = 0
        self.saved: int | None = None  # the update of the last checkpoint
        self.checkpoints = Checkpoints(
            run / CHECKPOINTS,
            keep_last=training.keep_last,
            keep_best=training.keep_best,
            every=training.keep_every,
            around=training.average or 0,
        )

    def restore(self, template: Any) -> Restored | None:
        """Return the last saved state, if any."""
        (self.run / ENDED).unlink(missing_ok=True)
        found = self.checkpoints.restore(template)
        if found is None:
            self.advance(0)
        else:
            self.phase, self.saved = Phase(**found.extra["watch"]), found.step
        return found

    def open(self, started: int, last: int, per_epoch: float, *, console: bool) -> None:
        """Open the log of the updates after `started`."""
        self.started = started
        self.last = last
        self.log = RunLog(
            self.run,
            resume_from=started,
            last=last,
            updates_per_epoch=per_epoch,
            tensorboard=self.training.tensorboard,
            console=console,
        )

    def weights(self, step: int) -> Mapping[str, float]:
        """Return the weight of every term at an update that comes after `step` others."""
        return self.training.objective.weights_at(step, self.phase.converged)

    def _starts(self) -> list[float]:
        """Return the updates after which terms count with all of their weight."""
        terms, converged = self.training.objective.terms, self.phase.converged
        return [t.start_at(converged) + max(0, t.ramp - 1) for t in terms if t.weight]

    def is_tired(self) -> bool:
        """Return True if `patience` validations brought no improvement."""
        return self.training.patience is not None and self.phase.since >= self.training.patience

    def is_converged(self, step: int) -> bool:
        """Return True if validations have stopped improving with all terms."""
        return self.is_tired() and all(start <= step for start in self._starts())

    def see(self, loss: float) -> bool:
        """Note a validation and return True if it is the best; NaN never is."""
        phase = self.phase
        better = loss < (math.inf if phase.best is None else phase.best)
        phase.best, phase.since = (loss, 0) if better else (phase.best, phase.since + 1)
        return better

    def advance(self, step: int) -> None:
        """Start the next phase if a term starts to count, its ramp done, after `step` updates."""
        phase, terms = self.phase, self.training.objective.terms
        waits = any(term.weight and term.start == "convergence" for term in terms)
        if waits and phase.converged is None and self.is_tired():
            phase.converged = step
        begun = max((start for start in self._starts() if start <= step), default=0)
        if begun > phase.phase_start:
            phase.best, phase.since, phase.phase_start = None, 0, int(begun)

    def log_update(self, step: int, report: Report | None, *, due: bool) -> None:
        """Log the report of an update; None if only its success is known."""
        if report is not None and not report.finite:
            self._refuse(step, report)
            return
        self.refused = 0
        first = step == self.started + 1
        if report is not None and (first or due):
            rate = float(report.learning_rate)
            note = f"compiled in {duration(self.log.work.aside_s)}" if first else None
            self.log.line(step, report, rate, note)
            if due:
                self.log.update(step, report, rate)

    def _refuse(self, step: int, report: Report) -> None:
        """Count and report an update that was skipped for a gradient that is not finite."""
        self.refused += 1
        guilty = [name for name, value in report.loss.terms.items() if not np.isfinite(value)]
        cause = f"{', '.join(guilty)} is not finite" if guilty else "every term is finite"
        message = f"{self.run}: update {step} was left out: its gradient is not finite ({cause})"
        if self.refused >= MOST_REFUSED:
            raise DivergedError(
                self.run,
                f"{message}, and neither were the {MOST_REFUSED - 1} before it: lower the learning "
                "rate, or look at the data with jax_debug_nans",
            )
        if cluster.is_primary():
            print(message, file=sys.stderr)

    def log_validation(self, step: int, sums: Forward) -> float:
        """Log a validation; return the number that is least for the best checkpoint."""
        values = self.log.validation(step, sums)
        branch = "st" if "st_nll" in values else "mt"
        if self.training.best_by == "accuracy":
            loss = 1.0 - values.get(f"{branch}_accuracy", math.nan)
        else:
            loss = values.get(f"{branch}_nll", math.nan)
        if self.training.best_by == "loss_and_latency":
            weights, terms = self.weights(step), (f"{branch}_latency", f"{branch}_variance")
            loss += sum(weights.get(t, 0.0) * values[t] for t in terms if t in values)
        before = self.phase.best
        verdict = "best so far" if self.see(loss) else f"best was {before}"
        shown = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
        self.log.note(f"step {step} | validation | {shown} | {verdict}")
        return loss

    def save(
        self, step: int, state: Any, iterator: Any, loss: float | None, logging: Sequence[bool]
    ) -> None:
        """Write a checkpoint in the background."""
        start, watch = time.perf_counter(), dataclasses.asdict(self.phase)
        extra = {"iterator": iterator, "watch": watch, "logging": logging}
        score = None if loss is None else -loss
        self.checkpoints.save(step, state, extra, score=score, since=self.phase.phase_start)
        self.saved = step
        self.log.work.aside_s += time.perf_counter() - start

    def end(self, step: int) -> None:
        """Write the average, and `ended.json`: the run is complete."""
        if self.training.average:
            average_around_best(self.run, self.training.average)
        if cluster.is_primary():
            why = "updates" if step >= self.last else "patience"
            (self.run / ENDED).write_text(json.dumps({"step": step, "by": why}) + "\n")

    def close(self) -> None:
        self.checkpoints.close()
        if hasattr(self, "log"):
            self.log.close()


class Interruption:
    """Listen for SIGTERM while it is entered; call `stops_after` once after every update.

    A scheduler sends SIGTERM some time before it takes a machine away, maybe to one host of many.
    A single process stops after the update in progress; until `saves` is set it ends at once, as
    there is nothing to save yet and compiling takes minutes. Among several hosts, JAX's preemption
    service settles on an update that none has started, so that all save the same.
    """

    def __init__(self, run: Path) -> None:
        self.run, self.saves = run, False
        self._asked, self._before = False, None
        self._together = jax.distributed.is_initialized()

    def __enter__(self) -> "Interruption":
        if not self._together:  # JAX's service has a handler of its own, which stays
            self._before = signal.signal(signal.SIGTERM, self._take_note)
        return self

    def __exit__(self, *_: object) -> None:
        if not self._together:
            signal.signal(signal.SIGTERM, self._before)

    def stops_after(self, step: int) -> bool:
        """Return True to stop after this update; the same on every host."""
        if self._together:
            self._asked = self._asked or multihost_utils.reached_preemption_sync_point(step)
        return self._asked

    def _take_note(self, *_: Any) -> None:
        self._asked = True
        if not self.saves:
            print(
                f"{self.run}: stopped before the first update; the same command resumes",
                file=sys.stderr,
                flush=True,
            )
            os._exit(0)  # threads that compile would have to be waited for
