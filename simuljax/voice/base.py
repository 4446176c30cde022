"""The interface of a voice, and what all voices share."""

import re
from typing import Protocol

import numpy as np
from jaxtyping import Int16

from simuljax.errors import SimuljaxError
from simuljax.text.sentences import CJK_CLOSING, CLOSING, is_abbreviation

# Best first: the end of a sentence, of a clause, of a word. Chinese and Japanese have no spaces.
_CUTS = (
    re.compile(rf"[.!?…]{CLOSING}\s|[。！？]{CJK_CLOSING}"),
    re.compile(r"[,;:—]\s|[、，；：]"),
    re.compile(r"\s"),
)


class VoiceError(SimuljaxError):
    """A voice cannot speak; the message says why and what to change."""


class Voice(Protocol):
    """A voice: text in, sound out."""

    @property
    def rate(self) -> int:
        """Return the samples per second."""
        ...

    @property
    def name(self) -> str:
        """Return the engine and its voice."""
        ...

    def speak(self, text: str, *, speed: float = 1.0) -> Int16[np.ndarray, " N"]:
        """Return the text as mono sound, `speed` times as fast as the voice's own pace."""
        ...


def check_speed(speed: float, slowest: float, fastest: float, engine: str) -> None:
    """Refuse a speed that the engine does not have."""
    if not slowest <= speed <= fastest:
        raise VoiceError(f"speed is {speed:g}; {engine} has {slowest:g} to {fastest:g}")


def no_sound(text: str, engine: str, advice: str) -> Int16[np.ndarray, " 0"]:
    """Return no samples for a text that made no sound; raise if it has letters or digits."""
    if any(character.isalnum() for character in text):
        raise VoiceError(f"{engine} cannot pronounce {shown(text)}: {advice}")
    return np.zeros(0, np.int16)


def shown(text: str) -> str:
    """Quote a text for a message, shortened."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def split(text: str, limit: int) -> list[str]:
    """Cut text into pieces of at most `limit` characters, at sentences, clauses or words.

    Only white space at the cuts is lost. A text within the limit is one piece.
    """
    pieces, rest = [], text.strip()
    while len(rest) > limit:
        at = _cut(rest[: limit + 1], limit)
        pieces.append(rest[:at].rstrip())
        rest = rest[at:].lstrip()
    return [*pieces, rest] if rest else pieces


def _cut(text: str, limit: int) -> int:
    """Return the end of the last mark of the best kind, or the limit."""
    for kind in _CUTS:
        for mark in reversed([*kind.finditer(text)]):
            last_word = text[: mark.start()].split(" ")[-1]
            if not (mark[0].startswith(".") and is_abbreviation(last_word)):
                return min(mark.end(), limit)
    return limit
