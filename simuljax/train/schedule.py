"""What counts when: distillation after some updates, latency after some or after convergence.

Weights are arguments of the compiled update, so a change of phase compiles nothing.
"""

import math
from collections.abc import Mapping
from typing import Literal

from simuljax.losses import JointObjective
from simuljax.train.watch import Watch

LATENCY = ("st_latency", "mt_latency", "st_variance", "mt_variance")

LatencyStart = int | Literal["convergence"]


def weights_at(
    step: int, objective: JointObjective, *, distil_after: int, latency: Literal["on", "off"]
) -> Mapping[str, float]:
    """The weight of every term at an update that comes after `step` others."""
    weights = objective.weights()
    if step < distil_after:
        weights |= {"kd": 0.0, "st_nll": 1.0}
    if latency == "off":
        weights |= dict.fromkeys(LATENCY, 0.0)
    return weights


def advance(watch: Watch, step: int, latency_after: LatencyStart, patience: int | None) -> None:
    """Begins the latency phase when its time has come; the watch remembers when that was."""
    if watch.latency is not None:
        return
    converged = latency_after == "convergence" and watch.is_tired(patience)
    if converged or (latency_after != "convergence" and step >= latency_after):
        watch.begin_latency(step)


def last_update(updates: int, epochs: float | None, batches: int, accumulate: int) -> int:
    """The update that ends the run: so many, or the one that completes the last epoch."""
    if epochs is None:
        return updates
    return min(updates, math.ceil(epochs * batches / accumulate))
