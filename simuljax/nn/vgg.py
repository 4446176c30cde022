"""Two blocks of small convolutions, each halving time and frequency (Simonyan & Zisserman 2015)."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from simuljax.config.model import Width
from simuljax.nn.attention_2d import convolution
from simuljax.nn.layers import zero_padding


class VGG(nn.Module):
    """[B, F, D] -> [B, ceil(F / 4), ceil(D / 4) * 2 channels]; padding has no influence.

    A block is two 3 x 3 convolutions with ReLU and the maximum of every 2 x 2 places. The first has
    `channels`, the second twice as many. Four frames of 10 ms become one state of 40 ms.
    """

    width: Width
    channels: int = 64

    @nn.compact
    def __call__(self, features: jax.Array, lengths: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = zero_padding(features[..., None], lengths)
        for block in range(2):
            for layer in range(2):
                name = f"conv{block}_{layer}"
                x = convolution((1 + block) * self.channels, self.width, name=name)(x)
                x = zero_padding(nn.relu(x), lengths)
            x, lengths = pool(x), (lengths + 1) // 2
        return x.reshape(*x.shape[:2], -1), lengths


def pool(x: jax.Array) -> jax.Array:
    """Return the maximum of every 2 x 2 block of x >= 0 [B, F, D, C]; a missing row is zeros.

    Nothing is below 0 after ReLU, so zeros change no maximum, and neither does padding.
    """
    _, frames, dims, _ = x.shape
    x = jnp.pad(x, [(0, 0), (0, frames % 2), (0, dims % 2), (0, 0)])
    return nn.max_pool(x, (2, 2), strides=(2, 2))
