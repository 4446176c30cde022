"""Record, translate and speak at the same time, each in its own thread.

    source -> [audio] -> stream -> [words] -> speaker

Every source yields int16 mono samples at 16 kHz, in chunks of at most `chunk` samples. Brackets are
queues, so that no thread blocks another:

    recorder    queues every sample, up to an hour (115 MB); a model that is later is an error. A
                source at the "fast" pace can wait and has no recorder: the translator reads it
                chunk by chunk, and words do not depend on the speed of the machine.
    translator  takes the whole queue at once, so that a slow model gets fewer and longer chunks.
    speaker     speaks everything in its queue at once.

`finish` ends the recording; the sound until then is translated and spoken, as it is after an error
of the source. Any other error ends all threads; `words` keeps what was committed.

Times are seconds from the start of the source. Words are ready at max(ready time of the words
before, end of the pushed sound) + time spent on them. This is the wall clock of a live source, and
the `elapsed_ms` of its words; at the "fast" pace that has all computation so far in it, as a log of
SimulEval's.
"""

import contextlib
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

import numpy as np
from jaxtyping import Int16

from simuljax.audio import RATE, AudioError, read_audio
from simuljax.errors import SimuljaxError
from simuljax.eval.spacing import join_words
from simuljax.serve.session import Word

Pace = Literal["fast", "real"]
Sound = Generator[Int16[np.ndarray, " N"], None, None]
QUEUE_S = 3600.0
_SILENCE_DB = -100.0
_STEP_S = 10.0  # a step may take; Python aborts if it ends while the device computes

T = TypeVar("T")


class LiveError(SimuljaxError):
    """A live translation that cannot start or cannot go on."""


class TooSlowError(LiveError):
    """The model is too far behind a live source."""


class DeviceError(AudioError):
    """A sound device that cannot be used."""

    def __init__(self, detail: str):
        super().__init__("not samples", detail)

    def __str__(self) -> str:
        return self.detail


def sound_file(path: str | Path, chunk: int, pace: Pace = "fast") -> Sound:
    """Read a file, which raises for a damaged one, and yield it at once or at its own speed."""
    samples = read_audio(path).samples

    def pieces() -> Sound:
        start = time.perf_counter()
        for first in range(0, len(samples), chunk):
            part = samples[first : first + chunk]
            if pace == "real":
                end_s = (first + len(part)) / RATE
                time.sleep(max(0.0, end_s - (time.perf_counter() - start)))
            yield part

    return pieces()


def standard_input(chunk: int) -> Sound:
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


@contextlib.contextmanager
def _sound_device() -> Generator[ModuleType, None, None]:
    """Give the sound library; its errors become a `DeviceError`."""
    try:
        import sounddevice  # pyright: ignore[reportMissingImports]
    except (ImportError, OSError) as error:  # OSError: PortAudio is missing
        raise DeviceError(
            f"no microphone can be used ({error}): pip install 'simuljax[mic]', or give a sound "
            "file"
        ) from error
    try:
        yield sounddevice
    except (sounddevice.PortAudioError, ValueError) as error:  # ValueError: no such device
        raise DeviceError(f"the microphone cannot be opened: {error}") from error


def check_microphone(device: int | str | None = None) -> None:
    """Raise a `DeviceError` if `microphone` could not open the device; record nothing."""
    with _sound_device() as library:
        library.check_input_settings(device=device, channels=1, dtype="int16", samplerate=RATE)


def microphone(chunk: int, device: int | str | None = None) -> Sound:
    """Record without end; `device` is a number or part of a name, by default the system's."""
    given: dict[str, Any] = {"samplerate": RATE, "channels": 1, "dtype": "int16", "device": device}
    given["latency"] = "high"  # a larger buffer in the driver: the thread that reads it has to wait
    with _sound_device() as library, library.RawInputStream(blocksize=chunk, **given) as source:
        while True:
            data, overflowed = source.read(chunk)
            if overflowed:
                ms = 1000 * chunk // RATE
                print(f"\n[some sound was lost: the last {ms} ms]", file=sys.stderr)
            yield np.frombuffer(bytes(data), np.int16)


def input_devices() -> str:
    """List the input devices, one per line: number, name, channels, rate."""
    with _sound_device() as library:
        lines = [
            f"{number:3} {device['name']} ({device['max_input_channels']} channels, "
            f"{device['default_samplerate']:.0f} Hz)"
            for number, device in enumerate(library.query_devices())
            if device["max_input_channels"] > 0
        ]
    if not lines:
        raise DeviceError("this machine has no microphone; give a sound file")
    return "\n".join(lines)


