"""Speech for corpora that have none: text in; 16 kHz audio, word and phoneme times out."""

import functools
import importlib.util

import numpy as np

from data_pipelines.synthesis import espeak
from data_pipelines.synthesis.hibari import Hibari
from data_pipelines.synthesis.speech import SAMPLE_RATE, Speech
from data_pipelines.synthesis.voices import Part, Voices
from data_pipelines.utterance import CorpusError, Skip, Utterance, Voice
from simuljax.voice.base import VoiceError

__all__ = ["SAMPLE_RATE", "Hibari", "Part", "Speech", "Synthesiser", "Voices", "check_engine"]
_PACKAGES = {"espeak": "espeakng_loader", "hibari": "hibari"}


def check_engine(engine: str) -> None:
    """Raise CorpusError if the package of a synthesiser is not installed."""
    if importlib.util.find_spec(_PACKAGES[engine]) is None:
        raise CorpusError(
            f"the voices of {engine} need a package that is not installed:"
            " pip install 'simuljax[speech]'"
        )


class Synthesiser:
    """Both engines; hibari is loaded when first needed.

    The result depends on the transcript and the voice alone: not on earlier utterances, nor
    on the process, so a list may be cut into shards anywhere.
    """

    @functools.cached_property
    def _hibari(self) -> Hibari:
        return Hibari()

    def speak(self, utterance: Utterance, voice: Voice) -> Speech | Skip:
        """Say the transcript in this voice, or return the reason why it failed."""
        if voice.engine not in _PACKAGES:
            raise ValueError(f"the engine is {voice.engine!r}; it must be espeak or hibari")
        check_engine(voice.engine)
        speak = espeak.speak if voice.engine == "espeak" else self._hibari.speak
        try:
            speech = speak(utterance.transcript, voice)
            _check(speech, utterance.transcript)
        except VoiceError as error:
            return Skip(id=utterance.id, reason="synthesis failed", detail=str(error))
        return speech


def _check(speech: Speech, transcript: str) -> None:
    if not np.any(speech.samples):
        raise VoiceError(f"{transcript!r} came out silent: use another voice")
    if [word.text for word in speech.words] != transcript.split():
        raise VoiceError(f"{transcript!r} came out with words {speech.words}: use another voice")
    times = [at for word in speech.words for at in (word.start_ms, word.end_ms)]
    if not np.all(np.diff([0.0, *times, speech.duration_ms]) >= -1e-6):
        raise VoiceError(f"{transcript!r} came out with word times out of order: {times}")
