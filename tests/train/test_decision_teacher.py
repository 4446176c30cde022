"""DAR alone on parameters that both branches share: which forms descend, whose teacher moves."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import pytest

from simuljax.config.model import SpeechConfig
from simuljax.config.training import Objective, Optimiser
from simuljax.losses import JointObjective
from simuljax.models.joint import JointModel
from simuljax.train.run_log import DecisionWatch, means
from simuljax.train.step import AXIS, CompiledUpdate, Replicas, Update
from tests.train import small

ONLY_DAR = JointObjective(
    distillation=0.0, cross_attentive=0.0, translation=0.0, decision_attentive=1.0
)
WEIGHTS = {term.name: float(term.name == "dar") for term in ONLY_DAR.terms()}
UPDATES, DECAY = 30, 0.99
SMALL = small.translator(speech=SpeechConfig(layers=1, shared=1, channels=16))


@dataclasses.dataclass
class Followed:
    """DAR before every update, what was logged then, and the states before and after."""

    dar: list[float]
    logged: list[dict[str, float]]
    first: Any
    last: Any


@functools.cache
def follow(teacher: Any) -> Followed:
    """Some updates with DAR alone, from text states ten times the size of speech states."""
    joint = dataclasses.replace(ONLY_DAR, decision_teacher=teacher, decision_decay=DECAY)
    update = Update(
        model=JointModel(SMALL, axis=AXIS),
        objective=Objective(terms=joint.terms()),
        optimiser=Optimiser(learning_rate=0.05, warmup=1, method="sgd").build(),
        statistics=small.HEARD.statistics,
    )
    driver = CompiledUpdate(update, Replicas.on_all("pmap"))
    state, weights, batch = driver.first([loud_text]), driver.weights([WEIGHTS]), small.batch(4)
    first, reports = jax.device_get(state), []
    for _ in range(UPDATES):
        state, report = driver.update(state, [batch], weights)
        reports.append(jax.device_get(report))
    dar = [float(report.loss.terms["dar"]) for report in reports]
    logged = [means(report.logged) for report in reports]
    return Followed(dar=dar, logged=logged, first=first, last=jax.device_get(state))


def loud_text(params: Any) -> Any:
    norm = jax.tree.map(lambda x: 10.0 * x, params["text"]["norm"])
    return params | {"text": params["text"] | {"norm": norm}}


@pytest.mark.parametrize(
    "teacher", ["flow", pytest.param("frozen", marks=pytest.mark.slow), "averaged"]
)
def test_forms_that_descend(teacher):
    dar = follow(teacher).dar
    assert dar[-1] < 0.5 * dar[0]


@pytest.mark.slow
def test_stop_can_raise_what_it_minimises():
    """The negative control: the same first parameters, the same steps."""
    assert follow("stop").dar[0] == pytest.approx(follow("flow").dar[0], rel=1e-5)
    assert max(follow("stop").dar) > 1.1 * follow("stop").dar[0]


def test_only_parameters_of_the_text_branch_are_kept_and_only_if_needed():
    assert follow("flow").last.teacher == {}
    assert set(follow("averaged").last.teacher) == {"text", "shared", "decoder"}


@pytest.mark.slow
def test_a_frozen_teacher_stays():
    frozen = follow("frozen")
    assert follow("stop").last.teacher == {}
    jax.tree.map(np.testing.assert_array_equal, frozen.first.teacher, frozen.last.teacher)
    assert frozen.first.teacher["decoder"] is not frozen.last.params["decoder"]


def test_an_average_follows():
    averaged = follow("averaged")

    def bias(tree):
        return float(tree["decoder"]["layer"]["cross"]["bias"][0])

    start, now, mean = (bias(t) for t in (averaged.first.params, averaged.last.params,
                                          averaged.last.teacher))  # fmt: skip
    assert start != now
    assert min(start, now) < mean < max(start, now)
    assert abs(mean - start) < (1 - DECAY**UPDATES) * 1.5 * abs(now - start)


def test_a_teacher_may_have_parameters_of_its_own():
    joint = dataclasses.replace(ONLY_DAR, decision_teacher="frozen")
    update = Update(
        model=JointModel(SMALL, axis=AXIS),
        objective=Objective(terms=joint.terms()),
        optimiser=Optimiser().build(),
        statistics=small.HEARD.statistics,
    )
    state = CompiledUpdate(update, Replicas.on_all("pmap")).first(teach=[loud_text])
    scale = [tree["text"]["norm"]["scale"] for tree in (state.params, state.teacher)]
    np.testing.assert_allclose(10 * scale[0], scale[1])


def test_energies_and_shares_are_logged():
    logged = follow("flow").logged[-1]
    assert {"st_energy", "mt_energy", "st_read", "mt_read"} < set(logged)
    assert 0 < logged["st_read"] <= 1 and 0 < logged["mt_read"] <= 1


def line(dar: float, speech: float, text: float) -> dict[str, float]:
    return {"dar": dar, "weighted_dar": 0.01 * dar, "st_energy": speech, "mt_energy": text}


def test_a_runaway_is_named_once(tmp_path, capsys):
    watch = DecisionWatch(tmp_path)
    assert watch.note({"loss": 1.0}) == {}
    assert watch.note(line(3.0, -2.0, -1.0)) == {}
    assert watch.note(line(2.0, -3.0, -2.5))["dar_effect_ratio"] == pytest.approx(1.5)
    assert not capsys.readouterr().err
    watch.note(line(5.0, -4.0, -3.5))
    assert not capsys.readouterr().err
    watch.note(line(7.0, -5.0, -5.5))
    assert "DAR runs away" in (said := capsys.readouterr().err) and "1.50 times" in said
    watch.note(line(9.0, -9.0, -9.5))
    assert not capsys.readouterr().err


def test_dar_that_does_not_count_cannot_run_away(tmp_path, capsys):
    watch = DecisionWatch(tmp_path)
    for dar in (1.0, 9.0):
        watch.note(line(dar, dar, dar) | {"weighted_dar": 0.0})
    assert not capsys.readouterr().err


def test_dar_may_grow_while_heads_learn_to_write_earlier(tmp_path, capsys):
    watch = DecisionWatch(tmp_path)
    watch.note(line(0.45, -2.0, -2.1))
    watch.note(line(1.05, -1.6, -1.6))
    assert not capsys.readouterr().err
