"""Initial parameters of a translator."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from simuljax.models.translator import Translator
from simuljax.nn.batch_norm import STATISTICS

FRAMES, TOKENS = 64, 4  # parameters do not depend on them


def initialise(model: Translator, key: jax.Array) -> tuple[Any, Any]:
    """Return the parameters of the whole model, and BatchNorm statistics ({} without one)."""
    width = dataclasses.replace(model.config.width, unroll=False)  # the same, sooner compiled
    model = Translator(dataclasses.replace(model.config, width=width))

    def touch(model: Translator) -> None:
        c, k = model.config, jnp.int32(1)
        prefix = jnp.zeros((1, TOKENS), jnp.int32)
        if c.speech is not None:
            features = jnp.zeros((1, FRAMES, c.features), jnp.float32)
            encoded = model.encode_speech(features, jnp.array([FRAMES]), train=False)
            words = jnp.zeros(encoded.states.shape[:2], jnp.int32)
            encoded = dataclasses.replace(encoded, words=words)
            labels = jnp.zeros((1, FRAMES), jnp.int32)
            model.decode(prefix, encoded, model.speech_decisions(encoded, labels), k, train=False)
        if c.text is not None:
            encoded = model.encode_text(prefix, jnp.array([TOKENS]), train=False)
            model.decode(prefix, encoded, model.text_decisions(encoded), k, train=False)

    variables = jax.jit(lambda key: nn.init(touch, model)({"params": key}))(key)
    return variables["params"], variables.get(STATISTICS, {})
