"""What is spoken, one after the other on one track, as a listener hears it.

    start = max(ready, end of what was placed before)      nothing overlaps, pauses are kept
    behind = end of what was placed before - ready         > 0: speech is longer than its source
    speed = 1 + 0.25 * clip((behind - 1 s) / 2 s, 0, 1)    of what comes next

Speech that is a second behind is spoken at the voice's own pace; from there to three seconds it
grows faster, 1.25 times at the most. The engine is asked for the speed, so the pitch stays. What
has been placed is never changed, and nothing is left out: who speaks faster than 1.25 times the
voice for long is followed at a growing distance.
"""

import contextlib
import math
import shutil
import tempfile
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from jaxtyping import Int16

from simuljax.voice.base import Voice, VoiceError

PATIENCE_S, HURRIED_S = 1.0, 3.0  # behind by so much, the voice starts to hurry; hurries fully
FASTEST = 1.25
_SILENCE_S = 10  # of a long pause, written at a time


@dataclass(frozen=True, kw_only=True)
class Placed:
    """When something is heard, in seconds from the start, and how fast it was spoken."""

    start_s: float
    end_s: float
    speed: float


class Timeline:
    """A track of speech. It lies in a file, at `path` or a temporary one, and not in memory.

    The file is a whole WAV file after every `place`: a process that is killed leaves what was
    spoken until then. 16-bit mono; WAV ends at 4 GiB, which is a day at 24 kHz.
    """

    def __init__(self, rate: int, path: str | Path | None = None):
        self.rate = rate
        self._samples = 0
        self._open = contextlib.ExitStack()
        self._file = self._open.enter_context(_file(path))
        self._wave = self._open.enter_context(wave.Wave_write(self._file))
        self._wave.setnchannels(1)
        self._wave.setsampwidth(2)
        self._wave.setframerate(rate)
        self._append(b"")

    @property
    def duration(self) -> float:
        """Seconds until all is spoken."""
        return self._samples / self.rate

    def speed(self, ready_s: float) -> float:
        """How fast to say what is ready at this time."""
        late = (self.duration - ready_s - PATIENCE_S) / (HURRIED_S - PATIENCE_S)
        return 1 + (FASTEST - 1) * min(max(late, 0.0), 1.0)

    def say(self, voice: Voice, text: str, ready_s: float) -> Placed:
        """Speaks the text as fast as the rule says and places it."""
        if voice.rate != self.rate:
            raise VoiceError(
                f"{voice.name} gives {voice.rate} Hz, this timeline has {self.rate}: make it with"
                " Timeline(voice.rate)"
            )
        speed = self.speed(ready_s)
        return self.place(voice.speak(text, speed=speed), ready_s, speed=speed)

    def place(
        self, samples: Int16[np.ndarray, " N"], ready_s: float, *, speed: float = 1.0
    ) -> Placed:
        """Adds sound that could be heard from `ready_s` on; `speed` is how it was spoken."""
        if samples.dtype != np.int16 or samples.ndim != 1:
            raise VoiceError(f"samples are {samples.dtype}{list(samples.shape)}; give int16 [N]")
        if not (math.isfinite(ready_s) and ready_s >= 0):
            raise VoiceError(f"ready_s is {ready_s}; give seconds from the start of the recording")
        start = max(round(ready_s * self.rate), self._samples)
        if len(samples):
            self._pause(start - self._samples)
            self._append(samples.tobytes())
            self._samples = start + len(samples)
        end = start + len(samples)
        return Placed(start_s=start / self.rate, end_s=end / self.rate, speed=speed)

    def write(self, path: str | Path) -> None:
        """A copy of the track so far."""
        place = self._file.tell()
        self._file.seek(0)
        with open(path, "wb") as copy:
            shutil.copyfileobj(self._file, copy)
        self._file.seek(place)

    def close(self) -> None:
        """Nothing more comes."""
        self._open.close()

    def __enter__(self) -> "Timeline":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pause(self, samples: int) -> None:
        while samples > 0:
            block = min(samples, _SILENCE_S * self.rate)
            self._append(bytes(2 * block))
            samples -= block

    def _append(self, frames: bytes) -> None:
        """The header is brought up to date too."""
        self._wave.writeframes(frames)
        self._file.flush()


def _file(path: str | Path | None) -> IO[bytes]:
    if path is None:
        return tempfile.TemporaryFile()
    try:
        return open(path, "w+b")
    except OSError as error:
        raise VoiceError(f"speech cannot be written to {path}: {error.strerror}") from error
