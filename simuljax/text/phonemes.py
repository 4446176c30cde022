"""Phonemes of a text by eSpeak NG, the text input of Zaidi et al. 2022 and Tang et al. 2021."""

import ctypes
import re
from typing import Literal

from simuljax.text.errors import VocabularyError
from simuljax.text.espeak import fresh_library

WORD_END = "|"

_UTF8 = 1
_SEPARATOR = "_"
_IPA = 2 | ord(_SEPARATOR) << 8

_LANGUAGE_SWITCH = re.compile(r"\([a-z-]+\)")  # "(en)" before a foreign word
_STRESS = re.compile("[ˈˌ]")


def phonemize(text: str, language: str, *, stress: Literal["keep", "drop"] = "keep") -> str:
    """Return IPA phonemes separated by spaces, `|` between words: `h ə l ˈəʊ | w ˈɜː l d`.

    `language` is an eSpeak NG voice: en, en-us, de, fr, ... Stress marks stand before their vowel.
    eSpeak NG says some function words as one ("of the"), and leaves punctuation out.
    """
    words = (_phonemes(word) for clause in _clauses(text, language) for word in clause.split())
    spelled = f" {WORD_END} ".join(" ".join(word) for word in words if word)
    return _STRESS.sub("", spelled) if stress == "drop" else spelled


def _phonemes(word: str) -> list[str]:
    parts = _LANGUAGE_SWITCH.sub("", word).split(_SEPARATOR)
    return [part for part in parts if part]


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
