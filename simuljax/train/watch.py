"""How a run is getting on: its best validation, its phase; saved with every checkpoint."""

import math
from dataclasses import dataclass


@dataclass(kw_only=True)
class Watch:
    """The best validation of the phase, how many have passed since, and where the phase began.

    A run has up to two phases: latency does not count, then it does. Scores of one say nothing
    about the other, so the best starts anew.
    """

    best: float | None = None
    since: int = 0
    phase_start: int = 0  # updates made before it
    latency: int | None = None  # the update after which latency counts; None: not yet

    def see(self, loss: float) -> None:
        """Takes note of a validation; NaN is never the best."""
        better = loss < (math.inf if self.best is None else self.best)
        self.best, self.since = (loss, 0) if better else (self.best, self.since + 1)

    def is_tired(self, patience: int | None) -> bool:
        """Whether as many validations brought nothing."""
        return patience is not None and self.since >= patience

    def begin_latency(self, step: int) -> None:
        """From here on latency counts, and the best is that of the new phase."""
        self.latency = self.phase_start = step
        self.best, self.since = None, 0
