"""The loudspeaker, for whoever has a sound card."""

import queue
import threading
from types import TracebackType

import numpy as np
from jaxtyping import Int16

from simuljax.voice.base import VoiceError


def play(samples: Int16[np.ndarray, " N"], rate: int) -> None:
    """Plays to the end of it."""
    with Player(rate) as player:
        player.play(samples)


class Player:
    """Plays what it is given, one after the other, while the caller goes on.

    `close`, or the end of a `with`, waits until all has been heard; after an error in the `with`
    what is left is dropped.
    """

    def __init__(self, rate: int):
        self._stream = _open(rate)
        self._waiting: queue.Queue[bytes | None] = queue.Queue()
        self._problem: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="player", daemon=True)
        self._thread.start()

    def play(self, samples: Int16[np.ndarray, " N"]) -> None:
        """Adds sound to what is waiting to be heard."""
        self._check()
        self._waiting.put(samples.tobytes())

    def close(self) -> None:
        """Waits for the rest."""
        self._waiting.put(None)
        self._thread.join()
        self._stream.stop()  # after what the card still holds
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
            self._stream.abort()  # what is being written fails, and with it the thread ends
            self._waiting.put(None)
            self._thread.join()
            self._stream.close()

    def _run(self) -> None:
        try:
            while (sound := self._waiting.get()) is not None:
                if sound:
                    self._stream.write(sound)
        except Exception as error:  # told to whoever plays next, or closes
            self._problem = error

    def _check(self) -> None:
        if self._problem is not None:
            raise VoiceError(f"the sound card stopped: {self._problem}") from self._problem


def _open(rate: int):
    try:
        import sounddevice  # pyright: ignore[reportMissingImports]
    except (ImportError, OSError) as error:  # OSError: the package without its library
        raise VoiceError(
            f"there is no way to a loudspeaker here ({error}): pip install 'simuljax[mic]', or"
            " write the speech to a file"
        ) from error
    try:
        stream = sounddevice.RawOutputStream(samplerate=rate, channels=1, dtype="int16")
        stream.start()
    except sounddevice.PortAudioError as error:
        raise VoiceError(f"the loudspeaker cannot be opened: {error}") from error
    return stream
