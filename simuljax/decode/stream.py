"""The streaming step: samples in, tokens out, in one function that is compiled once.

    samples -> filterbanks -> streaming encoder -> source -> decisions -> tokens

Everything a stream remembers is in one pytree of fixed size, batch rows apart from one another, so
that streams can be batched, stored and moved. A step is one READ: its samples are encoded, then
as much is written as the decisions allow.

With `any` head deciding, what is written does not depend on how the samples are cut into steps: it
is what the training-time forward pass, run from scratch on the states so far, decides. With
`majority` and `mean` it depends on which decisions were there when a head was overruled; targets
stay as they were when written. So they do under a policy, which decides for a decoder that attends
to everything.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax import Array

from simuljax.audio import FeatureState, init_stream, normalise, stream_step
from simuljax.decode.context import Context, Known, ModelDecoder, StreamParams, remember
from simuljax.decode.greedy import Events, Prefix, greedy_search, init_prefix, nothing_written
from simuljax.decode.policies import PolicyError
from simuljax.models.encoders import Encoded
from simuljax.models.joint import JointModel
from simuljax.models.streaming import StreamingState
from simuljax.nn.chunked import Buffer, drop, extend, init_buffer
from simuljax.nn.layers import real
from simuljax.nn.monotonic import Decisions, Memory, SourceProgress, progress_of


@flax.struct.dataclass
class Chunk:
    """More sound for every stream."""

    samples: Array  # [B, C] int16, or float in [-1, 1]
    length: Array  # int32 [B]: how many are real
    ended: Array  # bool [B]: nothing will follow


@flax.struct.dataclass
class SourceStream:
    """A growing source, and the states whose decision waits for those to come."""

    known: Known
    window: Buffer


@flax.struct.dataclass
class StreamState:
    """Streams between two steps."""

    audio: FeatureState
    encoder: StreamingState
    source: SourceStream
    prefix: Prefix
    samples: Array  # int32 [B]: read so far
    more: Array  # bool [B]: a full step has left something to write


@dataclass(frozen=True, kw_only=True)
class StreamingDecoder(ModelDecoder):
    """The step of one model. Its methods are pure: `jax.jit(decoder.step, donate_argnums=1)`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features.dims != self.model.config.features:
            raise ValueError(
                f"the model takes {self.model.config.features} features and these are "
                f"{self.features.dims}: use those it was trained on"
            )
        if self.decoding.policy is not None and not self.decoding.policy.is_incremental:
            raise PolicyError(
                f"{self.decoding.policy} needs all of the sound at every READ, which a streaming "
                "step does not: use simuljax.decode.reencoding"
            )

    def init(self, params: StreamParams, batch: int) -> StreamState:
        """Return streams that have read nothing; arrays are not shared, so they may be donated."""
        state = StreamState(
            audio=init_stream(self.features, (batch,)),
            encoder=self.model.init_speech_stream(batch),
            source=init_source(self.context(params), batch, self.limits.states),
            prefix=self.init_targets(batch),
            samples=jnp.zeros(batch, jnp.int32),
            more=jnp.zeros(batch, bool),
        )
        return jax.tree.map(jnp.copy, state)

    def init_targets(self, batch: int) -> Any:
        return init_prefix(self.model, batch, self.limits.tokens, self.decoding)

    def step(
        self, params: StreamParams, state: StreamState, chunk: Chunk
    ) -> tuple[StreamState, Events]:
        """Read a chunk and write what it allows. A stream that has ended reads no more."""
        context, before = self.context(params), state.source.known.progress
        length = jnp.where(before.ended, 0, chunk.length)
        state = self._encode(context, params, state, chunk, length, chunk.ended & ~before.ended)
        prefix, events = self.write(context, state, length, before.lengths)
        return replace(state, prefix=prefix, more=events.more), events

    def _encode(self, context, params, state, chunk, length, ended) -> StreamState:
        sound = chunk.samples
        if jnp.issubdtype(sound.dtype, jnp.floating):
            sound = jnp.where(jnp.isfinite(sound), sound, 0)  # silence in place of NaN
        audio, features, frames = stream_step(state.audio, sound, length, config=self.features)
        features = normalise(features, params.statistics)  # pyright: ignore[reportArgumentType]
        given = (state.encoder, features, frames)
        encoder, states, count = context.apply(*given, ended=ended, method="stream_speech")
        return replace(
            state,
            audio=audio,
            encoder=encoder,
            source=append(context, state.source, states, count, ended),
            samples=state.samples + length,
        )

    def write(
        self, context: Context, state: StreamState, length: Array, states: Array
    ) -> tuple[Any, Events]:
        """Write what the source allows, after `length` [B] samples more than `states` [B] took."""
        known = replace(state.source.known, samples=state.samples)
        news = (known.progress.lengths > states) | known.progress.ended | state.more
        if self.decoding.policy is not None:
            news |= length > 0  # it may count samples, of which there are more before a state is
        nothing = nothing_written(len(length), self.limits.events)
        prefix, written = greedy_search(
            context, state.prefix, nothing, known, delay=state.samples, active=news
        )
        more = ~prefix.finished & (written.lengths == self.limits.events)
        return prefix, Events(written=written, finished=prefix.finished, more=more)


