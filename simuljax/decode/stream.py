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

from dataclasses import dataclass, field, replace
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax import Array

from simuljax.audio import Features, FeatureState, init_stream, normalise, stream_step
from simuljax.config.decoding import check_policy
from simuljax.decode.decoder import Events, ModelDecoder, StreamParams
from simuljax.decode.greedy import greedy_search, nothing_written
from simuljax.decode.policies import PolicyError
from simuljax.decode.state import Context, Prefix, Source, append, init_prefix, init_source
from simuljax.models.streaming import StreamingState


@flax.struct.dataclass
class Chunk:
    """More sound for every stream."""

    samples: Array  # [B, C] int16, or float in [-1, 1]
    length: Array  # int32 [B]: how many are real
    ended: Array  # bool [B]: nothing will follow


@flax.struct.dataclass
class StreamState:
    """Streams between two steps."""

    audio: FeatureState
    encoder: StreamingState
    source: Source
    prefix: Prefix
    samples: Array  # int32 [B]: read so far
    more: Array  # bool [B]: a full step has left something to write


@dataclass(frozen=True, kw_only=True)
class StreamingDecoder(ModelDecoder):
    """The step of one model. Its methods are pure: `jax.jit(decoder.step, donate_argnums=1)`."""

    features: Features = field(default_factory=Features)

    def __post_init__(self) -> None:
        if self.features.dims != self.model.config.features:
            raise ValueError(
                f"the model takes {self.model.config.features} features and these are "
                f"{self.features.dims}: use those it was trained on"
            )
        check_policy(self.decoding.policy, self.model.config)
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
        more = ~prefix.finished & (written.count == self.limits.events)
        return prefix, Events(written=written, finished=prefix.finished, more=more)

    def _encode(
        self,
        context: Context,
        params: StreamParams,
        state: StreamState,
        chunk: Chunk,
        length: Array,
        ended: Array,
    ) -> StreamState:
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
