"""The configuration of models, by the name it had before."""

from simuljax.config.model import (  # noqa: F401
    STRIDE,
    DecisionKind,
    Decoder,
    DecoderWidth,
    Encoder,
    ModelConfig,
    PreDecision,
    SpeechConfig,
    TextConfig,
)

SpeechEncoder, TextEncoder, Translator = SpeechConfig, TextConfig, ModelConfig
