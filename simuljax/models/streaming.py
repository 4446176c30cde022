"""The streaming speech encoder: chunks of any size give the states of the whole pass.

    frames -> causal convolutions -> states -> chunks with copies of what follows -> layers

A stream keeps what its next chunk needs: the last inputs of each convolution, the states that wait
for their chunk to be complete, and keys and values of the `left` states before it. None of it
grows, and every array has the batch first, so that one stream can take the place of another.
"""

from collections.abc import Callable
from typing import TypeVar

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
from simuljax.nn.subsampling import SubsamplingState, init_subsampling

Layers = Callable[[Array, Past, Array, Array], tuple[Array, Past]]
T = TypeVar("T")


@flax.struct.dataclass
class StreamingState:
    """The state of streams between steps."""

    subsampling: SubsamplingState
    waiting: Buffer  # states whose chunk is not yet computed
    left: Past  # of every layer, shared ones last
    before: Array  # int32 [B]: how many states of `left` are real


@flax.struct.dataclass
class _Progress:
    """The loop over the chunks that are ready."""

    done: Array  # int32: chunks
    left: Past
    before: Array
    states: Array  # [B, n chunk, D]


def chunking_of(speech: SpeechConfig) -> Chunking:
    """Return the chunk sizes of a configuration."""
    return Chunking(chunk=speech.chunk, left=speech.left, right=speech.right)


def init_stream(speech: SpeechConfig, width: Width, features: int, batch: int) -> StreamingState:
    """Return the state of `batch` streams before their first frame."""
    chunking = chunking_of(speech)
    return StreamingState(
        subsampling=init_subsampling(batch, features, speech.channels, width),
        waiting=init_buffer(batch, chunking.own - 1, width.model, width.dtype),
        left=init_left(batch, speech.layers, chunking, width),
        before=jnp.zeros(batch, jnp.int32),
    )


class StreamingSpeechEncoder(SpeechEncoder):
    """Causal convolutions, then chunk-causal layers; whole utterances, or as they arrive."""

    def __call__(
        self, features: Array, lengths: Array, shared: Stack | None, *, train: bool
    ) -> Encoded:
        x, lengths = self.subsampling(features.astype(self.width.dtype), lengths)
        size, chunking = x.shape[1], chunking_of(self.speech)
        x = self.dropout(self._scaled(x), deterministic=not train)
        x = split_chunks(x, chunking)
        view = self._view(lengths, jnp.zeros_like(lengths), x.shape[1])
        outputs = []
        for stack in self._stacks(shared):
            left = init_left(x.shape[0], stack.layers, chunking, self.width)
            x, _ = stack.chunked(x, left, view, chunking, train=train)
            outputs.append(join_chunks(x, chunking)[:, :size])
        states = zero_padding(self.norm(outputs[-1]), lengths)
        ctc = None if self.speech.ctc_after is None else self.ctc(outputs[0]).astype(jnp.float32)
        return Encoded(states=states, lengths=lengths, ctc=ctc)

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
        length, chunking = _checked(length, features, state), chunking_of(self.speech)
        ended = jnp.broadcast_to(ended, length.shape)
        convolved, x, count = self.subsampling.stream_step(
            state.subsampling, features.astype(self.width.dtype), length
        )
        received = extend(state.waiting, self._scaled(x), count)
        whole = chunking.complete(received.count)
        ready = jnp.where(ended, chunking.count(received.count), whole)
        used = jnp.where(ended, received.count, whole * chunking.chunk)
        progress = _run_chunks(self._layers(shared), state, received, ready, chunking)
        state = StreamingState(
            subsampling=convolved,
            waiting=drop(received, used, chunking.own - 1),
            left=progress.left,
            before=progress.before,
        )
        new = init_stream(self.speech, self.width, features.shape[-1], len(length))
        return _choose(ended, new, state), zero_padding(self.norm(progress.states), used), used

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
        chunking = chunking_of(self.speech)
        stacks = [stack.unbind() for stack in self._stacks(shared)]
        ends = np.cumsum([stack.layers for stack, _ in stacks])

        def run(x: Array, left: Past, lengths: Array, before: Array) -> tuple[Array, Past]:
            view, parts = self._view(lengths, before, 1), []
            for (stack, variables), end in zip(stacks, ends, strict=True):
                part = jax.tree.map(lambda a: a[:, end - stack.layers : end], left)  # noqa: B023
                given = (x, part, view, chunking)
                x, part = stack.apply(variables, *given, train=False, method="chunked")
                parts.append(part)
            return x, jax.tree.map(lambda *part: jnp.concatenate(part, 1), *parts)

        return run


def _run_chunks(
    layers: Layers, state: StreamingState, received: Buffer, ready: Array, chunking: Chunking
) -> _Progress:
    """Run the first `ready` [B] chunks of each stream, as many turns as the busiest needs."""
    chunks = chunking.count(received.vectors.shape[1])
    missing = chunks * chunking.chunk + chunking.right - received.vectors.shape[1]
    vectors = jnp.pad(received.vectors, [(0, 0), (0, missing), (0, 0)])

    def advance(so_far: _Progress) -> _Progress:
        start, real = so_far.done * chunking.chunk, so_far.done < ready
        x = jax.lax.dynamic_slice_in_dim(vectors, start, chunking.own, 1)[:, None]
        x, left = layers(x, so_far.left, received.count - start, so_far.before)
        main = join_chunks(x, chunking)
        before = jnp.minimum(so_far.before + chunking.chunk, chunking.left)
        return _Progress(
            done=so_far.done + 1,
            left=_choose(real, left, so_far.left),
            before=jnp.where(real, before, so_far.before),
            states=jax.lax.dynamic_update_slice_in_dim(so_far.states, main, start, 1),
        )

    start = _Progress(
        done=jnp.int32(0),
        left=state.left,
        before=state.before,
        states=jnp.zeros_like(vectors[:, : chunks * chunking.chunk]),
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
