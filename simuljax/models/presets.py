"""The papers' models by name, and small ones for small corpora. docs/models.md lists their sizes.

Vocabulary sizes are left open (0): a run fills them in from its own vocabularies.
"""

import dataclasses

from simuljax.models.config import PreDecision, SpeechEncoder, TextEncoder, Translator
from simuljax.nn.layers import Width
from simuljax.nn.monotonic import Monotonic


def dar() -> Translator:
    """Zaidi et al. 2022: 12 speech layers, the upper 6 tied to the text encoder's, 6 to decode."""
    return Translator(
        width=Width(model=512, hidden=2048, heads=8, dropout=0.1),
        speech=SpeechEncoder(layers=12, shared=6),
        text=TextEncoder(layers=6),
        decoder_layers=6,
        predecision=PreDecision(kind="fixed", step_ms=280),
        monotonic=Monotonic(attention="lookback", policy="learnt"),
    )


def mma() -> Translator:
    """Zaidi's baseline: the same speech branch and no text."""
    return speech_only(dar())


def simul_mt() -> Translator:
    """The text branch alone: simultaneous translation of text, read token by token."""
    joint = dar()
    text = TextEncoder(layers=6, direction="unidirectional")
    return dataclasses.replace(joint, speech=None, text=text)


def ma_conv_transformer() -> Translator:
    """The public code behind Ma et al. 2020: 12 + 6 layers of width 256."""
    return Translator(
        width=Width(model=256, hidden=2048, heads=4, dropout=0.1),
        speech=SpeechEncoder(layers=12, shared=0),
        text=None,
        decoder_layers=6,
        predecision=PreDecision(kind="fixed", step_ms=280),
    )


def ma_s_transformer_base() -> Translator:
    """The architecture that Ma et al. 2020 name (Di Gangi et al. 2019), base: 6 + 6 layers."""
    width = Width(model=256, hidden=768, heads=4, dropout=0.1)
    return _s_transformer(width)


def ma_s_transformer_big() -> Translator:
    """The same in big."""
    return _s_transformer(Width(model=512, hidden=1024, heads=8, dropout=0.1))


def small() -> Translator:
    """A joint translator for a corpus of tens of hours: 6 speech layers, 3 of them tied."""
    return Translator(
        width=Width(model=256, hidden=1024, heads=4, dropout=0.1),
        speech=SpeechEncoder(layers=6, shared=3, channels=512),
        text=TextEncoder(layers=3),
        decoder_layers=3,
        predecision=PreDecision(kind="fixed", step_ms=280),
    )


def tiny() -> Translator:
    """A joint translator that a laptop trains in minutes."""
    return Translator(
        width=Width(model=128, hidden=256, heads=2, dropout=0.1),
        speech=SpeechEncoder(layers=3, shared=1, channels=128),
        text=TextEncoder(layers=1),
        decoder_layers=1,
        predecision=PreDecision(kind="fixed", step_ms=280),
    )


def speech_only(joint: Translator) -> Translator:
    """Without the text encoder; what was tied to it is the speech encoder's own."""
    assert joint.speech is not None
    speech = dataclasses.replace(joint.speech, shared=0)
    return dataclasses.replace(joint, speech=speech, text=None)


def text_only(joint: Translator) -> Translator:
    """Without the speech encoder."""
    return dataclasses.replace(joint, speech=None)


def offline(model: Translator) -> Translator:
    """The same with ordinary attention to the whole source: a teacher, or a recogniser."""
    return dataclasses.replace(model, monotonic=Monotonic(policy="offline"))


def recogniser(model: Translator) -> Translator:
    """The offline model with a CTC head on top of the speech encoder's own layers."""
    assert model.speech is not None
    speech = dataclasses.replace(model.speech, ctc_after=model.speech.layers - model.speech.shared)
    return dataclasses.replace(offline(model), speech=speech)


def _s_transformer(width: Width) -> Translator:
    return Translator(
        width=width,
        speech=SpeechEncoder(kind="s_transformer", layers=6, shared=0, distance_penalty=True),
        text=None,
        decoder_layers=6,
        predecision=PreDecision(kind="fixed", step_ms=280),
    )
