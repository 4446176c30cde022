"""Phonemes of a text by eSpeak NG, the text input of Zaidi et al. 2022 and Tang et al. 2021.

The library is loaded anew for each use. It keeps everything in globals, and some of it survives
even a restart: the phase of one utterance's voicing carries over to the next. Unloaded in between,
which costs about a millisecond, it gives the same answer to the same question. That holds only if
nobody in the process keeps it loaded, so this is the one place that loads it. It is under the GPL
and therefore optional.
"""

import ctypes
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simuljax.errors import import_extra
from simuljax.text.normalise import VocabularyError

RATE = 22_050

# Names as in the engine's speak_lib.h.
_SYNCHRONOUS = 2  # the retrieval mode, 1, works from a thread of its own and crashes
_PHONEME_EVENTS, _ESPEAK_IPA, _DONT_EXIT = 0x1, 0x2, 0x8000
_alone = threading.Lock()


def data_path() -> Path:
    """Return the directory of eSpeak's voices and languages."""
    return Path(_loader().get_data_path())


@contextmanager
def fresh_library() -> Iterator[ctypes.CDLL]:
    """Yield the initialised library, for one thread at a time; unload it at the end."""
    loader = _loader()
    with _alone:
        library = ctypes.CDLL(loader.get_library_path())
        options = _PHONEME_EVENTS | _ESPEAK_IPA | _DONT_EXIT
        try:
            rate = library.espeak_Initialize(
                _SYNCHRONOUS, 0, loader.get_data_path().encode(), options
            )
            if rate != RATE:
                raise RuntimeError(
                    f"eSpeak NG reports {rate} Hz, not {RATE}: reinstall espeakng-loader"
                )
            yield library
            library.espeak_Terminate()
        finally:
            ctypes.CDLL(None).dlclose(ctypes.c_void_p(library._handle))


def _loader():
    return import_extra("espeakng_loader", "speech")


WORD_END = "|"

_UTF8 = 1
_SEPARATOR = "_"
_IPA = 2 | ord(_SEPARATOR) << 8

_LANGUAGE_SWITCH = re.compile(r"\([a-z-]+\)")  # "(en)" before a foreign word


def phonemize(text: str, language: str) -> str:
    """Return IPA phonemes separated by spaces, `|` between words: `h ə l ˈəʊ | w ˈɜː l d`.

    `language` is an eSpeak NG voice: en, en-us, de, fr, ... Stress marks stand before their vowel.
    eSpeak NG says some function words as one ("of the"), and leaves punctuation out.
    """
    said = _LANGUAGE_SWITCH.sub("", " ".join(_clauses(text, language)))
    words = (" ".join(filter(None, word.split(_SEPARATOR))) for word in said.split())
    return f" {WORD_END} ".join(filter(None, words))


def _clauses(text: str, language: str) -> list[str]:
    """Yield the library's answers, one per clause, until it reaches the end of the text."""
    with fresh_library() as library:
        library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        if library.espeak_SetVoiceByName(language.encode()) != 0:
            raise VocabularyError(
                f"eSpeak NG has no voice for language {language!r}; en, de, fr, es, ... are known."
            )
        rest, clauses = ctypes.c_char_p(text.encode()), []
        while rest.value is not None:
            answer = library.espeak_TextToPhonemes(ctypes.byref(rest), _UTF8, _IPA)
            clauses.append(answer.decode())
    return clauses
