"""Translate whole sources: greedily, or with the best of a beam.

Where words are committed while the source is live there is no beam, since none can be taken back.
"""

import dataclasses
import functools
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from simuljax.config.decoding import Beam, Decoding
from simuljax.decode.beam import beam_search
from simuljax.decode.greedy import greedy_search, nothing_written
from simuljax.decode.source import counting_of, encode_speech, encode_text, known_of
from simuljax.decode.state import Context, Control, Known, control_of, init_prefix
from simuljax.models.translator import Encoded, Translator
from simuljax.nn.decisions import Decisions
from simuljax.text import Words


@flax.struct.dataclass
class Translation:
    """Tokens and their delays; 0 beyond the lengths, which count end-of-sentence."""

    tokens: jax.Array  # int32 [B, N]
    lengths: jax.Array  # int32 [B]; without end-of-sentence where the limit came first
    delays: jax.Array  # int32 [B, N]: encoder states that the furthest head attends to


def translate_speech(
    model: Translator,
    variables: Any,
    features: ArrayLike,
    frames: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    decoding: Decoding | None = None,
    beam: Beam | None = None,
    words: Words | None = None,
) -> Translation:
    """Return the best tokens for normalised features [B, F, D] of `frames` [B] real frames.

    `variables` are those of `model.apply`: {"params": ...} and BatchNorm's statistics, if any.
    `labels` [B, F] serve models that decide at words or phonemes, `words` those that hear words by
    themselves. Without a beam: greedily.
    """
    decoding = _unhurried(decoding)
    control = control_of(decoding, model.config.monotonic, words)
    given = (variables, features, jnp.asarray(frames), labels, control)
    return _speech(model, decoding.fixed(), beam, *given)


def translate_text(
    model: Translator,
    variables: Any,
    tokens: ArrayLike,
    lengths: ArrayLike,
    *,
    decoding: Decoding | None = None,
    beam: Beam | None = None,
) -> Translation:
    """Return the best tokens for transcripts [B, L], end-of-sentence included."""
    decoding = _unhurried(decoding)
    control = control_of(decoding, model.config.monotonic)
    given = (variables, tokens, jnp.asarray(lengths), control)
    return _text(model, decoding.fixed(), beam, *given)


def translate_states(
    model: Translator,
    variables: Any,
    encoded: Encoded,
    decisions: Decisions,
    *,
    decoding: Decoding | None = None,
    beam: Beam | None = None,
) -> Translation:
    """Return the best tokens for encoder states."""
    decoding = _unhurried(decoding)
    control = control_of(decoding, model.config.monotonic)
    return _states(model, decoding.fixed(), beam, variables, encoded, decisions, control)


def _unhurried(decoding: Decoding | None) -> Decoding:
    """Drop the policy: the whole source is there."""
    return dataclasses.replace(decoding, policy=None) if decoding else Decoding()


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _speech(model, decoding, beam, variables, features, frames, labels, control) -> Translation:
    given = (features, frames, jnp.ones(frames.shape, bool), labels)
    counting = counting_of(model.config, decoding, control)
    known = encode_speech(model, variables, *given, counting=counting)
    return _write(model, decoding, beam, variables, known, control)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _text(model, decoding, beam, variables, tokens, lengths, control) -> Translation:
    known = encode_text(model, variables, tokens, lengths, jnp.ones(lengths.shape, bool))
    return _write(model, decoding, beam, variables, known, control)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _states(model, decoding, beam, variables, encoded, decisions, control) -> Translation:
    known = known_of(model, variables, encoded, decisions, jnp.ones(encoded.lengths.shape, bool))
    return _write(model, decoding, beam, variables, known, control)


def _write(model, decoding, beam, variables, known: Known, control: Control) -> Translation:
    context = Context(model=model, variables=variables, control=control, decoding=decoding)
    if beam is not None:
        found = beam_search(context, known, beam)
        tokens, lengths, delays = found.tokens, found.lengths, found.delays
        return Translation(tokens=tokens[:, 0], lengths=lengths[:, 0], delays=delays[:, 0])
    batch, room = known.batch, decoding.limit.of(known.size)
    prefix = init_prefix(model, batch, room, decoding)
    given = (prefix, nothing_written(batch, room), known)
    _, written = greedy_search(context, *given, delay=known.progress.lengths)
    return Translation(tokens=written.tokens, lengths=written.count, delays=written.reach)
