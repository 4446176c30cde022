"""Convolutions that make one state of 40 ms of four frames of 10 ms: over time, or VGG."""

from typing import Literal

import flax.linen as nn
import flax.struct
import jax.numpy as jnp
from jax import Array

from simuljax.config.model import STRIDE, Width
from simuljax.nn.attention import convolution
from simuljax.nn.chunked import Buffer, drop, extend, init_buffer
from simuljax.nn.layers import zero_padding

KERNEL = 5  # of each convolution
Reach = Literal["centred", "causal"]


def state_count(frames):
    """Return ceil(ceil(frames / 2) / 2), of an int or an array."""
    return (frames + STRIDE - 1) // STRIDE


@flax.struct.dataclass
class SubsamplingState:
    """The past inputs of each convolution, zeros before the first frame included."""

    frames: Buffer
    hidden: Buffer


def init_subsampling(batch: int, features: int, channels: int, width: Width) -> SubsamplingState:
    """Return the state before the first frame: zeros, as in the whole pass."""
    past, dtype = KERNEL - 1, width.dtype
    return SubsamplingState(
        frames=init_buffer(batch, past, features, dtype, zeros=past),
        hidden=init_buffer(batch, past, channels // 2, dtype, zeros=past),
    )


class ConvSubsampling(nn.Module):
    """[B, F, features] -> [B, ceil(F / 4), model]; gated linear units; padding has no influence.

    `centred` looks 2 frames ahead in each convolution, `causal` none, so that it can stream.
    """

    width: Width
    channels: int = 1024
    reach: Reach = "centred"

    def setup(self) -> None:
        shared = {"padding": "VALID", "kernel_init": nn.initializers.xavier_uniform()}
        self.conv0, self.conv1 = (
            nn.Conv(size, (KERNEL,), 2, dtype=self.width.dtype, **shared)
            for size in (self.channels, 2 * self.width.model)
        )

    def __call__(self, features: Array, lengths: Array) -> tuple[Array, Array]:
        x, reach = features, KERNEL - 1
        before = reach if self.reach == "causal" else reach // 2
        for layer in (self.conv0, self.conv1):
            x = jnp.pad(zero_padding(x, lengths), [(0, 0), (before, reach - before), (0, 0)])
            x, lengths = nn.glu(layer(x)), (lengths + 1) // 2
        return zero_padding(x, lengths), lengths

    def stream_step(
        self, state: SubsamplingState, features: Array, length: Array
    ) -> tuple[SubsamplingState, Array, Array]:
        """Return state, states [B, ceil(C / 4), model] and their real count, after `length` frames.

        State s exists as soon as frame 4 s does. Only `causal` convolutions can do this.
        """
        frames, x, length = self._convolve(self.conv0, state.frames, features, length)
        hidden, x, length = self._convolve(self.conv1, state.hidden, x, length)
        state = SubsamplingState(frames=frames, hidden=hidden)
        return state, zero_padding(x, length), length

    def _convolve(
        self, convolution: nn.Conv, past: Buffer, x: Array, length: Array
    ) -> tuple[Buffer, Array, Array]:
        """Return every output whose last input has arrived."""
        joined = extend(past, x, length)
        count = jnp.maximum(0, 1 + (joined.count - KERNEL) // 2)
        y = nn.glu(convolution(joined.vectors))
        return drop(joined, 2 * count, KERNEL - 1), y, count


class VGG(nn.Module):
    """[B, F, D] -> [B, ceil(F / 4), ceil(D / 4) * 2 channels]; padding has no influence.

    Two blocks (Simonyan & Zisserman 2015), the second with twice the `channels`: two 3 x 3
    convolutions with ReLU, then the maximum of every 2 x 2 places.
    """

    width: Width
    channels: int = 64

    @nn.compact
    def __call__(self, features: Array, lengths: Array) -> tuple[Array, Array]:
        x = zero_padding(features[..., None], lengths)
        for block in range(2):
            for layer in range(2):
                name = f"conv{block}_{layer}"
                x = convolution((1 + block) * self.channels, self.width, name=name)(x)
                x = zero_padding(nn.relu(x), lengths)
            # Nothing is below 0 after ReLU, so zeros change no maximum, and neither does padding.
            x = jnp.pad(x, [(0, 0), (0, x.shape[1] % 2), (0, x.shape[2] % 2), (0, 0)])
            x, lengths = nn.max_pool(x, (2, 2), strides=(2, 2)), (lengths + 1) // 2
        return x.reshape(*x.shape[:2], -1), lengths
