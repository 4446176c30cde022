"""The source of a stream, as it grows: encoder states appended to arrays of fixed size."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from simuljax.decode.prefix import Known
from simuljax.models.encoders import Encoded
from simuljax.models.translator import Translator
from simuljax.nn.buffer import Buffer, drop, extend, init_buffer
from simuljax.nn.layers import real
from simuljax.nn.pointers import Heard, Memory, heard_of


@flax.struct.dataclass
class Source:
    """What is known, and the states whose decision waits for those to come."""

    known: Known
    window: Buffer


def init_source(model: Translator, variables: Any, batch: int, states: int) -> Source:
    """Nothing heard, and room for so many states."""
    c, step = model.config, _step(model)
    points = -(-states // step)
    zero = jnp.zeros(batch, jnp.int32)
    given = (batch, states), (batch, points)
    shapes = (jax.ShapeDtypeStruct((*shape, c.width.model), c.width.dtype) for shape in given)
    memory: Any = jax.eval_shape(
        lambda *given: model.apply(variables, *given, method="remember"), *shapes
    )
    exists = jnp.zeros((batch, points), bool) if c.predecision.kind == "learnable" else None
    heard = Heard(
        lengths=zero,
        ends=jnp.zeros((batch, points), jnp.int32),
        count=zero,
        ended=jnp.zeros(batch, bool),
        exists=exists,
    )
    memory = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), memory)
    window = init_buffer(batch, step - 1, c.width.model, c.width.dtype)
    return Source(known=Known(memory=memory, heard=heard), window=window)


def append(
    model: Translator,
    variables: Any,
    source: Source,
    states: jax.Array,
    length: jax.Array,
    ended: jax.Array,
) -> Source:
    """With the first `length` [B] of more states [B, S, D]; where `ended` [B], with no more.

    A source that has no more room has ended too: what comes later is not heard.
    """
    heard = source.known.heard
    length = jnp.minimum(length, source.known.size - heard.lengths)
    total = heard.lengths + length
    ended = heard.ended | ended | (total == source.known.size)
    joined = extend(source.window, states, length)
    decisions: Any = model.apply(
        variables, Encoded(states=joined.vectors, lengths=joined.count), method="speech_decisions"
    )
    new = heard_of(decisions, joined.count, ended)
    used = jnp.minimum(new.count * _step(model), joined.count)
    memory: Any = model.apply(variables, states, decisions.keys, method="remember")
    first = (heard.lengths - source.window.count)[:, None]
    old = source.known.memory
    known = Known(
        memory=Memory(
            value=_put(old.value, memory.value, heard.lengths, length),
            key=_put(old.key, memory.key, heard.lengths, length),
            decide=_put(old.decide, memory.decide, heard.count, new.count),
        ),
        heard=Heard(
            lengths=total,
            ends=_put_row(heard.ends, new.ends + first, heard.count, new.count),
            count=heard.count + new.count,
            ended=ended,
            exists=_put_row(heard.exists, new.exists, heard.count, new.count),
        ),
    )
    return Source(known=known, window=drop(joined, used, _step(model) - 1))


def _step(model: Translator) -> int:
    """States to a decision."""
    chosen = model.config.predecision
    if chosen.kind in ("words", "phonemes"):
        raise ValueError(
            f"the model decides at {chosen.kind}, whose labels no stream carries; "
            "see simuljax.decode.simulate"
        )
    return chosen.step if chosen.kind == "fixed" else 1


def _put(room: Any, new: Any, start: jax.Array, length: jax.Array) -> Any:
    """Of new [layers, B, S, ...] the first `length` [B] from `start` [B] on."""
    if room is None:
        return None
    place = _places(start, length, new.shape[2], room.shape[2])
    return room.at[:, jnp.arange(len(start))[:, None], place].set(new, mode="drop")


def _put_row(room: Any, new: Any, start: jax.Array, length: jax.Array) -> Any:
    """The same of new [B, S]."""
    if room is None:
        return None
    place = _places(start, length, new.shape[1], room.shape[1])
    return room.at[jnp.arange(len(start))[:, None], place].set(new, mode="drop")


def _places(start: jax.Array, length: jax.Array, new: int, room: int) -> jax.Array:
    """[B, new]: where each goes; beyond the room if it is not real."""
    return jnp.where(real(length, new), start[:, None] + jnp.arange(new), room)
