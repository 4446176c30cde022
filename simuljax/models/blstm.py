"""The VGG-BLSTM encoder (Nguyen et al. 2021, after Watanabe et al. 2018)."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from simuljax.config.model import SpeechConfig, Width
from simuljax.models.encoders import Encoded
from simuljax.nn.layers import Dropout, dense, zero_padding
from simuljax.nn.recurrent import BidirectionalLSTM
from simuljax.nn.vgg import VGG


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
        self, features: jax.Array, lengths: jax.Array, shared: None = None, *, train: bool
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
