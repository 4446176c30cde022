"""Speech out: text in, int16 mono sound out, and the order in which sound is heard.

    text -> samples        hibari: one natural English voice; espeak: the other languages;
                           remote: a server that speaks ElevenLabs' protocol
    samples -> one track   timeline: nothing overlaps, and who is late speaks faster
    samples -> loudspeaker player: as they come, if there is a sound card

A text without anything to say (empty, or punctuation alone) is an array of no samples, so that a
stream of words can be spoken piece by piece. A text with letters or digits of which the engine can
say none is a `VoiceError`. Letters it does not know among others that it does are left out, or
read in its own way. The same text, voice and speed give the same samples (of a server, nobody
knows).
"""

from simuljax.voice.base import Voice, VoiceError
from simuljax.voice.choosing import voice_for
from simuljax.voice.espeak import Espeak
from simuljax.voice.hibari import Hibari
from simuljax.voice.player import Player, play
from simuljax.voice.remote import Http
from simuljax.voice.timeline import Placed, Timeline

__all__ = [
    "Espeak",
    "Hibari",
    "Http",
    "Placed",
    "Player",
    "Timeline",
    "Voice",
    "VoiceError",
    "play",
    "voice_for",
]
