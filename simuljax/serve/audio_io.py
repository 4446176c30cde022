"""Read sound as it arrives: from a file, standard input or a microphone.

Every source yields int16 mono samples at 16 kHz, in chunks of at most `chunk` samples.
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

from simuljax.audio import RATE, AudioError, read_audio

Pace = Literal["fast", "real"]
Chunk = Int16[np.ndarray, " N"]


class DeviceError(AudioError):
    """A sound device that cannot be used."""

    def __init__(self, detail: str):
        super().__init__("not samples", detail)

    def __str__(self) -> str:
        return self.detail


def sound_file(path: str | Path, chunk: int, pace: Pace = "fast") -> Generator[Chunk, None, None]:
    """Read a file, which raises for a damaged one, and yield it at once or at its own speed."""
    return _paced(read_audio(path).samples, chunk, pace)


def _paced(samples: Chunk, chunk: int, pace: Pace) -> Generator[Chunk, None, None]:
    start = time.perf_counter()
    for first in range(0, len(samples), chunk):
        part = samples[first : first + chunk]
        if pace == "real":
            end_s = (first + len(part)) / RATE
            time.sleep(max(0.0, end_s - (time.perf_counter() - start)))
        yield part


def standard_input(chunk: int) -> Generator[Chunk, None, None]:
    """Yield raw 16-bit little-endian samples as they arrive; raise for half a sample at the end."""
    buffer = b""
    while data := os.read(sys.stdin.fileno(), 2 * chunk):
        buffer += data
        whole = len(buffer) - len(buffer) % 2
        if whole:
            yield np.frombuffer(buffer[:whole], "<i2").astype(np.int16)
        buffer = buffer[whole:]
    if buffer:
        raise AudioError("truncated", "standard input ended in the middle of a sample (one byte)")


def check_microphone(device: int | str | None = None) -> None:
    """Raise a `DeviceError` if `microphone` could not open the device; record nothing."""
    sounddevice = _sounddevice()
    try:
        sounddevice.check_input_settings(device=device, channels=1, dtype="int16", samplerate=RATE)
    except (sounddevice.PortAudioError, ValueError) as error:  # ValueError: no such device
        raise DeviceError(f"the microphone cannot be opened: {error}") from error


def microphone(chunk: int, device: int | str | None = None) -> Generator[Chunk, None, None]:
    """Record without end; `device` is a number or part of a name, by default the system's."""
    sounddevice = _sounddevice()
    try:
        with sounddevice.RawInputStream(
            samplerate=RATE,
            channels=1,
            dtype="int16",
            blocksize=chunk,
            device=device,
            latency="high",  # a larger buffer in the driver: the thread that reads it has to wait
        ) as source:
            while True:
                data, overflowed = source.read(chunk)
                if overflowed:
                    ms = 1000 * chunk // RATE
                    print(f"\n[some sound was lost: the last {ms} ms]", file=sys.stderr)
                yield np.frombuffer(bytes(data), np.int16)
    except (sounddevice.PortAudioError, ValueError) as error:  # ValueError: no such device
        raise DeviceError(f"the microphone cannot be opened: {error}") from error


def input_devices() -> str:
    """List the input devices, one per line: number, name, channels, rate."""
    sounddevice = _sounddevice()
    lines = [
        f"{number:3} {device['name']} ({device['max_input_channels']} channels, "
        f"{device['default_samplerate']:.0f} Hz)"
        for number, device in enumerate(sounddevice.query_devices())
        if device["max_input_channels"] > 0
    ]
    if not lines:
        raise DeviceError("this machine has no microphone; give a sound file")
    return "\n".join(lines)


def _sounddevice() -> ModuleType:
    try:
        import sounddevice  # pyright: ignore[reportMissingImports]
    except (ImportError, OSError) as error:  # OSError: PortAudio is missing
        raise DeviceError(
            f"no microphone can be used ({error}): pip install 'simuljax[mic]', or give a sound "
            "file"
        ) from error
    return sounddevice
