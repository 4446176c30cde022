"""eSpeak NG in this process: a hundred languages and voices, with times of words and phonemes.

The same text and voice always give the same samples: the engine's noise, which it seeds by the
clock, gets a fixed seed, and its library is loaded anew for each utterance.
"""

import ctypes
import functools
import glob
import re
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Int16

from simuljax.text.phonemes import RATE, data_path, fresh_library
from simuljax.voice.base import VoiceError, check_speed, no_sound, shown

PLAIN_RATE, PLAIN_PITCH = 175, 50  # the defaults: words per minute, and pitch

# Names as in the engine's speak_lib.h.
WORD, PHONEME = 1, 7
_CHARS_UTF8, _POS_CHARACTER = 1, 1
_RATE, _PITCH = 1, 3


class Espeak:
    """A language of eSpeak NG, with one of its `variants`, at speeds from 0.5 to 2.5."""

    rate = RATE

    def __init__(self, language: str = "en", variant: str | None = None):
        self.language, self.variant = language, variant or ""
        self.name = f"espeak {language}" + (f"+{variant}" if variant else "")
        with fresh_library() as library:
            _set_voice(library, self.language, self.variant)

    def speak(self, text: str, *, speed: float = 1.0) -> Int16[np.ndarray, " N"]:
        """Return the text as sound; markup and control characters in it have no effect."""
        check_speed(speed, 0.5, 2.5, "eSpeak")
        pace = round(PLAIN_RATE * speed)
        result = utter(text, self.language, self.variant, words_per_minute=pace)
        if not any(event.kind == PHONEME and event.name for event in result.events):
            return no_sound(text, self.name, "spell it out, or use a voice of its language")
        return result.samples


class Event(NamedTuple):
    """The start of a word or a phoneme."""

    kind: int  # WORD or PHONEME
    position: int  # of the word, in characters of the text
    sample: int
    name: str  # of the phoneme; a pause has none


@dataclass(kw_only=True)
class Synthesis:
    """The sound and the events of one utterance."""

    blocks: list[Int16[np.ndarray, "block"]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    @property
    def samples(self) -> Int16[np.ndarray, " N"]:
        """Return all of the sound, at 22,050 Hz."""
        return np.concatenate(self.blocks) if self.blocks else np.zeros(0, np.int16)

    def receive(self, wave, count: int, events) -> int:
        """Keep one block; return 0, which tells the engine to go on."""
        if wave and count > 0:
            self.blocks.append(np.ctypeslib.as_array(wave, (count,)).copy())
        i = 0
        while events[i].type:
            event = events[i]
            if event.type in (WORD, PHONEME):
                name = event.id.string.decode(errors="ignore") if event.type == PHONEME else ""
                self.events.append(Event(event.type, event.text_position - 1, event.sample, name))
            i += 1
        return 0


def utter(
    text: str,
    language: str,
    variant: str = "",
    *,
    words_per_minute: int = PLAIN_RATE,
    pitch: int = PLAIN_PITCH,
) -> Synthesis:
    """Synthesise one utterance."""
    result = Synthesis()
    # A control character can begin a command to the engine; a space in its place keeps the count.
    encoded = re.sub(r"[\x00-\x1f\x7f]", " ", text).encode() + b"\0"
    with fresh_library() as library:
        _set_voice(library, language, variant)
        library.espeak_SetParameter(_RATE, words_per_minute, 0)
        library.espeak_SetParameter(_PITCH, pitch, 0)
        callback = _Callback(result.receive)
        library.espeak_SetSynthCallback(callback)
        library.espeak_ng_SetRandSeed(ctypes.c_long(1))
        ctypes.CDLL(None).srand(1)  # the Klatt voices draw theirs from the C library
        size = ctypes.c_size_t(len(encoded))
        if library.espeak_Synth(encoded, size, 0, _POS_CHARACTER, 0, _CHARS_UTF8, None, None):
            raise VoiceError(f"eSpeak cannot synthesise {shown(text)}")
    return result


@functools.cache
def variants() -> tuple[str, ...]:
    """Return the names of the voices that any language can be spoken with, sorted."""
    folder = data_path() / "voices" / "!v"
    return tuple(sorted(file.name for file in folder.iterdir()))


def _set_voice(library: ctypes.CDLL, language: str, variant: str) -> None:
    if variant and variant not in variants():
        raise VoiceError(f"eSpeak has no variant {variant!r}; it has {', '.join(variants())}")
    name = _language_file(language) + (f"+{variant}" if variant else "")
    if library.espeak_SetVoiceByName(name.encode()):
        raise VoiceError(
            f"eSpeak has no language {language!r}: give a code such as en, en-us, de or fr"
        )


@functools.cache
def _language_file(language: str) -> str:
    """Return `gmw/en` for `en`: given a file, the engine does not search all voices."""
    root = data_path() / "lang"
    files = [file for file in root.glob(f"*/{glob.escape(language)}") if file.is_file()]
    return files[0].relative_to(root).as_posix() if files else language


class _Id(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),  # in characters, not bytes, and from 1
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _Id),
    )


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)
