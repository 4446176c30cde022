"""Streaming speech encoders: chunks of any size give the states of the whole pass.

    frames -> causal convolutions -> states -> chunks with copies of what follows -> layers

A stream keeps what its next chunk needs: the last inputs of each convolution, the states that wait
for their chunk to be complete, and keys and values of the `left` states before it. None of it
grows, and every array has the batch first, so that one stream can take the place of another.

    frames -> floor -> two centred convolutions -> positions -> chunks -> Whisper's layers
           -> two states to one of 40 ms -> own and shared layers, as above

What the original Whisper takes from the whole window is causal here. The floor of the log-mel is 2
below the loudest frame so far. Positions are counted in the stream and start again after Whisper's
last, 30 s. Sizes of chunks are in states of 40 ms, and double for Whisper's of 20 ms. The copies of
the right context stay with their chunk through all layers. A stream is 4 frames later than with
causal convolutions, since a centred one waits for what it looks ahead to.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, TypeVar

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simuljax.config.model import SpeechConfig, Width
from simuljax.models.encoders import Encoded, SpeechEncoder, Stack, whisper_config
from simuljax.models.whisper.model import gelu
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
from simuljax.nn.layers import real, zero_padding
from simuljax.nn.subsampling import STRIDE, init_subsampling, state_count

Lefts = tuple[Past | None, Past]  # of Whisper's layers, and of all above them
Layers = Callable[[Array, Any, Array, Array], tuple[Array, Any]]
Frames = TypeVar("Frames", int, Array)
T = TypeVar("T")

RATE = 2  # Whisper's states to one of 40 ms
KERNEL = 3  # of Whisper's convolutions


@flax.struct.dataclass
class StreamingState:
    """The state of streams between steps."""

    subsampling: Any  # of the convolutions
    waiting: Buffer  # states whose chunk is not yet computed
    left: Past  # of every layer, shared ones last
    before: Array  # int32 [B]: how many states of `left` are real
    pretrained: Past | None = None  # left context of Whisper's layers


@flax.struct.dataclass
class FrontEndState:
    """The past of Whisper's floor, convolutions and positions."""

    frames: Buffer
    hidden: Buffer
    loudest: Array  # float32 [B]
    place: Array  # int32 [B]: position of the next state


def init_stream(speech: SpeechConfig, width: Width, features: int, batch: int) -> StreamingState:
    """Return the state of `batch` streams before their first frame."""
    chunking, before = chunking_of(speech), jnp.zeros(batch, jnp.int32)
    left = init_left(batch, speech.layers, chunking, width)
    if not speech.is_whisper:
        return StreamingState(
            subsampling=init_subsampling(batch, features, speech.channels, width),
            waiting=init_buffer(batch, chunking.own - 1, width.model, width.dtype),
            left=left,
            before=before,
        )
    size, past = whisper_config(speech, width).dimensions.width, KERNEL - 1
    return StreamingState(
        subsampling=FrontEndState(
            frames=init_buffer(batch, past, features, width.dtype, zeros=1),
            hidden=init_buffer(batch, past, size, width.dtype, zeros=1),
            loudest=jnp.full(batch, -jnp.inf, jnp.float32),
            place=before,
        ),
        waiting=init_buffer(batch, chunking.times(RATE).own - 1, size, width.dtype),
        left=left,
        before=before,
        pretrained=init_whisper_left(speech, width, batch),
    )


