"""The source of a translation: encoded from scratch, or grown state by state.

`encode_speech` and `encode_text` encode the first part of a source as a whole, for encoders that
look at all of it. `append` adds states of a streaming encoder to arrays of fixed size.
"""

import dataclasses
from typing import Any, Literal

import flax.struct
import jax
import jax.numpy as jnp

from simuljax.config.decoding import Decoding
from simuljax.config.model import ModelConfig
from simuljax.decode.policies import WaitK
from simuljax.decode.state import Control, Known
from simuljax.models.encoders import Encoded
from simuljax.models.streaming import chunking_of
from simuljax.models.translator import Translator
from simuljax.nn.buffer import Buffer, drop, extend, init_buffer
from simuljax.nn.decisions import Decisions, at_triggers, word_points
from simuljax.nn.layers import real, zero_padding
from simuljax.nn.pointers import Memory, SourceProgress, progress_of
from simuljax.nn.subsampling import STRIDE
from simuljax.ops import label_triggers
from simuljax.text import WordBoundaries
from simuljax.text.ctc_words import words_heard


@flax.struct.dataclass
class Counting:
    """The rule that counts words in the output of a CTC head."""

    boundaries: WordBoundaries  # of the source's vocabulary
    trailing: Literal["count", "leave"] = flax.struct.field(pytree_node=False, default="count")


def counting_of(model: ModelConfig, decoding: Decoding, control: Control) -> Counting | None:
    """Return what the policy counts, or else the model; None if neither counts CTC words."""
    policy, words = decoding.policy, control.words
    if policy is not None and "units" in policy.needs:
        assert words is not None
        trailing = policy.trailing if isinstance(policy, WaitK) else "count"
        return Counting(boundaries=words.source, trailing=trailing)
    if words is None or model.predecision.kind != "ctc_words":
        return None
    return Counting(boundaries=words.source)


def encode_speech(
    model: Translator,
    variables: Any,
    features: jax.Array,
    frames: jax.Array,
    ended: jax.Array,
    labels: jax.Array | None = None,
    *,
    counting: Counting | None = None,
    samples: jax.Array | None = None,
) -> Known:
    """Return what is known after the first `frames` [B] of the features [B, F, D].

    Where `ended` [B], that is all of the source. With `counting`, `units` are the words that the
    CTC head hears. `samples` [B] are noted.
    """

    def encode(model: Translator) -> tuple[Encoded, Decisions]:
        encoded = _complete(model, model.encode_speech(features, frames, train=False), ended)
        encoded = encoded if counting is None else _count(encoded, counting)
        return encoded, _speech_decisions(model, encoded, labels, ended)

    both: Any = model.apply(variables, method=encode)
    known = known_of(model, variables, both[0], both[1], ended)
    words = both[0].words
    units = None if words is None else words[:, -1]
    return dataclasses.replace(known, samples=samples, units=units)


def encode_text(
    model: Translator, variables: Any, tokens: jax.Array, lengths: jax.Array, ended: jax.Array
) -> Known:
    """Return what is known after the first `lengths` [B] of the tokens [B, L]."""

    def encode(model: Translator) -> tuple[Encoded, Decisions]:
        encoded = model.encode_text(tokens, lengths, train=False)
        return encoded, model.text_decisions(encoded)

    both: Any = model.apply(variables, method=encode)
    return known_of(model, variables, both[0], both[1], ended)


def known_of(
    model: Translator, variables: Any, encoded: Encoded, decisions: Decisions, ended: jax.Array
) -> Known:
    """Return the states as the decoder attends to them."""
    memory: Any = model.apply(variables, encoded.states, decisions.keys, method="remember")
    return Known(memory=memory, progress=progress_of(decisions, encoded.lengths, ended))


def _complete(model: Translator, encoded: Encoded, ended: jax.Array) -> Encoded:
    """Drop the states of a streaming encoder that still wait for what follows them."""
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
    """Decide as in training, but the last state triggers as the last only if the source ended."""
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


