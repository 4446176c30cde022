"""Place pieces of speech on one track without overlaps.

    start  = max(ready, end of the piece before)
    behind = end of the piece before - ready
    speed  = 1 + 0.25 * clip((behind - 1 s) / 2 s, 0, 1)

Up to one second late, speech has the voice's own pace; from three seconds on it is 1.25 times as
fast. The engine makes the speed, so the pitch stays. Pauses are kept, nothing is dropped and no
piece moves, so a source that is faster than 1.25 times the voice for long is followed ever later.
"""

import contextlib
import queue
import tempfile
import threading
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from jaxtyping import Int16

from simuljax.voice.base import VoiceError

ON_TIME_S, LATEST_S = 1.0, 3.0  # late by this much, speech gets faster; is fastest
FASTEST = 1.25
_SILENCE_S = 10  # written at a time


@dataclass(frozen=True, kw_only=True)
class Placed:
    """The place of a piece in seconds from the start, and its speed."""

    start_s: float
    end_s: float
    speed: float


class Timeline:
    """A track of speech in a WAV file, at `path` or a temporary one.

    The file is complete after every `place`, so a killed process leaves the speech until then. It
    is 16-bit mono; WAV ends at 4 GiB, a day at 24 kHz.
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
        """Return the end of the last piece in seconds."""
        return self._samples / self.rate

    def speed(self, ready_s: float) -> float:
        late = (self.duration - ready_s - ON_TIME_S) / (LATEST_S - ON_TIME_S)
        return 1 + (FASTEST - 1) * min(max(late, 0.0), 1.0)

    def place(
        self, samples: Int16[np.ndarray, " N"], ready_s: float, *, speed: float = 1.0
    ) -> Placed:
        """Add sound that is ready at `ready_s`; `speed` is recorded."""
        start = max(round(ready_s * self.rate), self._samples)
        if len(samples):
            silence = start - self._samples
            for written in range(0, silence, block := _SILENCE_S * self.rate):
                self._append(bytes(2 * min(block, silence - written)))
            self._append(samples.tobytes())
            self._samples = start + len(samples)
        end = start + len(samples)
        return Placed(start_s=start / self.rate, end_s=end / self.rate, speed=speed)

    def close(self) -> None:
        self._open.close()

    def _append(self, frames: bytes) -> None:
        self._wave.writeframes(frames)
        self._file.flush()


def _file(path: str | Path | None) -> IO[bytes]:
    if path is None:
        return tempfile.TemporaryFile()
    try:
        return open(path, "w+b")
    except OSError as error:
        raise VoiceError(f"speech cannot be written to {path}: {error.strerror}") from error


class Player:
    """Play sounds one after another while the caller goes on."""

    def __init__(self, rate: int):
        self._stream = _open(rate)
        self._queue: queue.Queue[bytes | None] = queue.Queue()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="player", daemon=True)
        self._thread.start()

    def play(self, samples: Int16[np.ndarray, " N"]) -> None:
        self._check()
        self._queue.put(samples.tobytes())

    def close(self) -> None:
        """Wait for the queued sounds, then close the device."""
        self._queue.put(None)
        self._thread.join()
        self._stream.stop()  # after the sound in the buffer of the card
        self._stream.close()
        self._check()

    def _run(self) -> None:
        try:
            while (sound := self._queue.get()) is not None:
                if sound:
                    self._stream.write(sound)
        except Exception as error:  # raised by the next play or close
            self._error = error

    def _check(self) -> None:
        if self._error is not None:
            raise VoiceError(f"the sound card stopped: {self._error}") from self._error


def _open(rate: int):
    try:
        import sounddevice  # pyright: ignore[reportMissingImports]
    except (ImportError, OSError) as error:  # OSError: PortAudio is missing
        raise VoiceError(
            f"no loudspeaker can be used ({error}): pip install 'simuljax[mic]', or write the"
            " speech to a file"
        ) from error
    try:
        stream = sounddevice.RawOutputStream(samplerate=rate, channels=1, dtype="int16")
        stream.start()
    except sounddevice.PortAudioError as error:
        raise VoiceError(f"the loudspeaker cannot be opened: {error}") from error
    return stream
