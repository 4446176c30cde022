"""When terms count, and how validations are followed."""

import math

from simuljax.config.training import Objective, Training
from simuljax.losses import JointObjective, Term
from simuljax.train.loop import Phase, last_update

JOINT = JointObjective(latency=0.1, variance=0.2, distillation=0.3)
LATE = {"st_latency", "mt_latency", "st_variance", "mt_variance"}


def test_weights_follow_the_schedule() -> None:
    objective = Objective(terms=JOINT.terms(distil_after=10, latency_after="convergence"))
    full = objective.weights()
    off = dict.fromkeys(LATE, 0.0)
    assert objective.weights_at(0, None) == full | off | {"kd": 0.0}
    assert objective.weights_at(9, 9) == full | {"kd": 0.0}
    assert objective.weights_at(10, 9) == full


def test_a_weight_may_grow() -> None:
    term = Term(name="kd", weight=0.4, start=2, ramp=4)
    weights = [term.weight_at(step, None) for step in range(8)]
    assert weights == [0, 0, 0.1, 0.2, 0.4 * 0.75, 0.4, 0.4, 0.4]


def test_the_best_and_the_patience() -> None:
    watch = Phase()
    for loss, since in ((math.nan, 1), (3.0, 0), (3.0, 1), (math.nan, 2), (2.0, 0)):
        watch.see(loss)
        assert watch.since == since
    assert watch.best == 2.0 and not watch.is_tired(1) and not watch.is_tired(None)


def test_a_phase_starts_once() -> None:
    watch, objective = Phase(), Objective(terms=JOINT.terms(latency_after=5))
    watch.advance(4, objective, None)
    assert watch.phase_start == 0 and not watch.all_started(4, objective)
    watch.advance(5, objective, None)
    watch.see(1.0)
    watch.advance(6, objective, None)
    assert (watch.phase_start, watch.best) == (5, 1.0) and watch.all_started(5, objective)


def test_a_term_of_weight_0_starts_no_phase() -> None:
    watch, objective = Phase(), Objective(terms=JointObjective().terms(latency_after=5))
    watch.advance(5, objective, None)
    assert watch.phase_start == 0 and watch.all_started(0, objective)


def test_convergence_starts_a_phase_and_forgets_the_best() -> None:
    watch, objective = Phase(), Objective(terms=JOINT.terms(latency_after="convergence"))
    for step, loss in enumerate((3.0, 2.0, 2.5, 2.6), start=1):
        watch.see(loss)
        watch.advance(step, objective, 2)
    assert watch == Phase(best=None, since=0, phase_start=4, converged=4)
    watch.see(2.9)
    assert watch.best == 2.9


def test_checkpoints_of_earlier_versions_are_read() -> None:
    saved = {"best": 2.0, "since": 1, "phase_start": 4, "latency": 4}
    assert Phase.from_saved(saved) == Phase(best=2.0, since=1, phase_start=4, converged=4)


def test_the_end() -> None:
    assert last_update(Training(updates=100), 7) == 100
    assert last_update(Training(updates=100, epochs=3, accumulate=2), 7) == 11  # it is complete
    assert last_update(Training(updates=10, epochs=3, accumulate=2), 7) == 10
