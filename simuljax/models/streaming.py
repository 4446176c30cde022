"""The streaming speech encoder: chunks of any size give the states of the whole pass.

    frames -> causal convolutions -> states -> chunks with copies of what follows -> layers

A stream keeps what its next chunk needs: the last inputs of each convolution, the states that wait
for their chunk to be complete, and keys and values of the `left` states before it. None of it
grows, and every array has the batch first, so that one stream can take the place of another.
"""

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from simuljax.config.model import SpeechConfig, Width
from simuljax.models.encoders import Encoded, SpeechEncoder, Stack
from simuljax.nn.attention import Past
from simuljax.nn.chunked import (
    Buffer,
    Chunking,
    ChunkView,
    chunk_view,
    drop,
    extend,
    init_buffer,
    init_left,
    join_chunks,
    split_chunks,
)
from simuljax.nn.layers import zero_padding
from simuljax.nn.subsampling import STRIDE, init_subsampling, state_count

Lefts = tuple[Past | None, Past]  # of the pretrained layers below, and of all others
Layers = Callable[[Array, Any, Array, Array], tuple[Array, Any]]
Frames = TypeVar("Frames", int, Array)
T = TypeVar("T")


@flax.struct.dataclass
class StreamingState:
    """The state of streams between steps."""

    subsampling: Any  # of the convolutions
    waiting: Buffer  # states whose chunk is not yet computed
    left: Past  # of every layer, shared ones last
    before: Array  # int32 [B]: how many states of `left` are real
    pretrained: Past | None = None  # left context of Whisper's layers


@flax.struct.dataclass
class _Progress:
    """The loop over the chunks that are ready."""

    done: Array  # int32: chunks
    lefts: Lefts
    before: Array
    states: Array  # [B, n chunk, D]


def chunking_of(speech: SpeechConfig) -> Chunking:
    """Return the chunk sizes of a configuration."""
    return Chunking(chunk=speech.chunk, left=speech.left, right=speech.right)


def states_after(speech: SpeechConfig, frames: Frames) -> Frames:
    """Return the number of states that enter the layers once a stream has so many frames."""
    return state_count(frames - _delay(speech))


def frames_before(speech: SpeechConfig, states: Frames) -> Frames:
    """Return the number of frames after which a stream has so many states, from 1."""
    return STRIDE * (states - 1) + 1 + _delay(speech)


def _delay(speech: SpeechConfig) -> int:
    """Return the frames that convolutions look ahead, beyond the first of a state's four."""
    return STRIDE if speech.is_whisper else 0


