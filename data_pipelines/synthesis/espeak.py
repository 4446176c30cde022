"""eSpeak NG in this process: about a hundred voices, many languages, word and phoneme times.

The same text and voice give the same samples, whatever was said before: the engine's noise, which
it would seed by the clock, is seeded, and its library loaded anew for each utterance.
"""

import ctypes
import functools
import glob
import re
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from jaxtyping import Int16

from data_pipelines.synthesis.boundaries import Mark, spread_ties, word_spans
from data_pipelines.synthesis.speech import Speech, SynthesisError, to_16_khz
from data_pipelines.utterance import Span, Voice
from simuljax.text.espeak import RATE as ENGINE_RATE
from simuljax.text.espeak import data_path, fresh_library

UP, DOWN = 320, 441  # 16,000 / 22,050

# Names as in the engine's speak_lib.h.
CHARS_UTF8, POS_CHARACTER = 1, 1
RATE, PITCH = 1, 3
WORD, PHONEME = 1, 7


class _Id(ctypes.Union):
    _fields_ = (
        ("number", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("string", ctypes.c_char * 8),
    )


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


@dataclass(kw_only=True)
class _Heard:
    """What the engine reported. Of the events, (type, character, sample, phoneme's name)."""

    blocks: list[Int16[np.ndarray, "block"]] = field(default_factory=list)
    events: list[tuple[int, int, int, str]] = field(default_factory=list)

    def listen(self, wave, count: int, events) -> int:
        """Takes one block; 0 tells the engine to go on."""
        if wave and count > 0:
            self.blocks.append(np.ctypeslib.as_array(wave, (count,)).copy())
        i = 0
        while events[i].type:
            event = events[i]
            if event.type in (WORD, PHONEME):
                name = event.id.string.decode(errors="ignore") if event.type == PHONEME else ""
                self.events.append((event.type, event.text_position - 1, event.sample, name))
            i += 1
        return 0


def speak(text: str, voice: Voice) -> Speech:
    """Says the text; markup, phoneme codes and control characters in it are not obeyed."""
    _check(text, voice)
    with fresh_library() as library:
        heard = _synthesise(library, text, voice)
    samples = np.concatenate(heard.blocks) if heard.blocks else np.zeros(0, np.int16)
    marks, phonemes = _phonemes(heard, len(samples))
    if not phonemes:
        raise SynthesisError(f"eSpeak finds nothing to say in {_shown(text)}: leave it out")
    return Speech(
        samples=to_16_khz(samples, UP, DOWN),
        words=word_spans(text, marks, phonemes),
        phonemes=tuple(phonemes),
    )


@functools.cache
def variants() -> tuple[str, ...]:
    """The names of the speakers that can be laid over a language, sorted."""
    folder = data_path() / "voices" / "!v"
    return tuple(sorted(file.name for file in folder.iterdir()))


@functools.cache
def _language_file(language: str) -> str:
    """`gmw/en` for `en`: asked for a file, the engine need not read every voice to find it."""
    root = data_path() / "lang"
    files = [file for file in root.glob(f"*/{glob.escape(language)}") if file.is_file()]
    return files[0].relative_to(root).as_posix() if files else language


def _synthesise(library: ctypes.CDLL, text: str, voice: Voice) -> _Heard:
    heard = _Heard()
    callback = _Callback(heard.listen)
    library.espeak_SetSynthCallback(callback)
    library.espeak_ng_SetRandSeed(ctypes.c_long(1))
    ctypes.CDLL(None).srand(1)  # the Klatt voices draw theirs from the C library
    name = _language_file(voice.language) + (f"+{voice.variant}" if voice.variant else "")
    if library.espeak_SetVoiceByName(name.encode()):
        raise SynthesisError(
            f"eSpeak has no language {voice.language!r}: give a code such as en, en-us, de or fr"
        )
    library.espeak_SetParameter(RATE, voice.words_per_minute, 0)
    library.espeak_SetParameter(PITCH, voice.pitch, 0)
    # A control character can begin a command to the engine; a space in its place keeps the count.
    said = re.sub(r"[\x00-\x1f\x7f]", " ", text).encode() + b"\0"
    size = ctypes.c_size_t(len(said))
    if library.espeak_Synth(said, size, 0, POS_CHARACTER, 0, CHARS_UTF8, None, None):
        raise SynthesisError(f"eSpeak gave up on {_shown(text)}")
    return heard


def _phonemes(heard: _Heard, samples: int) -> tuple[list[Mark], list[Span]]:
    """Phonemes with their times, pauses left out, and which of them each word starts with.

    A phoneme's event comes with its burst, a word's with the closure before: the first phoneme
    takes the closure in. A word's event that coincides with the phoneme before it has overtaken
    that phoneme, and only the first phoneme's own event tells where the word starts.
    """
    starts: list[int] = []
    names: list[str] = []  # a pause has none
    marks: list[Mark] = []
    spoken = 0
    opened: int | None = None
    for kind, position, sample, name in heard.events:
        if kind == WORD:
            marks.append(Mark(position=position, phoneme=spoken))
            opened = sample
            continue
        overtaken = opened is None or bool(starts and names[-1] and opened <= starts[-1])
        start = sample if overtaken else min(opened or 0, sample)
        start = min(max(start, starts[-1] if starts else 0), samples)
        if starts and not names[-1] and starts[-1] == start:  # a pause of no length
            starts.pop()
            names.pop()
        starts.append(start)
        names.append(name)
        spoken += bool(name)
        opened = None
    return marks, _spoken(names, spread_ties(starts, samples), samples)


def _spoken(names: list[str], starts: list[float], samples: int) -> list[Span]:
    edges = [1000 * at / ENGINE_RATE for at in [*starts, samples]]
    return [
        Span(text=name, start_ms=start, end_ms=end)
        for name, (start, end) in zip(names, pairwise(edges), strict=True)
        if name
    ]


def _check(text: str, voice: Voice) -> None:
    if not text.strip():
        raise SynthesisError("there is no text to say: leave empty transcripts out")
    if voice.variant and voice.variant not in variants():
        raise SynthesisError(
            f"eSpeak has no variant {voice.variant!r}; there are {', '.join(variants())}"
        )
    if not 80 <= voice.words_per_minute <= 450:
        raise SynthesisError(f"words_per_minute is {voice.words_per_minute}; eSpeak says 80 to 450")
    if not 0 <= voice.pitch <= 99:
        raise SynthesisError(f"pitch is {voice.pitch}; eSpeak takes 0 to 99")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
