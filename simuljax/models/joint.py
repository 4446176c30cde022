"""The joint translator (Zaidi et al. 2022): two encoders, one monotonic decoder.

    features -> speech encoder ---+
                                  +--> decision points --> decoder --> logits
    transcript -> text encoder ---+

The top layers of the speech encoder are those of the text encoder. The decoder is the same for
both branches.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from simuljax.config.model import ModelConfig, SpeechConfig
from simuljax.models.caat import TransducerDecoder
from simuljax.models.decoders import Decoded, Decoder, RecurrentDecoder
from simuljax.models.encoders import (
    Encoded,
    SpeechEncoder,
    Stack,
    TextEncoder,
    VGGBLSTMEncoder,
    load_encoder,
)
from simuljax.models.streaming import (
    StreamingSpeechEncoder,
    StreamingState,
    StreamingWhisperEncoder,
    init_stream,
)
from simuljax.nn.attention import Past
from simuljax.nn.layers import real
from simuljax.nn.monotonic import (
    Decisions,
    Source,
    at_triggers,
    every_state,
    fixed_windows,
    word_points,
)
from simuljax.nn.subsampling import STRIDE
from simuljax.ops import label_triggers


class JointModel(nn.Module):
    """The network; its methods are the ways to use it."""

    config: ModelConfig
    axis: str | None = None  # of the replicas that a batch is spread over, for BatchNorm

    def setup(self) -> None:
        c = self.config
        shared = c.speech.shared if c.speech else 0
        if shared:
            self.shared = Stack(c.width, shared)
        if c.speech:
            self.speech = self._speech_encoder(c.speech)
        if c.text:
            self.text = TextEncoder(c.text, c.text.layers - shared, c.width, c.source_vocabulary)
        kinds = {"monotonic": Decoder, "lstm": RecurrentDecoder, "caat": TransducerDecoder}
        self.decoder = kinds[c.decoder](c)
        if c.predecision.kind == "learnable":
            self.trigger = nn.Dense(1, dtype=jnp.float32)

    def _speech_encoder(self, speech: SpeechConfig) -> nn.Module:
        given = (speech, self.config.width, self.config.source_vocabulary + 1)
        match speech.kind:
            case "streaming":
                return StreamingSpeechEncoder(*given)
            case "streaming_whisper":
                return StreamingWhisperEncoder(*given)
            case "vgg_blstm":
                return VGGBLSTMEncoder(*given)
            case "transformer" | "s_transformer" | "conformer" | "whisper":
                return SpeechEncoder(*given, axis=self.axis)
            case _:
                return load_encoder(speech.kind)(*given)

    def encode_speech(self, features: Array, lengths: Array, *, train: bool) -> Encoded:
        """Encode normalised features [B, F, 80] into states of 40 ms."""
        assert self.config.speech is not None
        shared = self.shared if self.config.speech.shared else None
        return self.speech(features, lengths, shared, train=train)

    def init_speech_stream(self, batch: int) -> StreamingState:
        """Return the streaming encoder's state before any frame."""
        c = self.config
        if c.speech is None or not c.speech.is_incremental:
            kind = c.speech.kind if c.speech else None
            raise ValueError(
                f"the speech encoder is {kind!r}, which encodes all speech again at every READ; an "
                "incremental stream needs speech.kind='streaming' or 'streaming_whisper'"
            )
        return init_stream(c.speech, c.width, c.features, batch)

    def stream_speech(
        self, state: StreamingState, features: Array, length: Array, *, ended: Array
    ) -> tuple[StreamingState, Array, Array]:
        """Run `StreamingSpeechEncoder.stream_step`, through the shared layers too."""
        assert isinstance(self.speech, StreamingSpeechEncoder)
        shared = self.shared if self.speech.speech.shared else None
        return self.speech.stream_step(state, features, length, shared, ended=ended)

    def encode_text(self, tokens: Array, lengths: Array, *, train: bool) -> Encoded:
        """Encode transcript tokens [B, L] into states."""
        shared = self.shared if self.config.speech and self.config.speech.shared else None
        return self.text(tokens, lengths, shared, train=train)

    def speech_decisions(
        self,
        encoded: Encoded,
        labels: Array | None = None,
        *,
        ended: Array | None = None,
        train: bool = False,
    ) -> Decisions:
        """Return the decision points of speech; `labels` [B, F] of frames serve the oracles.

        At words, the last state triggers as the last only where the source has `ended` [B]; None:
        all have, as in training.
        """
        chosen, states, lengths = self.config.predecision, encoded.states, encoded.lengths
        match chosen.kind:
            case "every_state":
                return every_state(states, lengths)
            case "fixed":
                return fixed_windows(states, lengths, chosen.step, chosen.pooling)
            case "words" | "phonemes":
                if labels is None:
                    raise ValueError(
                        f"the model decides at {chosen.kind}: give their labels [B, F]"
                    )
                size = states.shape[1]
                of_states = labels[:, ::STRIDE][:, :size]
                of_states = jnp.pad(of_states, [(0, 0), (0, size + 1 - of_states.shape[1])])
                follows = lengths if ended is None else lengths + ~ended
                triggers = label_triggers(of_states, follows)[:, :size] & real(lengths, size)
                return at_triggers(states, triggers, chosen.pooling)
            case "ctc_words":
                if encoded.words is None:
                    raise ValueError(
                        "the model decides at the words of its CTC head: count them with simuljax."
                        "text.ctc_word_counts(encoded.ctc, ...) and give them as encoded.words"
                    )
                return word_points(states, lengths, encoded.words, chosen.pooling, ended)
            case "learnable":
                energy = self.trigger(states)[..., 0]
                if train and self.config.monotonic.noise:
                    noise = jax.random.normal(self.make_rng("noise"), energy.shape)
                    energy = energy + self.config.monotonic.noise * noise
                return every_state(states, lengths, gate=jax.nn.sigmoid(energy))

    def text_decisions(self, encoded: Encoded) -> Decisions:
        """Return the decision points of text: every token."""
        return every_state(encoded.states, encoded.lengths)

    def decode(
        self, prefix: Array, encoded: Encoded, decisions: Decisions, k: Any, *, train: bool
    ) -> Decoded:
        """Return logits after each position of the prefix [B, T]; `k` is wait-k's."""
        return self.decoder(prefix, [source_of(encoded, decisions, k)], train=train)[0]


def source_of(encoded: Encoded, decisions: Decisions, k: Array) -> Source:
    """Return the decoder's source; `k` is wait-k's."""
    return Source(states=encoded.states, lengths=encoded.lengths, decisions=decisions, k=k)


def init_past(c: ModelConfig, batch: int, room: int) -> Past:
    """Return an empty cache with room for this many targets: [layers, B, N, H, d]."""
    width, layers = c.width_of_decoder, c.decoder_layers
    heads, dims, dtype = width.heads, width.model // width.heads, width.dtype
    if c.decoder == "lstm":  # h and c of an LSTM
        heads, dims, dtype = 1, width.hidden, "float32"
    shape = (layers, batch, room, heads, dims)
    return Past(key=jnp.zeros(shape, dtype), value=jnp.zeros(shape, dtype))
