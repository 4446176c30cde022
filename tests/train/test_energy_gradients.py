"""Gradients reach the energies of every head of every layer, whatever heads attend to."""

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
from simuljax.config.training import Objective
from simuljax.losses import combine
from simuljax.models.joint import JointModel
from simuljax.train.objective import Variables, forward
from tests.helpers.models import compiled, random_parameters
from tests.train import small

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
    """Of the NLL of a training pass, with respect to what decides; and parameters for it."""
    params = random_parameters(model, method=everything)["params"]
    objective, key = Objective(terms=small.ALONE.terms()), jax.random.key(0, impl="rbg")

    def loss(deciding: dict[str, Any], params: Any, batch: Batch) -> jax.Array:
        variables = Variables(params=merged(params, deciding), statistics={})
        passed = forward(model, variables, batch, small.HEARD.statistics, objective, key)
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
        pytest.param("hard", "learnable", marks=pytest.mark.slow),
        pytest.param("chunkwise", "every_state", marks=pytest.mark.slow),
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
