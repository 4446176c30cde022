"""Phases of a run: when terms start to count, which validation is the best, the last update."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simuljax.train.objective import Objective


@dataclass(kw_only=True)
class Phase:
    """The best validation of the phase, how many have passed since, and where the phase started.

    A phase starts with every term that starts to count. Scores of one phase do not compare with
    those of another, so the best is chosen anew.
    """

    best: float | None = None
    since: int = 0
    phase_start: int = 0  # updates made before it
    converged: int | None = None  # the update at which terms that wait for convergence start

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> "Phase":
        """Return the phase of a checkpoint; older ones named `converged` "latency"."""
        names = {"latency": "converged"}
        return cls(**{names.get(name, name): value for name, value in saved.items()})

    def see(self, loss: float) -> None:
        """Note a validation; NaN is never the best."""
        better = loss < (math.inf if self.best is None else self.best)
        self.best, self.since = (loss, 0) if better else (self.best, self.since + 1)

    def is_tired(self, patience: int | None) -> bool:
        """Return True if `patience` validations brought no improvement."""
        return patience is not None and self.since >= patience

    def advance(self, step: int, objective: Objective, patience: int | None) -> None:
        """Start the next phase if a term starts to count after `step` updates."""
        waits = any(term.weight and term.start == "convergence" for term in objective.terms)
        if waits and self.converged is None and self.is_tired(patience):
            self.converged = step
        begun = [start for start in self._starts(objective) if start <= step]
        if max(begun, default=0) > self.phase_start:
            self.phase_start = int(max(begun))
            self.best, self.since = None, 0

    def all_started(self, step: int, objective: Objective) -> bool:
        """Return True if every term counts."""
        return all(start <= step for start in self._starts(objective))

    def _starts(self, objective: Objective) -> list[float]:
        return [term.start_at(self.converged) for term in objective.terms if term.weight]


def last_update(updates: int, epochs: float | None, batches: int, accumulate: int) -> int:
    """Return the last update: `updates`, or the one that completes the last epoch."""
    if epochs is None:
        return updates
    return min(updates, math.ceil(epochs * batches / accumulate))
