"""What every voice is, and what is common to what they refuse."""

from typing import Protocol

import numpy as np
from jaxtyping import Int16

from simuljax.errors import SimuljaxError

SHOWN = 60  # characters of a text in a message


class VoiceError(SimuljaxError):
    """This voice cannot say this text; the message says why and what to change."""


class Voice(Protocol):
    """A speaker: text in, sound out."""

    @property
    def rate(self) -> int:
        """Samples a second."""
        ...

    @property
    def name(self) -> str:
        """The engine and who of its speakers it is."""
        ...

    def speak(self, text: str, *, speed: float = 1.0) -> Int16[np.ndarray, " N"]:
        """The text as mono sound at `rate`, `speed` times as fast as the voice's own pace."""
        ...


def check_speed(speed: float, slowest: float, fastest: float, engine: str) -> None:
    """Refuses what the engine would not do."""
    if not slowest <= speed <= fastest:
        raise VoiceError(f"speed is {speed:g}; {engine} speaks {slowest:g} to {fastest:g} as fast")


def nothing_said(text: str, engine: str, advice: str) -> Int16[np.ndarray, " 0"]:
    """What stands for a text that made no sound: no samples, or an error if it has words."""
    if any(character.isalnum() for character in text):
        raise VoiceError(f"{engine} finds nothing to say in {shown(text)}: {advice}")
    return np.zeros(0, np.int16)


def shown(text: str) -> str:
    """The text as it stands in a message."""
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 3] + "...")
