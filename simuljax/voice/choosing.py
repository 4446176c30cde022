"""Who speaks a language."""

from simuljax.voice.base import Voice, VoiceError
from simuljax.voice.espeak import Espeak
from simuljax.voice.hibari import Hibari

# Languages that Whisper and others name otherwise than eSpeak NG.
_IN_ESPEAK = {"zh": "cmn", "no": "nb", "nn": "nb"}


def voice_for(language: str) -> Voice:
    """Hibari for English, eSpeak NG for any other language it has; codes such as de or pt-br.

    A region that eSpeak NG does not know (de-at) is left out.
    """
    code = language.strip().lower().replace("_", "-")
    plain = code.split("-")[0]
    if plain == "en":
        return Hibari()
    try:
        return Espeak(_IN_ESPEAK.get(code, code))
    except VoiceError:
        if plain == code:
            raise
        return voice_for(plain)
