"""Speech synthesis: text in, int16 mono sound out.

    text -> samples         hibari: one natural English voice; espeak: other languages; remote: a
                            server with ElevenLabs' protocol
    samples -> one track    timeline: without overlaps; late speech is faster
    samples -> loudspeaker  player

A text without anything to pronounce (empty, or punctuation alone) gives no samples. A text with
letters or digits of which the engine can pronounce none is a `VoiceError`. Unknown letters among
known ones are left out or read in the engine's way. Local voices give the same samples for the
same text and speed.
"""

from simuljax.voice.base import Voice, VoiceError
from simuljax.voice.espeak import Espeak
from simuljax.voice.hibari import Hibari
from simuljax.voice.remote import Http
from simuljax.voice.timeline import Placed, Player, Timeline

__all__ = ["Espeak", "Hibari", "Http", "Placed", "Player", "Timeline", "Voice", "VoiceError"]
__all__ += ["voice_for"]

_ESPEAK_NAMES = {"zh": "cmn", "no": "nb", "nn": "nb"}  # where Whisper's code is another


def voice_for(language: str) -> Voice:
    """Return Hibari for English and eSpeak NG for other codes, such as de or pt-br.

    A region that eSpeak NG does not have (de-at) is ignored.
    """
    code = language.strip().lower().replace("_", "-")
    plain = code.split("-")[0]
    if plain == "en":
        return Hibari()
    try:
        return Espeak(_ESPEAK_NAMES.get(code, code))
    except VoiceError:
        if plain == code:
            raise
        return voice_for(plain)
