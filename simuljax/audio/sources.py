"""Where sound comes from while it is being heard: a file, standard input, a microphone.

Each gives int16 mono samples at 16 kHz, in pieces of at most `chunk`.
"""

import os
import sys
import time
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import Literal

import numpy as np
from jaxtyping import Int16

from simuljax.audio.waveform import RATE, AudioError, read_audio

Pace = Literal["fast", "real"]
Piece = Int16[np.ndarray, " N"]


class DeviceError(AudioError):
    """A device that cannot be listened to. No samples are at fault, so none are spoken of."""

    def __init__(self, detail: str):
        super().__init__("not samples", detail)

    def __str__(self) -> str:
        return self.detail


def sound_file(path: str | Path, chunk: int, pace: Pace = "fast") -> Generator[Piece, None, None]:
    """A file as fast as it goes, or at the speed it was spoken; one that is damaged fails here."""
    return _played(read_audio(path).samples, chunk, pace)


def _played(samples: Piece, chunk: int, pace: Pace) -> Generator[Piece, None, None]:
    start = time.perf_counter()
    for first in range(0, len(samples), chunk):
        piece = samples[first : first + chunk]
        if pace == "real":
            due = (first + len(piece)) / RATE
            time.sleep(max(0.0, due - (time.perf_counter() - start)))
        yield piece


def standard_input(chunk: int) -> Generator[Piece, None, None]:
    """Raw samples as they come (16-bit little-endian); an odd byte at the end is no sample."""
    waiting = b""
    while data := os.read(sys.stdin.fileno(), 2 * chunk):
        waiting += data
        whole = len(waiting) - len(waiting) % 2
        if whole:
            yield np.frombuffer(waiting[:whole], "<i2").astype(np.int16)
        waiting = waiting[whole:]
    if waiting:
        raise AudioError("truncated", "standard input ended in the middle of a sample (one byte)")


def check_microphone(device: int | str | None = None) -> None:
    """A `DeviceError` if `microphone` could not open it; nothing is heard."""
    sounddevice = _sounddevice()
    try:
        sounddevice.check_input_settings(device=device, channels=1, dtype="int16", samplerate=RATE)
    except (sounddevice.PortAudioError, ValueError) as error:  # ValueError: no such device
        raise DeviceError(f"the microphone cannot be opened: {error}") from error


def microphone(chunk: int, device: int | str | None = None) -> Generator[Piece, None, None]:
    """An input device, by its number or a part of its name; by default the system's. Never ends."""
    sounddevice = _sounddevice()
    try:
        with sounddevice.RawInputStream(
            samplerate=RATE,
            channels=1,
            dtype="int16",
            blocksize=chunk,
            device=device,
            latency="high",  # a larger buffer in the driver: it is read by a thread among others
        ) as source:
            while True:
                data, lost = source.read(chunk)
                if lost:
                    ms = 1000 * chunk // RATE
                    print(f"\n[some sound was lost: the last {ms} ms]", file=sys.stderr)
                yield np.frombuffer(bytes(data), np.int16)
    except (sounddevice.PortAudioError, ValueError) as error:  # ValueError: no such device
        raise DeviceError(f"the microphone cannot be opened: {error}") from error


def input_devices() -> str:
    """The devices that can be listened to, a line each: number, name, channels, rate."""
    sounddevice = _sounddevice()
    lines = [
        f"{number:3} {device['name']} ({device['max_input_channels']} channels, "
        f"{device['default_samplerate']:.0f} Hz)"
        for number, device in enumerate(sounddevice.query_devices())
        if device["max_input_channels"] > 0
    ]
    if not lines:
        raise DeviceError("this machine has no sound card to listen to; give a file")
    return "\n".join(lines)


def _sounddevice() -> ModuleType:
    try:
        import sounddevice  # pyright: ignore[reportMissingImports]
    except (ImportError, OSError) as error:  # OSError: PortAudio itself is missing
        raise DeviceError(
            f"there is no way to a microphone here ({error}): pip install 'simuljax[mic]', or "
            "give a file"
        ) from error
    return sounddevice
