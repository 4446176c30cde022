"""Speech for corpora that have none: text in; 16 kHz audio, word and phoneme times out."""

import functools
import importlib.util

import numpy as np

from data_pipelines.synthesis import espeak
from data_pipelines.synthesis.hibari import Hibari
from data_pipelines.synthesis.speech import Speech
from data_pipelines.synthesis.voices import Part, Voices
from data_pipelines.utterance import CorpusError, Voice
from simuljax.voice.base import VoiceError

__all__ = ["Hibari", "Part", "Speech", "Voices", "check_engines", "synthesise"]
_PACKAGES = {"espeak": "espeakng_loader", "hibari": "hibari"}


def check_engines(engine: str) -> None:
    """Raise CorpusError if the package of an engine, or of `both`, is not installed."""
    for each in {"both": (*_PACKAGES,), "none": ()}.get(engine, (engine,)):
        if importlib.util.find_spec(_PACKAGES[each]) is None:
            raise CorpusError(
                f"the voices of {each} need a package that is not installed:"
                " pip install 'simuljax[speech]'"
            )


def synthesise(text: str, voice: Voice) -> Speech:
    """Say a text; raise VoiceError where the engine fails.

    The result depends on the text and the voice alone: not on earlier texts, nor on the process,
    so a list may be cut into shards anywhere.
    """
    if voice.engine not in _PACKAGES:
        raise ValueError(f"the engine is {voice.engine!r}; it must be espeak or hibari")
    check_engines(voice.engine)
    speech = (espeak.speak if voice.engine == "espeak" else _hibari().speak)(text, voice)
    _check(speech, text)
    return speech


@functools.cache
def _hibari() -> Hibari:
    return Hibari()


def _check(speech: Speech, transcript: str) -> None:
    if not np.any(speech.samples):
        raise VoiceError(f"{transcript!r} came out silent: use another voice")
    if [word.text for word in speech.words] != transcript.split():
        raise VoiceError(f"{transcript!r} came out with words {speech.words}: use another voice")
    times = [at for word in speech.words for at in (word.start_ms, word.end_ms)]
    if not np.all(np.diff([0.0, *times, speech.duration_ms]) >= -1e-6):
        raise VoiceError(f"{transcript!r} came out with word times out of order: {times}")
