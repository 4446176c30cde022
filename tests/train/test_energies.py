"""Energies: gradients reach every head of every layer, and which forms of DAR descend."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.batch import Batch
from simuljax.config.model import (
    Attention,
    DecisionKind,
    Monotonic,
    PreDecision,
    SpeechConfig,
    Width,
)
from simuljax.config.training import Objective, Optimiser
from simuljax.losses import combine
from simuljax.models.joint import JointModel
from simuljax.train.forward import Variables, forward
from simuljax.train.run_log import DecisionWatch, MetricsWriter, RunLog, means
from simuljax.train.step import CompiledUpdate
from tests.helpers.models import compiled, random_parameters
from tests.train import small
from tests.train.overfitting import compiling_quickly

HEADS, LAYERS = 4, 2
BATCH = small.batch(rows=3, seed=0)


def translator(attention: Attention, kind: DecisionKind) -> JointModel:
    return JointModel(
        small.translator(
            width=Width(model=16, hidden=16, heads=HEADS, dropout=0.0),
            speech=SpeechConfig(layers=1, shared=0, channels=8),
            text=None,
            decoder_layers=LAYERS,
            monotonic=Monotonic(attention=attention, chunk=2),
            predecision=PreDecision(kind=kind, step_ms=80),
        )
    )


def gradient_of(model: JointModel) -> tuple[Callable[[Any], dict[str, Any]], Any]:
    """Return the gradient of a training pass's NLL by what decides, and parameters for it."""
    params = random_parameters(model, method=everything)["params"]
    objective, key = Objective(terms=small.ALONE.terms()), jax.random.key(0, impl="rbg")

    def loss(deciding: dict[str, Any], params: Any, batch: Batch) -> jax.Array:
        variables = Variables(params=merged(params, deciding), statistics={})
        passed = forward(model, variables, batch, small.HEARD, objective, key)
        return combine(passed.sums, objective.weights()).total

    run = compiled(jax.grad(loss), deciding_in(params), params, BATCH)
    return lambda params: run(deciding_in(params), params, BATCH), params


def everything(model: JointModel) -> None:
    features, frames = jnp.zeros((1, 32, 80)), jnp.array([32])
    encoded = model.encode_speech(features, frames, train=False)
    decisions = model.speech_decisions(encoded)
    model.decode(jnp.zeros((1, 3), jnp.int32), encoded, decisions, jnp.int32(1), train=False)


def deciding_in(params: Any) -> dict[str, Any]:
    cross = params["decoder"]["layer"]["cross"]
    found = {name: cross[name]["kernel"] for name in ("decide_query", "decide_key")}
    return found | ({"trigger": params["trigger"]["kernel"]} if "trigger" in params else {})


def merged(params: Any, deciding: dict[str, Any]) -> Any:
    """The parameters with these in their places."""

    def choose(path: Any, leaf: Any) -> Any:
        names = [entry.key for entry in path]
        return deciding.get(names[-2], leaf) if names[-1] == "kernel" else leaf

    return jax.tree_util.tree_map_with_path(choose, params)


def by_head(gradient: dict[str, Any]) -> np.ndarray:
    """[2, layers, heads]: the largest element of the columns that are a head's."""
    kernels = np.stack([gradient["decide_query"], gradient["decide_key"]])
    return np.abs(kernels.reshape(2, LAYERS, 16, HEADS, -1)).max((2, 4))


@pytest.mark.parametrize(
    ("attention", "kind"),
    [
        ("lookback", "fixed"),
        pytest.param("chunkwise", "learnable", marks=pytest.mark.slow),
    ],
)
def test_every_head_of_every_layer_learns_to_decide(attention, kind):
    """So do the triggers. The check notices a head that does not: one that nothing listens to."""
    gradient, params = gradient_of(translator(attention, kind))
    found = gradient(params)
    assert (by_head(found) > 1e-6).all(), by_head(found)
    assert np.abs(found.get("trigger", 1)).min() > 0
    out = params["decoder"]["layer"]["cross"]["heads"]["out"]["kernel"]  # [layers, D, D]
    out.reshape(LAYERS, HEADS, -1, out.shape[-1])[-1, 1] = 0
    heard = np.ones((2, LAYERS, HEADS), bool)
    heard[:, -1, 1] = False
    np.testing.assert_array_equal(by_head(gradient(params)) > 0, heard)


ONLY_DAR = dataclasses.replace(small.ALONE, decision_attentive=1.0)
WEIGHTS = {term.name: float(term.name == "dar") for term in ONLY_DAR.terms()}
UPDATES, DECAY = 30, 0.99
SMALL = small.translator(speech=SpeechConfig(layers=1, shared=1, channels=16))
RATE = Optimiser(learning_rate=0.05, warmup=1, method="sgd")


