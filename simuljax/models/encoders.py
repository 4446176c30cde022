"""Speech and text encoders, and the layers they share.

transformer     convolutions, then Transformer layers
s_transformer   the spectrogram as an image, then layers to which near states count more
                (Di Gangi et al. 2019), which Ma et al. 2020 build on
conformer       convolutions, then Conformer layers (Gulati et al. 2020), as in Papi et al. 2022
vgg_blstm       Nguyen et al. 2021, after Watanabe et al. 2018
whisper         Whisper's encoder (Radford et al. 2022), then Transformer layers
streaming, streaming_whisper  over chunks: `simuljax.models.streaming`
"""

import functools
from collections.abc import Callable
from typing import Any, Protocol

import flax.linen as nn
import flax.struct
import jax.numpy as jnp
from jax import Array

from simuljax.config.fields import ConfigError
from simuljax.config.loading import load_object
from simuljax.config.model import SpeechConfig, TextConfig, Width
from simuljax.models.whisper.config import PUBLISHED, Config
from simuljax.models.whisper.model import Encoder as WhisperEncoder
from simuljax.nn.attention import Attention2D, Past, View, convolution, distance_penalty
from simuljax.nn.chunked import Chunking, ChunkView, chunked_layers
from simuljax.nn.conformer import ConformerLayer, Surroundings, surroundings
from simuljax.nn.layers import (
    BatchNorm,
    Dropout,
    dense,
    embed_positions,
    embedding,
    layer_norm,
    real,
    scan_layers,
    zero_padding,
)
from simuljax.nn.recurrent import BidirectionalLSTM
from simuljax.nn.subsampling import VGG, ConvSubsampling, state_count
from simuljax.nn.transformer import EncoderLayer


@flax.struct.dataclass
class Encoded:
    """Encoder states, 0 where padded."""

    states: Array  # [B, K, D]
    lengths: Array  # int32 [B]
    ctc: Array | None = None  # [B, K, V + 1]: logits, the blank last
    words: Array | None = None  # int32 [B, K]: count by the CTC head so far, where asked for


class OwnEncoder(Protocol):
    """An encoder of your own: a Flax module with these fields, named as "file.py:Class".

    It returns one state for every 4 frames of 10 ms, rounded up, and none may depend on padding.
    `shared` holds the layers that are shared with the text encoder, or None. Streams encode all
    speech so far again at every READ.
    """

    speech: SpeechConfig
    width: Width
    ctc_classes: int  # source vocabulary and blank, for `Encoded.ctc`

    def __call__(
        self, features: Array, lengths: Array, shared: "Stack | None", *, train: bool
    ) -> Encoded:
        """Encode normalised features [B, F, D]."""
        ...


@functools.cache
def load_encoder(reference: str) -> Callable[..., nn.Module]:
    """Return the class of a user's encoder; the same object for the same name."""
    found = load_object(reference)
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise ConfigError(f"speech.kind is {reference!r}; it must be a class of flax.linen.Module")
    return found


class Stack(nn.Module):
    """Transformer layers over a whole sequence."""

    width: Width
    layers: int

    def setup(self) -> None:
        self.layer = EncoderLayer(self.width)

    def __call__(self, x: Array, view: View | Surroundings, *, train: bool) -> Array:
        if self.layers == 0:
            return x

        def body(layer: Any, x: Array, _: None) -> tuple[Array, None]:
            return layer(x, view, train=train), None

        return scan_layers(self.layer, self.layers, body, x, unroll=self.width.unroll)[0]

    def chunked(
        self, x: Array, left: Past, view: ChunkView, chunking: Chunking, *, train: bool
    ) -> tuple[Array, Past]:
        """Run the same layers over chunks [B, n, chunk + right, D], given their left context."""
        given = (self.layer, self.layers, x, left, view, chunking)
        return chunked_layers(*given, train=train, unroll=self.width.unroll)


class ConformerStack(Stack):
    """Conformer layers over a whole sequence; its view is `Surroundings`."""

    kernel: int = 31
    axis: str | None = None

    def setup(self) -> None:
        self.layer = ConformerLayer(self.width, self.kernel, self.axis)


