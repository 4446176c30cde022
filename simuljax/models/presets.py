"""The papers' models by name, and small ones for small corpora (sizes: docs/models.md).

Vocabulary sizes are left open (0): a run fills them in from its own vocabularies. What a preset
does not say is the default of `ModelConfig`, which is `dar`.
"""

from dataclasses import replace

from simuljax.config.model import (
    DecoderWidth,
    ModelConfig,
    Monotonic,
    PreDecision,
    SpeechConfig,
    TextConfig,
    Width,
)

OFFLINE = Monotonic(policy="offline")


def dar() -> ModelConfig:
    """Return Zaidi et al. 2022: 12 speech layers, the upper 6 tied to text; 6 decoder layers."""
    return ModelConfig()


def mma() -> ModelConfig:
    """Return Zaidi's baseline: the same speech branch without text."""
    return speech_only(dar())


def simul_mt() -> ModelConfig:
    """Return the text branch alone: simultaneous text translation, token by token."""
    return replace(dar(), speech=None, text=TextConfig(direction="unidirectional"))


def ma_conv_transformer() -> ModelConfig:
    """Return the public code behind Ma et al. 2020: 12 + 6 layers of width 256."""
    return ModelConfig(width=_width(256, 2048, 4), speech=SpeechConfig(shared=0), text=None)


def ma_s_transformer_base() -> ModelConfig:
    """Return the S-Transformer of Ma et al. 2020 (Di Gangi et al. 2019), base: 6 + 6 layers."""
    return _s_transformer(_width(256, 768, 4))


def ma_s_transformer_big() -> ModelConfig:
    """Return the S-Transformer, big."""
    return _s_transformer(_width(512, 1024, 8))


def papi_transformer() -> ModelConfig:
    """Return Papi et al. 2022: offline, 12 + 6 layers, CTC after the 8th."""
    return ModelConfig(
        width=_width(256, 2048, 4),
        speech=SpeechConfig(shared=0, ctc_after=8),
        text=None,
        monotonic=OFFLINE,
        output="own",
    )


def papi_conformer() -> ModelConfig:
    """Return the same with Conformer layers (kernel 31); the decoder has 8 heads."""
    return replace(
        papi_transformer(),
        width=_width(256, 1024, 4),
        speech=SpeechConfig(kind="conformer", shared=0, ctc_after=8),
        decoder_width=DecoderWidth(hidden=2048, heads=8),
    )


def papi_teacher() -> ModelConfig:
    """Return the text Transformer used as distillation teacher, 6 + 6 layers."""
    return ModelConfig(width=_width(1024, 4096, 16), speech=None, monotonic=OFFLINE)


def small_conformer() -> ModelConfig:
    """Return `papi_conformer` for tens of hours of speech: 8 + 3 layers, CTC after the 6th."""
    return replace(
        papi_conformer(),
        speech=SpeechConfig(kind="conformer", layers=8, shared=0, channels=512, ctc_after=6),
        decoder_layers=3,
        decoder_width=None,
        output="tied",
    )


def nguyen() -> ModelConfig:
    """Return Nguyen et al. 2021: VGG, 5 x 1024 BLSTM, 2 x 1024 LSTM, as in ESPnet's recipe.

    Features are filterbanks with pitch.
    """
    return ModelConfig(
        features=83,
        width=Width(model=1024, hidden=1024, heads=1, dropout=0.3),
        speech=SpeechConfig(kind="vgg_blstm", layers=5, shared=0, channels=64),
        text=None,
        decoder="lstm",
        decoder_layers=2,
        decoder_width=DecoderWidth(hidden=1024, heads=1, dropout=0.0),
        monotonic=OFFLINE,
        output="own",
    )


def small_blstm() -> ModelConfig:
    """Return `nguyen` for tens of hours: 3 x 256 BLSTM, 1 x 256 LSTM; without pitch."""
    return replace(
        nguyen(),
        features=80,
        width=Width(model=256, hidden=256, heads=1, dropout=0.2),
        speech=SpeechConfig(kind="vgg_blstm", layers=3, shared=0, channels=32),
        decoder_layers=1,
        decoder_width=None,
    )


def caat() -> ModelConfig:
    """Return CAAT (Liu et al. 2021) in Papi's sizes: 12 streaming, 6 predictor, 6 joiner layers."""
    return ModelConfig(
        width=_width(256, 2048, 4),
        speech=SpeechConfig(kind="streaming", shared=0),
        text=None,
        decoder="caat",
        predecision=PreDecision(step_ms=1280),  # groups of 32 states
        monotonic=OFFLINE,
    )


def small_caat() -> ModelConfig:
    """Return `caat` for tens of hours: 6 streaming, 3 predictor, 3 joiner layers."""
    return replace(
        caat(),
        width=_width(256, 1024, 4),
        speech=SpeechConfig(kind="streaming", layers=6, shared=0, channels=512),
        decoder_layers=3,
        joiner_layers=3,
        predecision=PreDecision(step_ms=640),
    )


def small() -> ModelConfig:
    """Return a joint translator for tens of hours of speech: 6 speech layers, 3 of them tied.

    Transformer encoders of speech and text; learned heads, which decide every 280 ms of speech.
    """
    return ModelConfig(
        width=_width(256, 1024, 4),
        speech=SpeechConfig(layers=6, shared=3, channels=512),
        text=TextConfig(layers=3),
        decoder_layers=3,
    )


def tiny() -> ModelConfig:
    """Return a joint translator that a laptop trains in minutes."""
    return ModelConfig(
        width=_width(128, 256, 2),
        speech=SpeechConfig(layers=3, shared=1, channels=128),
        text=TextConfig(layers=1),
        decoder_layers=1,
    )


def speech_only(joint: ModelConfig) -> ModelConfig:
    """Remove the text encoder; tied layers become the speech encoder's own."""
    assert joint.speech is not None
    return replace(joint, speech=replace(joint.speech, shared=0), text=None)


def text_only(joint: ModelConfig) -> ModelConfig:
    """Remove the speech encoder."""
    return replace(joint, speech=None)


def offline(model: ModelConfig) -> ModelConfig:
    """Replace monotonic attention by attention to the whole source: a teacher, or a recogniser."""
    return replace(model, monotonic=OFFLINE)


def recogniser(model: ModelConfig) -> ModelConfig:
    """Return the offline model with a CTC head on top of the speech encoder's own layers."""
    assert model.speech is not None
    speech = replace(model.speech, ctc_after=model.speech.layers - model.speech.shared)
    return replace(offline(model), speech=speech)


def _s_transformer(width: Width) -> ModelConfig:
    speech = SpeechConfig(kind="s_transformer", layers=6, shared=0, distance_penalty=True)
    return ModelConfig(width=width, speech=speech, text=None)


def _width(model: int, hidden: int, heads: int) -> Width:
    return Width(model=model, hidden=hidden, heads=heads)
