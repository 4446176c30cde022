"""Whisper's encoder over chunks: a stream gives the states of the whole pass.

    frames -> floor -> two centred convolutions -> positions -> chunks -> Whisper's layers
           -> two states to one of 40 ms -> own and shared layers, as in `streaming`

What the original takes from the whole window is causal here. The floor of the log-mel is 2 below
the loudest frame so far. Positions are counted in the stream and start again after Whisper's last,
30 s. Sizes of chunks are in states of 40 ms, and double for Whisper's of 20 ms. The copies of the
right context stay with their chunk through all layers. A stream is 4 frames later than the causal
convolutions of `streaming`, since a centred one waits for what it looks ahead to.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jax import Array

from simuljax.config.model import SpeechConfig, Width
from simuljax.models.encoders import whisper_config
from simuljax.models.streaming import Layers, StreamingSpeechEncoder, StreamingState, chunking_of
from simuljax.models.whisper.model import gelu
from simuljax.nn.attention import Past
from simuljax.nn.chunked import (
    Buffer,
    Chunking,
    chunk_view,
    drop,
    extend,
    init_buffer,
    init_left,
    split_chunks,
)
from simuljax.nn.layers import real, zero_padding

RATE = 2  # Whisper's states to one of 40 ms
KERNEL = 3  # of both convolutions


@flax.struct.dataclass
class FrontEndState:
    """The past of floor, convolutions and positions."""

    frames: Buffer
    hidden: Buffer
    loudest: Array  # float32 [B]
    place: Array  # int32 [B]: position of the next state


def whisper_width(speech: SpeechConfig, width: Width) -> Width:
    """Return the sizes of Whisper's layers, in the precision of the model."""
    sizes = whisper_config(speech, width).dimensions
    return Width(model=sizes.width, heads=sizes.head_count, dtype=width.dtype)


def no_left(speech: SpeechConfig, width: Width, batch: int) -> Past:
    """Return the left context of Whisper's layers at the start of an utterance."""
    layers = whisper_config(speech, width).dimensions.audio_layers
    return init_left(batch, layers, chunking_of(speech).times(RATE), whisper_width(speech, width))


def floor_so_far(features: Array, lengths: Array, loudest: Array) -> tuple[Array, Array]:
    """Raise values to 2 below the loudest so far; return it too, [B], after these frames."""
    mask = real(lengths, features.shape[1])[..., None]
    of_frames = jnp.where(mask, features.astype(jnp.float32), -jnp.inf).max(-1)
    so_far = jnp.maximum(jax.lax.cummax(of_frames, axis=1), loudest[:, None])
    return jnp.maximum(features, so_far[..., None] - 2), so_far[:, -1]


class StreamingWhisperEncoder(StreamingSpeechEncoder):
    """Whisper's encoder and layers above it, chunk-causal; parameters as of `whisper`."""

    rate: ClassVar[int] = RATE

    @staticmethod
    def init_stream(
        speech: SpeechConfig, width: Width, features: int, batch: int
    ) -> StreamingState:
        """Return the state of `batch` streams before their first frame."""
        chunking, own = chunking_of(speech), whisper_width(speech, width)
        past, none = KERNEL - 1, jnp.zeros(batch, jnp.int32)
        front_end = FrontEndState(
            frames=init_buffer(batch, past, features, width.dtype, zeros=1),
            hidden=init_buffer(batch, past, own.model, width.dtype, zeros=1),
            loudest=jnp.full(batch, -jnp.inf, jnp.float32),
            place=none,
        )
        return StreamingState(
            subsampling=front_end,
            waiting=init_buffer(batch, chunking.times(RATE).own - 1, own.model, width.dtype),
            left=init_left(batch, speech.layers, chunking, width),
            before=none,
            pretrained=no_left(speech, width, batch),
        )

    def _chunks(self, features: Array, lengths: Array, *, train: bool) -> Array:
        loudest = jnp.full(len(lengths), -jnp.inf, jnp.float32)
        floored, _ = floor_so_far(features, lengths, loudest)
        x, known = self.whisper.convolve(floored, lengths), self.whisper.positions
        times = -(-x.shape[1] // len(known))
        x = x + jnp.tile(known.astype(x.dtype), (times, 1))[: x.shape[1]]
        x = split_chunks(x, self._arriving)
        chunked = partial(self.whisper.chunked, unroll=self.width.unroll)
        left, before = no_left(self.speech, self.width, len(x)), jnp.zeros_like(lengths)
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
