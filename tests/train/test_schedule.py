"""What counts when, and how a run is watched."""

import math
from typing import Literal

import pytest

from simuljax.losses import JointObjective
from simuljax.train.schedule import advance, last_update, weights_at
from simuljax.train.watch import Watch

OBJECTIVE = JointObjective(latency=0.1, variance=0.2, distillation=0.3)


@pytest.mark.parametrize(
    ("step", "latency", "changed"),
    [
        (0, "off", {"kd": 0, "st_nll": 1, "st_latency": 0, "mt_latency": 0, "st_variance": 0,
                    "mt_variance": 0}),
        (9, "on", {"kd": 0, "st_nll": 1}),
        (10, "on", {}),
    ],
)  # fmt: skip
def test_weights(step: int, latency: Literal["on", "off"], changed: dict[str, float]) -> None:
    weights = weights_at(step, OBJECTIVE, distil_after=10, latency=latency)
    assert weights == OBJECTIVE.weights() | changed


def test_the_best_and_the_patience() -> None:
    watch = Watch()
    for loss, since in ((math.nan, 1), (3.0, 0), (3.0, 1), (math.nan, 2), (2.0, 0)):
        watch.see(loss)
        assert watch.since == since
    assert watch.best == 2.0 and not watch.is_tired(1) and not watch.is_tired(None)


def test_latency_begins_once() -> None:
    watch = Watch()
    advance(watch, 4, 5, None)
    assert watch.latency is None
    advance(watch, 5, 5, None)
    watch.see(1.0)
    advance(watch, 6, 5, None)
    assert (watch.latency, watch.phase_start, watch.best) == (5, 5, 1.0)


def test_convergence_begins_it_and_forgets_the_best() -> None:
    watch = Watch()
    for step, loss in enumerate((3.0, 2.0, 2.5, 2.6), start=1):
        watch.see(loss)
        advance(watch, step, "convergence", 2)
    assert watch == Watch(best=None, since=0, phase_start=4, latency=4)
    watch.see(2.9)
    assert watch.best == 2.9


def test_the_end() -> None:
    assert last_update(100, None, 7, 1) == 100
    assert last_update(100, 3, 7, 2) == 11  # the epoch is complete
    assert last_update(10, 3, 7, 2) == 10
