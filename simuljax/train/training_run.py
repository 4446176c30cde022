"""One run: the weights of its terms at each update, its log, its checkpoints.

`train.loop` makes updates, of one run or of several at once, and hands their reports to each run.
"""

import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from simuljax.train.average import average_around_best
from simuljax.train.checkpoint import CHECKPOINTS, Checkpoints, Restored
from simuljax.train.cluster import is_primary
from simuljax.train.console import duration
from simuljax.train.run_log import RunLog
from simuljax.train.schedule import Phase
from simuljax.train.step import Report, Validation
from simuljax.train.training import Training

ENDED = "ended.json"  # in the directory of a run that was not merely interrupted
MOST_REFUSED = 10  # updates in a row whose gradient is not finite


@dataclass(frozen=True, kw_only=True)
class Span:
    """From which update to which a run is trained, and how many are an epoch."""

    started: int
    last: int
    per_epoch: float


class TrainingRun:
    """A run among those that are trained together; alone, most of the time."""

    def __init__(
        self,
        run: Path,
        training: Training,
        begin: Callable[[Any], Any] | None = None,
        teach: Callable[[Any], Any] | None = None,
    ) -> None:
        self.run, self.training, self.begin, self.teach = run, training, begin, teach
        self.phase, self.refused, self.saved = Phase(), 0, 0
        self.span = Span(started=0, last=0, per_epoch=0.0)
        self._log: RunLog | None = None  # until it is opened
        self.checkpoints = Checkpoints(
            run / CHECKPOINTS,
            keep_last=training.keep_last,
            keep_best=training.keep_best,
            every=training.keep_every,
            around=training.average or 0,
        )
        (run / ENDED).unlink(missing_ok=True)

    def restore(self, template: Any) -> Restored | None:
        """Return the last saved state, if any."""
        found = self.checkpoints.restore(template)
        if found is None:
            self.advance(0)
        else:
            self.phase = Phase.from_saved(found.extra["watch"])
        return found

    def open(self, span: Span, *, console: bool) -> None:
        """Open the log."""
        self.span, self.saved = span, span.started
        self._log = RunLog(
            self.run,
            resume_from=span.started,
            last=span.last,
            updates_per_epoch=span.per_epoch,
            tensorboard=self.training.tensorboard,
            console=console,
        )

    @property
    def log(self) -> RunLog:
        """Return the log."""
        if self._log is None:
            raise ValueError(f"{self.run} takes no notes yet: open it first")
        return self._log

    def weights(self, step: int) -> Mapping[str, float]:
        """Return the weight of every term at an update that comes after `step` others."""
        return self.training.objective.weights_at(step, self.phase.converged)

    def is_converged(self, step: int) -> bool:
        """Return True if validations have stopped improving with all terms."""
        started = self.phase.all_started(step, self.training.objective)
        return started and self.phase.is_tired(self.training.patience)

    def log_update(self, step: int, report: Report | None) -> None:
        """Log the report of an update; None if only its success is known."""
        if report is not None and not report.finite:
            self._refuse(step, report)
            return
        self.refused = 0
        first, due = step == self.span.started + 1, step % self.training.log_every == 0
        if report is not None and (first or due):
            rate = np.asarray(self.training.optimiser.rate()(jnp.int32(step - 1))).item()
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
            raise FloatingPointError(
                f"{message}, and neither were the {MOST_REFUSED - 1} before it: lower the learning "
                "rate, or look at the data with jax_debug_nans"
            )
        if is_primary():
            print(message, file=sys.stderr)

    def log_validation(self, step: int, seen: Validation) -> float:
        """Log a validation; return the number that is least for the best checkpoint."""
        values = self.log.validation(step, seen)
        branch = "st" if "st_nll" in values else "mt"
        if self.training.best_by == "accuracy":
            loss = 1.0 - values.get(f"{branch}_accuracy", math.nan)
        else:
            loss = values.get(f"{branch}_nll", math.nan)
        if self.training.best_by == "loss_and_latency":
            weights, terms = self.weights(step), (f"{branch}_latency", f"{branch}_variance")
            loss += sum(weights.get(t, 0.0) * values[t] for t in terms if t in values)
        best = self.phase.best
        self.phase.see(loss)
        shown = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
        verdict = "best so far" if self.phase.best != best else f"best was {best}"
        self.log.note(f"step {step} | validation | {shown} | {verdict}")
        return loss

    def advance(self, step: int) -> None:
        """Start the next phase if a term starts."""
        self.phase.advance(step, self.training.objective, self.training.patience)

    def save(self, step: int, state: Any, iterator: Any, loss: float | None) -> None:
        """Write a checkpoint in the background, unless this step was saved."""
        if step == self.saved:
            return
        start = time.perf_counter()
        extra = {"iterator": iterator, "watch": dataclasses.asdict(self.phase)}
        score = None if loss is None else -loss
        self.checkpoints.save(step, state, extra, score=score, since=self.phase.phase_start)
        self.saved = step
        self.log.work.aside_s += time.perf_counter() - start

    def end(self, step: int) -> None:
        """Write the average, and `ended.json`: the run is complete."""
        self.checkpoints.wait()
        validated = len(self.checkpoints.scored())
        if self.training.average and validated:
            average_around_best(self.run, min(self.training.average, validated))
        if is_primary():
            why = "updates" if step >= self.span.last else "patience"
            (self.run / ENDED).write_text(json.dumps({"step": step, "by": why}) + "\n")

    def close(self) -> None:
        """Close threads and files."""
        self.checkpoints.close()
        if self._log is not None:
            self._log.close()