class SpeechEncoder(nn.Module):
    """A front end, then layers of its own; layers shared with the text encoder are passed in.

    Batch normalisation has running statistics: see `simuljax.nn.layers`. A Conformer layer ends
    with a normalisation, so that only shared layers need another. Whisper's encoder has positions.
    """

    speech: SpeechConfig
    width: Width
    ctc_classes: int
    axis: str | None = None  # the replicas of a training batch
    image_channels: int = 64  # of the S-Transformer's front end

    def setup(self) -> None:
        speech, width = self.speech, self.width
        own = speech.layers - speech.shared
        below = own if speech.ctc_after is None else speech.ctc_after
        if speech.kind == "s_transformer":
            self.front_end = SpectrogramFrontEnd(width, self.image_channels, self.axis)
        elif speech.is_whisper:
            self.whisper = WhisperEncoder(whisper_config(speech, width))
            self.reduction = dense(width.model, width)
        else:
            reach = "causal" if speech.kind == "streaming" else "centred"
            self.subsampling = ConvSubsampling(width, speech.channels, reach=reach)
        self.below, self.above = self._stack(below), self._stack(own - below)
        self.dropout = Dropout(width.dropout)
        if speech.kind != "conformer" or speech.shared:
            self.norm = layer_norm(width)
        if speech.ctc_after is not None:
            self.ctc = nn.Dense(self.ctc_classes, dtype=width.dtype)

    def _stack(self, layers: int) -> Stack:
        if self.speech.kind == "conformer":
            return ConformerStack(self.width, layers, self.speech.kernel, self.axis)
        return Stack(self.width, layers)

    def __call__(
        self, features: Array, lengths: Array, shared: Stack | None, *, train: bool
    ) -> Encoded:
        kind = self.speech.kind
        x, lengths = self._first(features, lengths, train=train)
        x = self.dropout(x, deterministic=not train)
        near = kind == "s_transformer" or (kind == "transformer" and self.speech.distance_penalty)
        view = View(lengths=lengths, bias=distance_penalty(x.shape[1]) if near else None)
        own = surroundings(lengths, x.shape[1], x.shape[2]) if kind == "conformer" else view
        x = self.below(x, own, train=train)
        ctc = None if self.speech.ctc_after is None else self.ctc(x).astype(jnp.float32)
        x = self.above(x, own, train=train)
        x = shared(x, view, train=train) if shared is not None else x
        x = self.norm(x) if kind != "conformer" or shared is not None else x
        return Encoded(states=zero_padding(x, lengths), lengths=lengths, ctc=ctc)

    def _first(self, features: Array, lengths: Array, *, train: bool) -> tuple[Array, Array]:
        """Return the input of the first layer, [B, ceil(F / 4), model]."""
        match self.speech.kind:
            case "whisper":
                states = self.whisper(whisper_floor(features, lengths), lengths)
                pairs = jnp.pad(states, [(0, 0), (0, states.shape[1] % 2), (0, 0)])
                pairs = pairs.reshape(len(pairs), -1, 2 * pairs.shape[-1])
                return self.reduction(pairs), state_count(lengths)
            case "s_transformer":
                given = (features.astype(self.width.dtype), lengths)
                x, lengths = self.front_end(*given, train=train)
                return embed_positions(x), lengths
            case kind:
                x, lengths = self.subsampling(features.astype(self.width.dtype), lengths)
                x = x * x.shape[-1] ** 0.5 if kind == "conformer" else embed_positions(x)
                return x, lengths


def whisper_config(speech: SpeechConfig, width: Width) -> Config:
    """Return the sizes of Whisper's encoder, in the precision of the model."""
    sizes = PUBLISHED[speech.size].dimensions
    return Config(dimensions=sizes, alignment_heads=(), dtype=width.dtype)


def whisper_floor(features: Array, lengths: Array) -> Array:
    """Raise values to 2 below the loudest real one: 8 decades, on the scale of the features."""
    mask = real(lengths, features.shape[1])[..., None]
    loudest = jnp.where(mask, features, -jnp.inf).max((1, 2), keepdims=True, initial=-jnp.inf)
    return jnp.maximum(features, loudest - 2)


class TextEncoder(nn.Module):
    """Embeddings, then layers of its own, then those shared with the speech encoder."""

    text: TextConfig
    own: int
    width: Width
    vocabulary: int

    def setup(self) -> None:
        self.embedding = embedding(self.vocabulary, self.width)
        self.stack = Stack(self.width, self.own)
        self.dropout = Dropout(self.width.dropout)
        self.norm = layer_norm(self.width)

    def __call__(
        self, tokens: Array, lengths: Array, shared: Stack | None, *, train: bool
    ) -> Encoded:
        x = self.dropout(embed_positions(self.embedding(tokens)), deterministic=not train)
        view = View(lengths=lengths, causal=self.text.direction == "unidirectional")
        x = self.stack(x, view, train=train)
        x = shared(x, view, train=train) if shared is not None else x
        return Encoded(states=zero_padding(self.norm(x), lengths), lengths=lengths)


class VGGBLSTMEncoder(nn.Module):
    """Two VGG blocks, bidirectional LSTMs of `width.hidden` units each way, tanh of a linear map.

    Dropout stands between LSTMs. There are no layers that a text encoder could share.
    """

    speech: SpeechConfig
    width: Width
    ctc_classes: int

    def setup(self) -> None:
        self.vgg = VGG(self.width, self.speech.channels)
        self.layers = [
            BidirectionalLSTM(self.width.hidden, self.width.dtype)
            for _ in range(self.speech.layers)
        ]
        self.dropout = Dropout(self.width.dropout)
        self.out = dense(self.width.model, self.width)
        if self.speech.ctc_after is not None:
            self.ctc = nn.Dense(self.ctc_classes, dtype=self.width.dtype)

    def __call__(
        self, features: Array, lengths: Array, shared: None = None, *, train: bool
    ) -> Encoded:
        x, lengths = self.vgg(features.astype(self.width.dtype), lengths)
        ctc = None
        for number, layer in enumerate(self.layers, 1):
            x = layer(x, lengths)
            if number == self.speech.ctc_after:
                ctc = self.ctc(x).astype(jnp.float32)
            if number < len(self.layers):
                x = self.dropout(x, deterministic=not train)
        states = zero_padding(jnp.tanh(self.out(x)), lengths)
        return Encoded(states=states, lengths=lengths, ctc=ctc)


class SpectrogramFrontEnd(nn.Module):
    """[B, F, features] -> [B, ceil(F / 4), model]; padding has no influence.

    Two convolutions of stride 2 in time and frequency, two blocks of 2D attention, a linear map.
    """

    width: Width
    channels: int = 64
    axis: str | None = None  # the replicas of a training batch

    @nn.compact
    def __call__(self, features: Array, lengths: Array, *, train: bool) -> tuple[Array, Array]:
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