@flax.struct.dataclass
class Source:
    """A growing source, and the states whose decision waits for those to come."""

    known: Known
    window: Buffer


def init_source(model: Translator, variables: Any, batch: int, states: int) -> Source:
    """Return a source without states, with room for so many."""
    c, step = model.config, _step(model)
    points = -(-states // step)
    zero = jnp.zeros(batch, jnp.int32)
    given = (batch, states), (batch, points)
    shapes = (jax.ShapeDtypeStruct((*shape, c.width.model), c.width.dtype) for shape in given)
    memory: Any = jax.eval_shape(
        lambda *given: model.apply(variables, *given, method="remember"), *shapes
    )
    exists = jnp.zeros((batch, points), bool) if c.predecision.kind == "learnable" else None
    progress = SourceProgress(
        lengths=zero,
        ends=jnp.zeros((batch, points), jnp.int32),
        count=zero,
        ended=jnp.zeros(batch, bool),
        exists=exists,
    )
    memory = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), memory)
    window = init_buffer(batch, step - 1, c.width.model, c.width.dtype)
    return Source(known=Known(memory=memory, progress=progress), window=window)


def append(
    model: Translator,
    variables: Any,
    source: Source,
    states: jax.Array,
    length: jax.Array,
    ended: jax.Array,
) -> Source:
    """Return the source with the first `length` [B] of more states [B, S, D].

    Where `ended` [B], no more follow. A source that has no more room has ended too.
    """
    progress = source.known.progress
    length = jnp.minimum(length, source.known.size - progress.lengths)
    total = progress.lengths + length
    ended = progress.ended | ended | (total == source.known.size)
    joined = extend(source.window, states, length)
    decisions: Any = model.apply(
        variables, Encoded(states=joined.vectors, lengths=joined.count), method="speech_decisions"
    )
    new = progress_of(decisions, joined.count, ended)
    used = jnp.minimum(new.count * _step(model), joined.count)
    memory: Any = model.apply(variables, states, decisions.keys, method="remember")
    first = (progress.lengths - source.window.count)[:, None]
    old = source.known.memory
    known = Known(
        memory=Memory(
            value=_put(old.value, memory.value, progress.lengths, length),
            key=_put(old.key, memory.key, progress.lengths, length),
            decide=_put(old.decide, memory.decide, progress.count, new.count),
        ),
        progress=SourceProgress(
            lengths=total,
            ends=_put_row(progress.ends, new.ends + first, progress.count, new.count),
            count=progress.count + new.count,
            ended=ended,
            exists=_put_row(progress.exists, new.exists, progress.count, new.count),
        ),
    )
    return Source(known=known, window=drop(joined, used, _step(model) - 1))


def _step(model: Translator) -> int:
    """Return the states to a decision."""
    chosen = model.config.predecision
    if chosen.kind in ("words", "phonemes"):
        raise ValueError(
            f"the model decides at {chosen.kind}, whose labels no stream carries; "
            "see simuljax.decode.simulate"
        )
    return chosen.step if chosen.kind == "fixed" else 1


def _put(room: Any, new: Any, start: jax.Array, length: jax.Array) -> Any:
    """Put the first `length` [B] of new [layers, B, S, ...] at `start` [B]."""
    if room is None:
        return None
    place = _places(start, length, new.shape[2], room.shape[2])
    return room.at[:, jnp.arange(len(start))[:, None], place].set(new, mode="drop")


def _put_row(room: Any, new: Any, start: jax.Array, length: jax.Array) -> Any:
    """Put the first `length` [B] of new [B, S] at `start` [B]."""
    if room is None:
        return None
    place = _places(start, length, new.shape[1], room.shape[1])
    return room.at[jnp.arange(len(start))[:, None], place].set(new, mode="drop")


def _places(start: jax.Array, length: jax.Array, new: int, room: int) -> jax.Array:
    """Return [B, new]: where each goes; beyond the room if it is not real."""
    return jnp.where(real(length, new), start[:, None] + jnp.arange(new), room)