class Pipeline:
    """The live translation of one source. A source at the "real" pace cannot wait."""

    def __init__(
        self,
        stream: Any,  # a `Stream`
        source: Sound,
        *,
        speaker: Any = None,  # a `Speaker`
        pace: Pace = "real",
        queue_s: float = QUEUE_S,
    ):
        self.stream, self.source, self.speaker, self.pace = stream, source, speaker, pace
        self.limit = round(queue_s * RATE)  # samples in the queue
        self.words: list[Word] = []
        self.error: BaseException | None = None
        self._audio: queue.SimpleQueue[np.ndarray | None] = queue.SimpleQueue()  # None: the end
        self._to_speak: queue.SimpleQueue[tuple[str, float] | None] = queue.SimpleQueue()
        self._stopped, self._lock = False, threading.Lock()
        self._recorded = self._pushed = 0  # samples
        self._ready_s = 0.0
        self.level_db = self.loudest_db = _SILENCE_DB  # of the newest sound; of all
        self._recorder = [self._thread(self._record)] if pace == "real" else []
        self._workers = [self._thread(self._translate)]
        if speaker is not None:
            self._workers.append(self._thread(self._speak))

    def start(self) -> None:
        for thread in (*self._recorder, *self._workers):
            thread.start()

    def finish(self) -> None:
        """Stop recording; the sound until now is translated and spoken."""
        with self._lock:
            self._stopped = True
            self._audio.put(None)

    def stop(self, error: BaseException) -> None:
        """End all threads because of an error; wait for the step that is computed."""
        self.error = error
        self.finish()
        self.wait(_STEP_S)

    def wait(self, seconds: float) -> bool:
        """Wait for the end; return True if all is done. A recorder that hangs is not awaited."""
        until = time.perf_counter() + seconds
        for thread in self._workers:
            thread.join(max(0.0, until - time.perf_counter()))
        done = not any(thread.is_alive() for thread in self._workers)
        for recorder in self._recorder if done else ():
            recorder.join(1.0)  # long enough to close a device; a pipe may never answer
        return done

    @property
    def recorded_s(self) -> float:
        return self._recorded / RATE

    @property
    def lag_s(self) -> float:
        """Return the seconds of recorded sound that words may still come from."""
        return max(self.recorded_s - self.stream.settled_s, 0.0)

    @property
    def _failed(self) -> bool:
        """Return True after an error that ends everything; one of the source ends the sound."""
        return self.error is not None and not isinstance(self.error, AudioError)

    def _chunks(self) -> Sound:
        """Yield the chunks of the source until its end or an error of it, or `finish`."""
        with contextlib.closing(self.source) as source:
            try:
                for samples in source:
                    if self._stopped:
                        return
                    yield samples
            except AudioError as error:  # raised after the translation of the sound before
                self.error = error

    def _record(self) -> None:
        with contextlib.closing(self._chunks()) as chunks:
            for samples in chunks:
                behind = self._recorded - self._pushed
                if behind and behind + len(samples) > self.limit:
                    raise TooSlowError(
                        f"the model is {behind / RATE:.0f} s behind the speaker and the queue is "
                        "full: use a smaller model, a larger --window, or --pace fast for a pipe "
                        "that can wait"
                    )
                with self._lock:
                    if not self._stopped:
                        self._count(samples)
                        self._audio.put(samples)
        self.finish()

    def _count(self, samples: np.ndarray) -> None:
        self._recorded += len(samples)
        self.level_db = level_db(samples)
        self.loudest_db = max(self.loudest_db, self.level_db)

    def _queued(self) -> Sound:
        """Yield all sound that waits, until the recorder ends."""
        while chunks := _take(self._audio):
            yield np.concatenate(chunks)

    def _translate(self) -> None:
        is_patient = self.pace == "fast"
        with contextlib.closing(self._chunks() if is_patient else self._queued()) as sound:
            for samples in sound:
                if self._failed:
                    break
                if is_patient:
                    self._count(samples)
                self._pushed += len(samples)
                self._commit(lambda samples=samples: self.stream.push(samples))
        if not self._failed:
            self._commit(self.stream.finish)
        self._to_speak.put(None)

    def _commit(self, step: Callable[[], list[Word]]) -> None:
        start = time.perf_counter()
        words = tuple(step())
        spent = time.perf_counter() - start
        self._ready_s = max(self._ready_s, self._pushed / RATE) + spent
        if self.pace == "real":  # a stream cannot know that pauses were waited for
            words = tuple(replace(word, elapsed_ms=1000 * self._ready_s) for word in words)
        self.words.extend(words)
        if words and self.speaker is not None:
            self._to_speak.put((join_words(word.text for word in words), self._ready_s))

    def _speak(self) -> None:
        while (items := _take(self._to_speak)) and not self._failed:
            texts, ready_s = zip(*items, strict=True)
            self.speaker.say(join_words(texts), ready_s[-1])
        if not self._failed:
            self.speaker.finish()

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.error = self.error or error
                self.finish()
                self._to_speak.put(None)

        return threading.Thread(target=run, name=work.__name__.strip("_"), daemon=True)


def _take(items: "queue.SimpleQueue[T | None]") -> list[T]:
    """Wait for items and return all; return [] after the end."""
    taken: list[T] = []
    while (item := items.get()) is not None:
        taken.append(item)
        if items.empty():
            return taken
    items.put(None)  # for the next call
    return taken


def level_db(samples: np.ndarray) -> float:
    """Return the power of int16 samples in decibels relative to full scale."""
    power = np.mean(np.square(samples.astype(np.float32) / 32768)) if len(samples) else 0.0
    return max(float(10 * np.log10(power)) if power > 0 else _SILENCE_DB, _SILENCE_DB)
