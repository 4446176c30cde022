"""What is known of a source of which the first part has been heard, encoded from scratch."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from simuljax.decode.counting import Counting
from simuljax.decode.prefix import Known
from simuljax.models.encoders import Encoded
from simuljax.models.streaming import chunking_of
from simuljax.models.translator import Translator
from simuljax.nn.decisions import Decisions, at_triggers, word_points
from simuljax.nn.layers import real, zero_padding
from simuljax.nn.pointers import heard_of
from simuljax.nn.subsampling import STRIDE
from simuljax.ops import label_triggers
from simuljax.text.ctc_words import words_heard


def hear_speech(
    model: Translator,
    variables: Any,
    features: jax.Array,
    frames: jax.Array,
    ended: jax.Array,
    labels: jax.Array | None = None,
    *,
    counting: Counting | None = None,
) -> Known:
    """After the first `frames` [B] of the features [B, F, D]; where `ended` [B], that is all.

    With `counting`, what is known includes the words that the CTC head hears.
    """

    def encode(model: Translator) -> tuple[Encoded, Decisions]:
        encoded = _complete(model, model.encode_speech(features, frames, train=False), ended)
        encoded = encoded if counting is None else _count(encoded, counting)
        return encoded, _speech_decisions(model, encoded, labels, ended)

    both: Any = model.apply(variables, method=encode)
    known = know(model, variables, both[0], both[1], ended)
    words = both[0].words
    return known if words is None else dataclasses.replace(known, units=words[:, -1])


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
    states = zero_padding(encoded.states, lengths)
    return dataclasses.replace(encoded, states=states, lengths=lengths)


def _count(encoded: Encoded, counting: Counting) -> Encoded:
    assert encoded.ctc is not None
    words = words_heard(
        encoded.ctc, encoded.lengths, counting.boundaries, trailing=counting.trailing
    )
    return dataclasses.replace(encoded, words=words)


def _speech_decisions(
    model: Translator, encoded: Encoded, labels: jax.Array | None, ended: jax.Array
) -> Decisions:
    """Those of training, but the last state triggers for being the last only if it really is."""
    chosen, size = model.config.predecision, encoded.states.shape[1]
    if chosen.kind == "ctc_words" and encoded.words is not None:
        given = (encoded.states, encoded.lengths, encoded.words, chosen.pooling)
        return word_points(*given, ended)
    if chosen.kind not in ("words", "phonemes"):
        return model.speech_decisions(encoded)
    if labels is None:
        raise ValueError(f"the model decides at {chosen.kind}: give their labels [B, F]")
    of_states = labels[:, ::STRIDE][:, :size]
    of_states = jnp.pad(of_states, [(0, 0), (0, size + 1 - of_states.shape[1])])
    triggers = label_triggers(of_states, encoded.lengths + ~ended)[:, :size]
    return at_triggers(encoded.states, triggers & real(encoded.lengths, size), chosen.pooling)
