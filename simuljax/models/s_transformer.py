"""The S-Transformer's speech encoder (Di Gangi et al. 2019), which Ma et al. 2020 build on.

Convolutions and attention treat the spectrogram as an image, then Transformer layers see a
sequence of states in which near ones count more.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from simuljax.config.model import SpeechConfig, Width
from simuljax.models.encoders import Encoded, Stack
from simuljax.nn.attention import View, distance_penalty
from simuljax.nn.attention_2d import Attention2D, convolution
from simuljax.nn.batch_norm import BatchNorm
from simuljax.nn.layers import Dropout, dense, embed_positions, layer_norm, zero_padding


class SpectrogramFrontEnd(nn.Module):
    """[B, F, features] -> [B, ceil(F / 4), model]; padding has no influence.

    Two convolutions of stride 2 in time and frequency, two blocks of 2D attention, a linear map.
    """

    width: Width
    channels: int = 64
    axis: str | None = None  # the replicas of a training batch

    @nn.compact
    def __call__(
        self, features: jax.Array, lengths: jax.Array, *, train: bool
    ) -> tuple[jax.Array, jax.Array]:
        x = features[..., None]
        for layer in range(2):
            conv = convolution(self.channels, self.width, stride=2, name=f"conv{layer}")
            norm = BatchNorm(self.width.dtype, self.axis, name=f"norm{layer}")
            x, lengths = nn.relu(conv(zero_padding(x, lengths))), (lengths + 1) // 2
            x = norm(x, lengths, train=train)
        for block in range(2):
            attention = Attention2D(self.width, axis=self.axis, name=f"attention{block}")
            x = attention(x, lengths, train=train)
        x = dense(self.width.model, self.width, name="linear")(x.reshape(*x.shape[:2], -1))
        return zero_padding(x, lengths), lengths


class STransformerEncoder(nn.Module):
    """The front end, then layers of its own; layers shared with the text encoder are passed in.

    Energies of self-attention are lowered by the logarithm of the distance. The front end's batch
    normalisation has running statistics: see `simuljax.nn.batch_norm`.
    """

    speech: SpeechConfig
    width: Width
    ctc_classes: int
    channels: int = 64
    axis: str | None = None  # the replicas of a training batch

    def setup(self) -> None:
        own = self.speech.layers - self.speech.shared
        below = own if self.speech.ctc_after is None else self.speech.ctc_after
        self.front_end = SpectrogramFrontEnd(self.width, self.channels, self.axis)
        self.below, self.above = Stack(self.width, below), Stack(self.width, own - below)
        self.dropout = Dropout(self.width.dropout)
        self.norm = layer_norm(self.width)
        if self.speech.ctc_after is not None:
            self.ctc = nn.Dense(self.ctc_classes, dtype=self.width.dtype)

    def __call__(
        self, features: jax.Array, lengths: jax.Array, shared: Stack | None, *, train: bool
    ) -> Encoded:
        x, lengths = self.front_end(features.astype(self.width.dtype), lengths, train=train)
        x = self.dropout(embed_positions(x), deterministic=not train)
        view = View(lengths=lengths, bias=distance_penalty(x.shape[1]))
        x = self.below(x, view, train=train)
        ctc = None if self.speech.ctc_after is None else self.ctc(x).astype(jnp.float32)
        x = self.above(x, view, train=train)
        x = shared(x, view, train=train) if shared is not None else x
        return Encoded(states=zero_padding(self.norm(x), lengths), lengths=lengths, ctc=ctc)