def driver_of(teacher: str) -> CompiledUpdate:
    joint = dataclasses.replace(ONLY_DAR, decision_teacher=teacher, decision_decay=DECAY)
    return small.compiled(small.update(SMALL, RATE, objective=Objective(terms=joint.terms())))


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
    driver = driver_of(teacher)
    state, weights, batch = driver.first([loud_text]), driver.weights([WEIGHTS]), small.batch(4)
    first, reports = jax.device_get(state), []
    with compiling_quickly():
        for _ in range(UPDATES):
            state, report = driver.update(state, [batch], weights)
            reports.append(jax.device_get(report))
    dar = [float(report.loss.terms["dar"]) for report in reports]
    logged = [means(report.logged) for report in reports]
    return Followed(dar=dar, logged=logged, first=first, last=jax.device_get(state))


def loud_text(params: Any) -> Any:
    norm = jax.tree.map(lambda x: 10.0 * x, params["text"]["norm"])
    return params | {"text": params["text"] | {"norm": norm}}


@pytest.mark.slow
def test_flow_descends_and_is_logged():
    flow = follow("flow")
    assert flow.dar[-1] < 0.5 * flow.dar[0]
    assert flow.last.teacher == {}  # none is needed
    assert {"st_energy", "mt_energy", "st_read", "mt_read"} < set(flow.logged[-1])
    assert all(0 < flow.logged[-1][name] <= 1 for name in ("st_read", "mt_read"))


@pytest.mark.slow
def test_stop_can_raise_what_it_minimises():
    """The negative control: the same first parameters, the same steps."""
    stop = follow("stop")
    assert stop.dar[0] == pytest.approx(follow("flow").dar[0], rel=1e-5)
    assert max(stop.dar) > 1.1 * stop.dar[0] and stop.last.teacher == {}


@pytest.mark.slow
def test_an_averaged_teacher_descends_and_follows():
    found = follow("averaged")
    assert found.dar[-1] < 0.5 * found.dar[0]
    assert set(found.last.teacher) == {"text", "shared", "decoder"}

    def bias(tree):
        return float(tree["decoder"]["layer"]["cross"]["bias"][0])

    start, now, kept = map(bias, (found.first.params, found.last.params, found.last.teacher))
    assert start != now and min(start, now) < kept < max(start, now)
    assert abs(kept - start) < (1 - DECAY**UPDATES) * 1.5 * abs(now - start)


def test_a_frozen_teacher_may_have_parameters_of_its_own_and_keeps_them():
    driver = driver_of("frozen")
    halved = functools.partial(jax.tree.map, lambda leaf: 0.5 * leaf)
    state = driver.first([halved], [loud_text])
    scale = [tree["text"]["norm"]["scale"] for tree in (state.params, state.teacher)]
    np.testing.assert_allclose(10 * scale[0], scale[1])
    np.testing.assert_allclose(scale[0], 0.5)
    jax.tree.map(np.testing.assert_array_equal, state.params["shared"], state.teacher["shared"])
    assert driver.per_replica._next_teacher(state.teacher, state.params) is state.teacher


def line(dar: float, speech: float, text: float) -> dict[str, float]:
    return {"dar": dar, "weighted_dar": 0.01 * dar, "st_energy": speech, "mt_energy": text}


def test_a_runaway_is_named_once(tmp_path, capsys):
    watch = DecisionWatch(tmp_path)
    assert watch.note({"loss": 1.0}) == {}
    assert watch.note(line(3.0, -2.0, -1.0)) == {}
    assert watch.note(line(2.0, -3.0, -2.5))["dar_effect_ratio"] == pytest.approx(1.5)
    watch.note(line(5.0, -4.0, -3.5))
    assert not capsys.readouterr().err
    watch.note(line(7.0, -5.0, -5.5))
    assert "DAR runs away" in (said := capsys.readouterr().err) and "1.50 times" in said
    watch.note(line(9.0, -9.0, -9.5))
    before = MetricsWriter(tmp_path)
    before.write(1, line(3.0, -2.0, -1.0))
    before.write(2, line(math.nan, -2.0, -1.0))
    before.close()
    given = {"last": 9, "updates_per_epoch": 3.0, "tensorboard": "off", "console": False}
    resumed = RunLog(tmp_path, resume_from=2, **given)
    resumed._runaway["train"].note(line(7.0, -5.0, -5.5))
    assert "it is 7.00 and was 3.00" in capsys.readouterr().err
    resumed.close()
    uncounted = [line(dar, dar, dar) | {"weighted_dar": 0.0} for dar in (1.0, 9.0)]
    earlier = [line(0.45, -2.0, -2.1), line(1.05, -1.6, -1.6)]  # heads learn to write earlier
    for lines in (uncounted, earlier):
        other = DecisionWatch(tmp_path)
        for each in lines:
            other.note(each)
    assert not capsys.readouterr().err
