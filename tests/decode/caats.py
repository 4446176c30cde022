"""A small CAAT whose hypotheses really differ, and its joiner asked one question at a time."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.config.model import Monotonic, PreDecision, SpeechConfig
from simuljax.models.encoders import Encoded
from simuljax.models.joint import JointModel, source_of
from tests.decode import small

GROUP = 4  # states
SPEECH = SpeechConfig(kind="streaming", layers=2, shared=0, channels=12, chunk=4, left=6, right=2)


def caat(**changes: Any) -> JointModel:
    """Two layers of predictor and of joiner; a group is 160 ms."""
    given: dict[str, Any] = {
        "decoder": "caat",
        "joiner_layers": 2,
        "text": None,
        "speech": SPEECH,
        "predecision": PreDecision(step_ms=40 * GROUP),
    }
    return small.translator(Monotonic(policy="offline"), **given | changes)


def parameters(model: JointModel, *, blank: float = 1.5, seed: int = 4):
    """Random ones; `blank` favours the blank, and half as much the end, so that groups end."""
    drawn = small.parameters(model, seed=seed)
    decoder = drawn["params"]["decoder"]
    decoder["joiner"]["heads"]["out"]["kernel"] *= 4  # or what was heard would hardly matter
    decoder["norm"]["bias"][0] = 1.0
    decoder["output"]["kernel"] *= 6  # or nothing would be sure enough to be written
    decoder["output"]["kernel"][0, 1:3] += blank, blank / 2
    return drawn


def asked(model: JointModel, variables: Any, states: np.ndarray, prefix: list[int], reach: int):
    """Log-probabilities of what follows the prefix [V], from the first states alone.

    By the pass that trains the offline cross-entropy; every length of prefix is one shape.
    """
    heard = states[:reach]
    room = np.zeros((1, len(states), states.shape[1]), np.float32)
    room[0, :reach] = heard
    tokens = np.zeros((1, 32), np.int32)
    tokens[0, : len(prefix) + 1] = [1, *prefix]
    logits = _ask(model, variables, tokens, room, np.array([reach], np.int32))
    return np.asarray(jax.nn.log_softmax(logits[0, len(prefix)]), np.float64)


def _ask(model, variables, tokens, states, lengths):
    if model not in _ASKING:

        def ask(variables, tokens, states, lengths):
            return model.apply(variables, tokens, states, lengths, method=whole)

        _ASKING[model] = small.fast(ask)
    return _ASKING[model](variables, tokens, states, lengths)


_ASKING: dict[JointModel, Any] = {}


def whole(model: JointModel, tokens: jax.Array, states: jax.Array, lengths: jax.Array) -> jax.Array:
    """Logits [B, T, V] with everything in sight."""
    encoded = Encoded(states=states, lengths=lengths)
    source = source_of(encoded, model.speech_decisions(encoded), jnp.int32(1))
    return model.decode_each(tokens, [source], train=False)[0].logits
