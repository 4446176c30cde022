"""Weights that are cast once give what weights that are cast at every call give, bit for bit."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.model import SpeechConfig, Width
from simuljax.models.parameters import cast_weights, weight_bytes
from tests.helpers import models

HALF = Width(model=16, hidden=24, heads=2, dropout=0.0, dtype="bfloat16")
SPEECH = {
    "transformer": SpeechConfig(layers=2, shared=1, channels=12),
    "streaming": SpeechConfig(
        kind="streaming", layers=2, shared=1, channels=12, chunk=4, left=6, right=2
    ),
}


@pytest.mark.parametrize(
    ("kind", "decides"),
    [("streaming", "fixed"), pytest.param("transformer", "learnable", marks=pytest.mark.slow)],
)
def test_nothing_changes(kind, decides):
    model = models.translator(kind=decides, width=HALF, speech=SPEECH[kind], decoder_layers=1)
    params = models.parameters(model)["params"]
    cast = cast_weights(params, "bfloat16")

    @jax.jit
    def forward(params):
        bound = model.bind({"params": params})
        features = jax.random.normal(jax.random.key(0), (2, 48, models.FEATURES))
        encoded = bound.encode_speech(features, jnp.array([48, 31]), train=False)
        points = bound.speech_decisions(encoded)
        decoded = bound.decode(
            jnp.ones((2, 5), jnp.int32), encoded, points, jnp.int32(1), train=False
        )
        return dataclasses.asdict(decoded)

    kinds = {
        "/".join(entry.key for entry in path[-2:]): leaf.dtype.name
        for path, leaf in jax.tree_util.tree_leaves_with_path(cast)
    }
    kernels = {kinds[name] for name in kinds if name.endswith("kernel") and "trigger" not in name}
    assert kernels == {"bfloat16"}  # weights are half, and norms and triggers are not
    assert {kinds[name] for name in kinds if name.endswith("scale")} == {"float32"}
    assert kinds.get("trigger/kernel", "float32") == "float32"
    assert weight_bytes(params) * 0.5 < weight_bytes(cast) < weight_bytes(params) * 0.65
    one, other = jax.tree.leaves(forward(params)), jax.tree.leaves(forward(cast))
    assert len(one) > 2
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(np.asarray(a, np.float32), np.asarray(b, np.float32))