def init_whisper_left(speech: SpeechConfig, width: Width, batch: int) -> Past:
    """Return the left context of Whisper's layers at the start of an utterance."""
    sizes = whisper_config(speech, width).dimensions
    own = Width(model=sizes.width, heads=sizes.head_count, dtype=width.dtype)
    return init_left(batch, sizes.audio_layers, chunking_of(speech).times(RATE), own)


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
    below the first (`_arrive`, `_lower`, `_chunks`).
    """

    rate: ClassVar[int] = 1

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
        length: Array,
        shared: Stack | None = None,
        *,
        ended: Array,
    ) -> tuple[StreamingState, Array, Array]:
        """Return state, states [B, S, D] and their count, after C frames, `length` of them real.

        S depends on C alone; states beyond the real ones are 0. They come a chunk at a time, once
        the states to its right are there. Where `ended`, nothing follows: the rest comes out, and
        the stream is as new, ready for another utterance.
        """
        chunking = self._arriving
        convolved, x, count = self._arrive(state.subsampling, features, length, ended)
        received = extend(state.waiting, x, count)
        whole = chunking.complete(received.count)
        ready = jnp.where(ended, chunking.count(received.count), whole)
        used = jnp.where(ended, received.count, whole * chunking.chunk)
        lefts, before, states = self._run_chunks(self._layers(shared), state, received, ready)
        state = StreamingState(
            subsampling=convolved,
            waiting=drop(received, used, chunking.own - 1),
            left=lefts[1],
            before=before,
            pretrained=lefts[0],
        )
        new = init_stream(self.speech, self.width, features.shape[-1], len(length))
        count = -(-used // self.rate)
        return _choose(ended, new, state), zero_padding(self.norm(states), count), count

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
    ) -> tuple[Lefts, Array, Array]:
        """Run the first `ready` [B] chunks of each stream, as many turns as the busiest needs.

        Return the left context after them, how much of it is real, and states [B, n chunk, D].
        """
        chunking, arriving = chunking_of(self.speech), self._arriving
        chunks = arriving.count(received.vectors.shape[1])
        missing = chunks * arriving.chunk + arriving.right - received.vectors.shape[1]
        vectors = jnp.pad(received.vectors, [(0, 0), (0, missing), (0, 0)])

        def advance(so_far: tuple[Array, Lefts, Array, Array]) -> tuple[Array, Lefts, Array, Array]:
            done, lefts, before, states = so_far
            start, is_ready = done * arriving.chunk, done < ready
            x = jax.lax.dynamic_slice_in_dim(vectors, start, arriving.own, 1)[:, None]
            x, new_lefts = layers(x, lefts, received.count - start, before)
            place, main = done * chunking.chunk, join_chunks(x, chunking)
            new_before = jnp.minimum(before + chunking.chunk, chunking.left)
            return (
                done + 1,
                _choose(is_ready, new_lefts, lefts),
                jnp.where(is_ready, new_before, before),
                jax.lax.dynamic_update_slice_in_dim(states, main, place, 1),
            )

        shape = (len(ready), chunks * chunking.chunk, self.width.model)
        none = jnp.zeros(shape, self.width.dtype)
        start = (jnp.int32(0), (state.pretrained, state.left), state.before, none)
        return jax.lax.while_loop(lambda so_far: so_far[0] < ready.max(), advance, start)[1:]


class StreamingWhisperEncoder(StreamingSpeechEncoder):
    """Whisper's encoder and layers above it, chunk-causal; parameters as of `whisper`."""

    rate: ClassVar[int] = RATE

    def _chunks(self, features: Array, lengths: Array, *, train: bool) -> Array:
        loudest = jnp.full(len(lengths), -jnp.inf, jnp.float32)
        floored, _ = floor_so_far(features, lengths, loudest)
        x, known = self.whisper.convolve(floored, lengths), self.whisper.positions
        times = -(-x.shape[1] // len(known))
        x = x + jnp.tile(known.astype(x.dtype), (times, 1))[: x.shape[1]]
        x = split_chunks(x, self._arriving)
        chunked = partial(self.whisper.chunked, unroll=self.width.unroll)
        left, before = init_whisper_left(self.speech, self.width, len(x)), jnp.zeros_like(lengths)
        chunking, states = chunking_of(self.speech), (lengths + 1) // 2
        x, _ = _reduced(chunked, self.reduction, chunking, x, left, states, before)
        return self.dropout(x, deterministic=not train)

    def _arrive(
        self, state: FrontEndState, features: Array, length: Array, ended: Array
    ) -> tuple[FrontEndState, Array, Array]:
        floored, loudest = floor_so_far(features, length, state.loudest)
        x, conv1, conv2 = floored.astype(self.width.dtype), self.whisper.conv1, self.whisper.conv2
        frames, x, count = _convolve(conv1, 1, state.frames, x, length, ended)
        hidden, x, count = _convolve(conv2, 2, state.hidden, x, count, ended)
        known = self.whisper.positions
        places = (state.place[:, None] + jnp.arange(x.shape[1])) % len(known)
        place = (state.place + count) % len(known)
        after = FrontEndState(frames=frames, hidden=hidden, loudest=loudest, place=place)
        return after, x + known[places].astype(x.dtype), count

    def _lower(self) -> Layers:
        (whisper, of_whisper), (reduction, own) = self.whisper.unbind(), self.reduction.unbind()
        unroll, chunking = self.width.unroll, chunking_of(self.speech)
        chunked = partial(whisper.apply, of_whisper, unroll=unroll, method="chunked")
        return partial(_reduced, chunked, partial(reduction.apply, own), chunking)


def _reduced(
    chunked: Callable[..., Any],
    reduction: Callable[..., Any],
    chunking: Chunking,
    x: Array,
    left: Past,
    lengths: Array,
    before: Array,
) -> tuple[Array, Past]:
    """Run Whisper's layers over chunks and join two of its states to one, [B, n, own, model].

    `lengths` [B] are in Whisper's states, `before` [B] and `chunking` in those of 40 ms.
    """
    arriving, chunks = chunking.times(RATE), x.shape[1]
    view = chunk_view(lengths, RATE * before, chunks, arriving, rotary=False)
    x, left = chunked(x, left, view, arriving)
    x = jnp.where(view.mask[:, :, arriving.left :, None], x, 0)
    return reduction(x.reshape(*x.shape[:2], chunking.own, -1)), left


def _convolve(
    convolution: nn.Conv, stride: int, past: Buffer, x: Array, length: Array, ended: Array
) -> tuple[Buffer, Array, Array]:
    """Return every output of a centred convolution whose inputs are there; zeros are beyond ends.

    The module pads by one on both sides, so its first output here is of no use.
    """
    x = jnp.pad(zero_padding(x, length), [(0, 0), (0, 1), (0, 0)])
    joined = extend(past, x, length + ended)
    count = jnp.maximum(0, 1 + (joined.count - KERNEL) // stride)
    y = convolution(jnp.pad(joined.vectors, [(0, 0), (stride - 1, 0), (0, 0)]))[:, 1:]
    return drop(joined, stride * count, KERNEL - 1), gelu(y), count


def floor_so_far(features: Array, lengths: Array, loudest: Array) -> tuple[Array, Array]:
    """Raise values to 2 below the loudest so far; return it too, [B], after these frames."""
    mask = real(lengths, features.shape[1])[..., None]
    of_frames = jnp.where(mask, features.astype(jnp.float32), -jnp.inf).max(-1)
    so_far = jnp.maximum(jax.lax.cummax(of_frames, axis=1), loudest[:, None])
    return jnp.maximum(features, so_far[..., None] - 2), so_far[:, -1]


def _choose(which: Array, new: T, old: T) -> T:
    """Select `new` for the streams where `which` [B], else `old`."""
    return jax.tree.map(
        lambda a, b: jnp.where(which.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, old
    )
