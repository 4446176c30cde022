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

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from simuljax.audio import Features, FeatureState, Statistics, init_stream, normalise, stream_step
from simuljax.config.decoding import Branch, Decoding, check_policy
from simuljax.config.fields import Checked, setting
from simuljax.decode.greedy import Written, greedy_search, nothing_written
from simuljax.decode.policies import PolicyError
from simuljax.decode.state import (
    Context,
    Control,
    Prefix,
    Source,
    append,
    control_of,
    init_prefix,
    init_source,
)
from simuljax.models.joint import JointModel
from simuljax.models.parameters import cast_weights
from simuljax.models.streaming import StreamingState
from simuljax.text import Words


@dataclass(frozen=True, kw_only=True)
class StreamLimits(Checked):
    """The sizes of a stream's arrays.

    A source of so many states has ended, whether its sound goes on or not; a sentence of so many
    tokens is cut. With more tokens than events to write, a step leaves the rest to the next one.
    """

    states: int = setting(1500, help="Encoder states of 40 ms; tokens of a text.", low=1)
    tokens: int = setting(300, help="Tokens of a sentence.", low=1)
    events: int = setting(32, help="Tokens of a step.", low=1)


@flax.struct.dataclass
class StreamParams:
    """Everything a step computes with: parameters, statistics of the features, choices."""

    variables: Any  # of `model.apply`
    statistics: Statistics | None  # None: of text
    control: Control


@flax.struct.dataclass
class Events:
    """The output of a step; `delays` count samples, its own included."""

    written: Written
    finished: Array  # bool [B]: nothing more will come
    more: Array  # bool [B]: more would have come; take another step, without samples if need be

    def row(self, index: int) -> tuple[list[int], int, bool]:
        """Return a stream's tokens, how far they reach, and True if it is over; on the host."""
        count = int(self.written.count[index])
        tokens = self.written.tokens[index, :count].tolist()
        reach = max(self.written.reach[index, :count].tolist(), default=0)
        return tokens, reach, bool(self.finished[index])


@dataclass(frozen=True, kw_only=True)
class ModelDecoder:
    """A model with its choices: what streams of every kind have in common."""

    model: JointModel
    branch: Branch = "speech"
    features: Features = field(default_factory=Features)
    decoding: Decoding = field(default_factory=Decoding)
    limits: StreamLimits = field(default_factory=StreamLimits)

    def params(
        self, variables: Any, statistics: Statistics | None = None, words: Words | None = None
    ) -> StreamParams:
        """Return what a step takes first, with weights in the type that they are computed with.

        Speech has `statistics`; `words` serve policies that count them.
        """
        check_policy(self.decoding.policy, self.model.config, self.branch)
        control = control_of(self.decoding, self.model.config.monotonic, words)
        cast = cast_weights(variables["params"], self.model.config.width.dtype)
        variables = {**variables, "params": cast}
        return StreamParams(variables=variables, statistics=statistics, control=control)

    def context(self, params: StreamParams) -> Context:
        return Context(
            variables=params.variables,
            control=params.control,
            model=self.model,
            decoding=self.decoding.fixed(),
        )


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


Axes = tuple[int, ...]  # of every array of a state, in the order of jax.tree.leaves


def batch_axes(init: Callable[[int], Any]) -> Axes:
    """Return the batch axis of every array of a state; `init` makes the state of so many streams.

    It is found by comparing states of 1 and of 2 streams.
    """

    def shapes(batch: int) -> list[tuple[int, ...]]:
        arrays = jax.eval_shape(lambda: jax.tree.leaves(init(batch)))
        return [array.shape for array in arrays]

    pairs = zip(shapes(1), shapes(2), strict=True)
    return tuple([a == b for a, b in zip(*pair, strict=True)].index(False) for pair in pairs)


def take_rows(state: Any, rows: ArrayLike, axes: Axes) -> Any:
    """Return the streams of these rows [n]; a row beyond the end gives the last."""
    leaves, tree = jax.tree.flatten(state)
    taken = (jnp.take(a, rows, axis=i, mode="clip") for a, i in zip(leaves, axes, strict=True))
    return tree.unflatten(taken)


def put_rows(state: Any, rows: ArrayLike, some: Any, axes: Axes) -> Any:
    """Return the streams with `some`, of n rows, in rows [n]; one beyond the end is dropped."""
    rows, (leaves, tree) = jnp.atleast_1d(rows), jax.tree.flatten(state)
    pairs = zip(leaves, jax.tree.leaves(some), axes, strict=True)
    return tree.unflatten(
        [a.at[(slice(None),) * i + (rows,)].set(b, mode="drop") for a, b, i in pairs]
    )