class StreamingSpeechEncoder(SpeechEncoder):
    """Causal convolutions, then chunk-causal layers; whole utterances, or as they arrive.

    A subclass may have another front end: convolutions that make `rate` vectors a state, and layers
    below the first (`init_stream`, `_arrive`, `_lower`, `_chunks`).
    """

    rate: ClassVar[int] = 1

    @staticmethod
    def init_stream(
        speech: SpeechConfig, width: Width, features: int, batch: int
    ) -> StreamingState:
        """Return the state of `batch` streams before their first frame."""
        chunking = chunking_of(speech)
        return StreamingState(
            subsampling=init_subsampling(batch, features, speech.channels, width),
            waiting=init_buffer(batch, chunking.own - 1, width.model, width.dtype),
            left=init_left(batch, speech.layers, chunking, width),
            before=jnp.zeros(batch, jnp.int32),
        )

    def __call__(
        self, features: Array, lengths: Array, shared: Stack | None, *, train: bool
    ) -> Encoded:
        x = self._chunks(features, lengths, train=train)
        size, lengths = state_count(features.shape[1]), state_count(lengths)
        chunking = chunking_of(self.speech)
        view = self._view(lengths, jnp.zeros_like(lengths), x.shape[1])
        outputs = []
        for stack in self._stacks(shared):
            left = init_left(x.shape[0], stack.layers, chunking, self.width)
            x, _ = stack.chunked(x, left, view, chunking, train=train)
            outputs.append(join_chunks(x, chunking)[:, :size])
        states = zero_padding(self.norm(outputs[-1]), lengths)
        ctc = None if self.speech.ctc_after is None else self.ctc(outputs[0]).astype(jnp.float32)
        return Encoded(states=states, lengths=lengths, ctc=ctc)

    def _chunks(self, features: Array, lengths: Array, *, train: bool) -> Array:
        """Return the chunks of a whole pass [B, n, chunk + right, model]."""
        x, _ = self.subsampling(features.astype(self.width.dtype), lengths)
        x = self.dropout(self._scaled(x), deterministic=not train)
        return split_chunks(x, chunking_of(self.speech))

    def stream_step(
        self,
        state: StreamingState,
        features: Array,
        length: Array | None = None,
        shared: Stack | None = None,
        *,
        ended: Array | bool = False,
    ) -> tuple[StreamingState, Array, Array]:
        """Return state, states [B, S, D] and their count, after C frames, `length` of them real.

        S depends on C alone; states beyond the real ones are 0. They come a chunk at a time, once
        the states to its right are there. Where `ended`, nothing follows: the rest comes out, and
        the stream is as new, ready for another utterance.
        """
        length, chunking = _checked(length, features, state), self._arriving
        ended = jnp.broadcast_to(ended, length.shape)
        convolved, x, count = self._arrive(state.subsampling, features, length, ended)
        received = extend(state.waiting, x, count)
        whole = chunking.complete(received.count)
        ready = jnp.where(ended, chunking.count(received.count), whole)
        used = jnp.where(ended, received.count, whole * chunking.chunk)
        progress = self._run_chunks(self._layers(shared), state, received, ready)
        state = StreamingState(
            subsampling=convolved,
            waiting=drop(received, used, chunking.own - 1),
            left=progress.lefts[1],
            before=progress.before,
            pretrained=progress.lefts[0],
        )
        new = self.init_stream(self.speech, self.width, features.shape[-1], len(length))
        count = -(-used // self.rate)
        return _choose(ended, new, state), zero_padding(self.norm(progress.states), count), count

    def _arrive(
        self, state: Any, features: Array, length: Array, ended: Array
    ) -> tuple[Any, Array, Array]:
        """Return state, vectors [B, C', D] that enter the layers, and their count."""
        features = features.astype(self.width.dtype)
        state, x, count = self.subsampling.stream_step(state, features, length)
        return state, self._scaled(x), count

    def _lower(self) -> Layers:
        """Return the layers from arriving vectors to states, as a plain function: none."""
        return lambda x, left, lengths, before: (x, left)

    @property
    def _arriving(self) -> Chunking:
        """Return the sizes of chunks in arriving vectors."""
        return chunking_of(self.speech).times(self.rate)

    def _scaled(self, x: Array) -> Array:
        """Scale the input as the other encoders do; positions are in the attention."""
        return x * self.width.model**0.5

    def _stacks(self, shared: Stack | None) -> list[Stack]:
        return [self.below, self.above] + ([] if shared is None else [shared])

    def _view(self, lengths: Array, before: Array, chunks: int) -> ChunkView:
        penalty = self.speech.distance_penalty
        return chunk_view(lengths, before, chunks, chunking_of(self.speech), penalty=penalty)

    def _layers(self, shared: Stack | None) -> Layers:
        """Run all layers over one chunk, as a plain function that a JAX loop can call."""
        chunking, lower = chunking_of(self.speech), self._lower()
        stacks = [stack.unbind() for stack in self._stacks(shared)]
        ends = np.cumsum([stack.layers for stack, _ in stacks])

        def run(x: Array, lefts: Lefts, lengths: Array, before: Array) -> tuple[Array, Lefts]:
            below, left = lefts
            x, below = lower(x, below, lengths, before)
            view, parts = self._view(-(-lengths // self.rate), before, 1), []
            for (stack, variables), end in zip(stacks, ends, strict=True):
                part = jax.tree.map(lambda a: a[:, end - stack.layers : end], left)  # noqa: B023
                given = (x, part, view, chunking)
                x, part = stack.apply(variables, *given, train=False, method="chunked")
                parts.append(part)
            return x, (below, jax.tree.map(lambda *part: jnp.concatenate(part, 1), *parts))

        return run

    def _run_chunks(
        self, layers: Layers, state: StreamingState, received: Buffer, ready: Array
    ) -> _Progress:
        """Run the first `ready` [B] chunks of each stream, as many turns as the busiest needs."""
        chunking, arriving = chunking_of(self.speech), self._arriving
        chunks = arriving.count(received.vectors.shape[1])
        missing = chunks * arriving.chunk + arriving.right - received.vectors.shape[1]
        vectors = jnp.pad(received.vectors, [(0, 0), (0, missing), (0, 0)])

        def advance(so_far: _Progress) -> _Progress:
            start, real = so_far.done * arriving.chunk, so_far.done < ready
            x = jax.lax.dynamic_slice_in_dim(vectors, start, arriving.own, 1)[:, None]
            x, lefts = layers(x, so_far.lefts, received.count - start, so_far.before)
            place, main = so_far.done * chunking.chunk, join_chunks(x, chunking)
            before = jnp.minimum(so_far.before + chunking.chunk, chunking.left)
            return _Progress(
                done=so_far.done + 1,
                lefts=_choose(real, lefts, so_far.lefts),
                before=jnp.where(real, before, so_far.before),
                states=jax.lax.dynamic_update_slice_in_dim(so_far.states, main, place, 1),
            )

        shape = (len(ready), chunks * chunking.chunk, self.width.model)
        start = _Progress(
            done=jnp.int32(0),
            lefts=(state.pretrained, state.left),
            before=state.before,
            states=jnp.zeros(shape, self.width.dtype),
        )
        return jax.lax.while_loop(lambda so_far: so_far.done < ready.max(), advance, start)


def _choose(which: Array, new: T, old: T) -> T:
    """Select `new` for the streams where `which` [B], else `old`."""
    return jax.tree.map(
        lambda a, b: jnp.where(which.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, old
    )


def _checked(length: Array | None, features: Array, state: StreamingState) -> Array:
    """Check lengths of every stream against the frames given, where they are known."""
    batch, most, dims = features.shape
    expected = state.subsampling.frames.vectors.shape
    if (batch, dims) != (expected[0], expected[2]) or most < 1:
        raise ValueError(
            f"features has shape {features.shape}; the state is of {expected[0]} streams with "
            f"{expected[2]} features: give [{expected[0]}, 1 or more, {expected[2]}]"
        )
    if length is None:
        length = jnp.int32(most)
    elif not isinstance(length, Tracer) and not 0 <= np.min(length) <= np.max(length) <= most:
        raise ValueError(f"length is {length}; of {most} frames, 0 to {most} can be real")
    return jnp.broadcast_to(jnp.asarray(length, jnp.int32), (batch,))
