"""Translation of whole sources, which are heard at once: greedy, or the best of a beam.

Where words are committed while the source is live there is no beam, since none can be taken back.
"""

import dataclasses
import functools
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from simuljax.decode.beam import Beam, search
from simuljax.decode.counting import counting_of
from simuljax.decode.listen import hear_speech, hear_text, know
from simuljax.decode.options import Decoding
from simuljax.decode.prefix import Known, init_prefix
from simuljax.decode.writing import nothing_written, write_on
from simuljax.models.translator import Encoded, Translator
from simuljax.nn.decisions import Decisions
from simuljax.nn.pointers import Rule
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
    """The best tokens for normalised features [B, F, D], of which `frames` [B] are real.

    `variables` are those of `model.apply`: {"params": ...} and BatchNorm's statistics, if any.
    `labels` [B, F] serve models that decide at words or phonemes, `words` those that hear words by
    themselves. Without a beam: greedily.
    """
    decoding = _unhurried(decoding)
    rule = decoding.rule(model.config.monotonic, words)
    given = (variables, features, jnp.asarray(frames), labels, rule)
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
    """The best tokens for transcripts [B, L], end-of-sentence included."""
    decoding = _unhurried(decoding)
    rule = decoding.rule(model.config.monotonic)
    given = (variables, tokens, jnp.asarray(lengths), rule)
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
    """The best tokens for what an encoder gave."""
    decoding = _unhurried(decoding)
    rule = decoding.rule(model.config.monotonic)
    return _states(model, decoding.fixed(), beam, variables, encoded, decisions, rule)


def _unhurried(decoding: Decoding | None) -> Decoding:
    """Without a policy: there is nothing to wait for."""
    return dataclasses.replace(decoding, policy=None) if decoding else Decoding()


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _speech(model, decoding, beam, variables, features, frames, labels, rule) -> Translation:
    ended = jnp.ones(frames.shape, bool)
    given = (features, frames, ended, labels)
    counting = counting_of(model.config, decoding, rule)
    known = hear_speech(model, variables, *given, counting=counting)
    return _write(model, decoding, beam, variables, known, rule)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _text(model, decoding, beam, variables, tokens, lengths, rule) -> Translation:
    known = hear_text(model, variables, tokens, lengths, jnp.ones(lengths.shape, bool))
    return _write(model, decoding, beam, variables, known, rule)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _states(model, decoding, beam, variables, encoded, decisions, rule) -> Translation:
    known = know(model, variables, encoded, decisions, jnp.ones(encoded.lengths.shape, bool))
    return _write(model, decoding, beam, variables, known, rule)


def _write(
    model: Translator,
    decoding: Decoding,
    beam: Beam | None,
    variables: Any,
    known: Known,
    rule: Rule,
) -> Translation:
    if beam is None:
        return _greedy(model, decoding, variables, known, rule)
    found = search(model, variables, known, rule=rule, decoding=decoding, beam=beam)
    return Translation(
        tokens=found.tokens[:, 0], lengths=found.lengths[:, 0], delays=found.delays[:, 0]
    )


def _greedy(
    model: Translator, decoding: Decoding, variables: Any, known: Known, rule: Rule
) -> Translation:
    batch, room = known.batch, decoding.limit.of(known.size)
    _, written = write_on(
        model,
        variables,
        init_prefix(model, batch, room, decoding),
        nothing_written(batch, room),
        known,
        heard=known.heard.lengths,
        rule=rule,
        decoding=decoding,
    )
    return Translation(tokens=written.tokens, lengths=written.count, delays=written.reach)
