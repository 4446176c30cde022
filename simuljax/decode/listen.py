"""What is known of a source of which the first part has been heard, encoded from scratch."""

from typing import Any

import jax
import jax.numpy as jnp

from simuljax.decode.prefix import Known
from simuljax.models.encoders import Encoded
from simuljax.models.streaming import chunking_of
from simuljax.models.translator import Translator
from simuljax.nn.decisions import Decisions, at_triggers
from simuljax.nn.layers import real, zero_padding
from simuljax.nn.pointers import heard_of
from simuljax.nn.subsampling import STRIDE
from simuljax.ops import label_triggers


def hear_speech(
    model: Translator,
    variables: Any,
    features: jax.Array,
    frames: jax.Array,
    ended: jax.Array,
    labels: jax.Array | None = None,
) -> Known:
    """After the first `frames` [B] of the features [B, F, D]; where `ended` [B], that is all."""

    def encode(model: Translator) -> tuple[Encoded, Decisions]:
        encoded = _complete(model, model.encode_speech(features, frames, train=False), ended)
        return encoded, _speech_decisions(model, encoded, labels, ended)

    both: Any = model.apply(variables, method=encode)
    return know(model, variables, both[0], both[1], ended)


def hear_text(
    model: Translator, variables: Any, tokens: jax.Array, lengths: jax.Array, ended: jax.Array
) -> Known:
    """After the first `lengths` [B] of the tokens [B, L]."""

    def encode(model: Translator) -> tuple[Encoded, Decisions]:
        encoded = model.encode_text(tokens, lengths, train=False)
        return encoded, model.text_decisions(encoded)

    both: Any = model.apply(variables, method=encode)
    return know(model, variables, both[0], both[1], ended)


def know(
    model: Translator, variables: Any, encoded: Encoded, decisions: Decisions, ended: jax.Array
) -> Known:
    """The states as the decoder sees them."""
    memory: Any = model.apply(variables, encoded.states, decisions.keys, method="remember")
    return Known(memory=memory, heard=heard_of(decisions, encoded.lengths, ended))


def _complete(model: Translator, encoded: Encoded, ended: jax.Array) -> Encoded:
    """Without the states of a streaming encoder that still wait for what follows them."""
    speech = model.config.speech
    if speech is None or speech.kind != "streaming":
        return encoded
    complete = chunking_of(speech).complete(encoded.lengths) * speech.chunk
    lengths = jnp.where(ended, encoded.lengths, complete)
    return Encoded(states=zero_padding(encoded.states, lengths), lengths=lengths)


def _speech_decisions(
    model: Translator, encoded: Encoded, labels: jax.Array | None, ended: jax.Array
) -> Decisions:
    """Those of training, but the last state triggers for being the last only if it really is."""
    chosen, size = model.config.predecision, encoded.states.shape[1]
    if chosen.kind not in ("words", "phonemes"):
        return model.speech_decisions(encoded)
    if labels is None:
        raise ValueError(f"the model decides at {chosen.kind}: give their labels [B, F]")
    of_states = labels[:, ::STRIDE][:, :size]
    of_states = jnp.pad(of_states, [(0, 0), (0, size + 1 - of_states.shape[1])])
    triggers = label_triggers(of_states, encoded.lengths + ~ended)[:, :size]
    return at_triggers(encoded.states, triggers & real(encoded.lengths, size), chosen.pooling)
