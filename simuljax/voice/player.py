"""Play sound through a sound card."""

import queue
import threading
from types import TracebackType

import numpy as np
from jaxtyping import Int16

from simuljax.voice.base import VoiceError


def play(samples: Int16[np.ndarray, " N"], rate: int) -> None:
    """Play the samples to their end."""
    with Player(rate) as player:
        player.play(samples)


class Player:
    """Play sounds one after another while the caller goes on.

    `close`, or the end of a `with`, waits for the last sound; an error in the `with` drops it.
    """

    def __init__(self, rate: int):
        self._stream = _open(rate)
        self._queue: queue.Queue[bytes | None] = queue.Queue()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="player", daemon=True)
        self._thread.start()

    def play(self, samples: Int16[np.ndarray, " N"]) -> None:
        """Queue a sound."""
        self._check()
        self._queue.put(samples.tobytes())

    def close(self) -> None:
        """Wait for the queued sounds, then close the device."""
        self._queue.put(None)
        self._thread.join()
        self._stream.stop()  # after the sound in the buffer of the card
        self._stream.close()
        self._check()

    def __enter__(self) -> "Player":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._stream.abort()  # makes the write in the thread fail, which ends it
            self._queue.put(None)
            self._thread.join()
            self._stream.close()

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
