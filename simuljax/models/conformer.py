"""The Conformer's speech encoder (Gulati et al. 2020), as Papi et al. 2022 use it."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from simuljax.config.model import SpeechConfig, Width
from simuljax.models.encoders import Encoded, Stack
from simuljax.nn.attention import View
from simuljax.nn.conformer import ConformerLayer, Surroundings, surroundings
from simuljax.nn.layers import Dropout, layer_norm, scan_layers, zero_padding
from simuljax.nn.subsampling import ConvSubsampling


class ConformerStack(nn.Module):
    """Conformer layers over a whole sequence."""

    width: Width
    layers: int
    kernel: int
    axis: str | None

    def setup(self) -> None:
        self.layer = ConformerLayer(self.width, self.kernel, self.axis)

    def __call__(self, x: jax.Array, around: Surroundings, *, train: bool) -> jax.Array:
        if self.layers == 0:
            return x

        def body(layer: ConformerLayer, x: jax.Array, _: None) -> tuple[jax.Array, None]:
            return layer(x, around, train=train), None

        return scan_layers(self.layer, self.layers, body, x, unroll=self.width.unroll)[0]


class ConformerEncoder(nn.Module):
    """Convolutions, then Conformer layers; layers shared with the text encoder are passed in.

    A Conformer layer ends with a normalisation, so that only shared layers need another. Its batch
    normalisation has running statistics: see `simuljax.nn.batch_norm`.
    """

    speech: SpeechConfig
    width: Width
    ctc_classes: int
    axis: str | None = None  # the replicas of a training batch

    def setup(self) -> None:
        own = self.speech.layers - self.speech.shared
        below = own if self.speech.ctc_after is None else self.speech.ctc_after
        self.subsampling = ConvSubsampling(self.width, self.speech.channels)
        self.below, self.above = (
            ConformerStack(self.width, layers, self.speech.kernel, self.axis)
            for layers in (below, own - below)
        )
        self.dropout = Dropout(self.width.dropout)
        if self.speech.shared:
            self.norm = layer_norm(self.width)
        if self.speech.ctc_after is not None:
            self.ctc = nn.Dense(self.ctc_classes, dtype=self.width.dtype)

    def __call__(
        self, features: jax.Array, lengths: jax.Array, shared: Stack | None, *, train: bool
    ) -> Encoded:
        x, lengths = self.subsampling(features.astype(self.width.dtype), lengths)
        x = self.dropout(x * x.shape[-1] ** 0.5, deterministic=not train)
        around = surroundings(lengths, x.shape[1], x.shape[2])
        x = self.below(x, around, train=train)
        ctc = None if self.speech.ctc_after is None else self.ctc(x).astype(jnp.float32)
        x = self.above(x, around, train=train)
        if shared is not None:
            x = self.norm(shared(x, View(lengths=lengths), train=train))
        return Encoded(states=zero_padding(x, lengths), lengths=lengths, ctc=ctc)