def init_source(context: Context, batch: int, states: int) -> SourceStream:
    """Return a source without states, with room for so many."""
    c, step = context.model.config, _step(context.model)
    points, zero = -(-states // step), jnp.zeros(batch, jnp.int32)
    shapes = (
        jax.ShapeDtypeStruct((batch, size, c.width.model), c.width.dtype)
        for size in (states, points)
    )
    memory = jax.eval_shape(partial(remember, context), *shapes)
    learned = c.predecision.kind == "learnable"
    progress = SourceProgress(
        lengths=zero,
        ends=jnp.zeros((batch, points), jnp.int32),
        count=zero,
        ended=jnp.zeros(batch, bool),
        exists=jnp.zeros((batch, points), bool) if learned else None,
    )
    memory = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), memory)
    window = init_buffer(batch, step - 1, c.width.model, c.width.dtype)
    return SourceStream(known=Known(memory=memory, progress=progress), window=window)


def append(
    context: Context, source: SourceStream, states: Array, length: Array, ended: Array
) -> SourceStream:
    """Return the source with the first `length` [B] of more states [B, S, D].

    Where `ended` [B], no more follow. A source that has no more room has ended too.
    """
    progress, step = source.known.progress, _step(context.model)
    length = jnp.minimum(length, source.known.size - progress.lengths)
    total = progress.lengths + length
    ended = progress.ended | ended | (total == source.known.size)
    joined = extend(source.window, states, length)
    encoded = Encoded(states=joined.vectors, lengths=joined.count)
    decisions: Decisions = context.apply(encoded, method="speech_decisions")
    new = progress_of(decisions, joined.count, ended)
    used = jnp.minimum(new.count * step, joined.count)
    memory = remember(context, states, decisions.keys)
    first = (progress.lengths - source.window.count)[:, None]
    old = source.known.memory
    at_states, at_points = (progress.lengths, length), (progress.count, new.count)
    known = Known(
        memory=Memory(
            value=_put(old.value, memory.value, *at_states),
            key=_put(old.key, memory.key, *at_states),
            decide=_put(old.decide, memory.decide, *at_points),
        ),
        progress=SourceProgress(
            lengths=total,
            ends=_put(progress.ends, new.ends + first, *at_points, axis=0),
            count=progress.count + new.count,
            ended=ended,
            exists=_put(progress.exists, new.exists, *at_points, axis=0),
        ),
    )
    return SourceStream(known=known, window=drop(joined, used, step - 1))


def _step(model: JointModel) -> int:
    """Return the states to a decision."""
    chosen = model.config.predecision
    if chosen.kind in ("words", "phonemes"):
        raise ValueError(
            f"the model decides at {chosen.kind}, whose labels no stream carries; "
            "see simuljax.decode.reencoding"
        )
    return chosen.step if chosen.kind == "fixed" else 1


def _put(room: Any, new: Any, start: Array, length: Array, axis: int = 1) -> Any:
    """Put the first `length` [B] of new [.., B, S, ..] at `start` [B]; the batch is at `axis`."""
    if room is None:
        return None
    count, size = new.shape[axis + 1], room.shape[axis + 1]
    place = jnp.where(real(length, count), start[:, None] + jnp.arange(count), size)
    rows = jnp.arange(len(start))[:, None]
    return room.at[(slice(None),) * axis + (rows, place)].set(new, mode="drop")
