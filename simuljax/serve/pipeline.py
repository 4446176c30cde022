"""Record, translate and speak at the same time, each in its own thread.

    source -> [audio] -> stream -> [words] -> speaker
    recorder            translator           speaker

Brackets are queues. No thread blocks another:

    recorder    queues every sample. The queue of a live source holds an hour (115 MB); a model that
                is an hour late is an error. No sound is dropped.
    translator  takes the whole queue at once, so that a slow model gets fewer and longer chunks. A
                file at the "fast" pace is taken chunk by chunk instead: its words do not depend on
                the speed of the machine.
    speaker     speaks everything in its queue at once.

`finish` ends the recording; the sound until then is translated and spoken. An error in one thread
ends all of them; `words` keeps what was committed.

Times are seconds from the start of the source. Words are ready at max(ready time of the words
before, end of the pushed sound) + time spent on them. This is the wall clock of a live source, and
the `elapsed_ms` of its words; at the "fast" pace that has all computation so far in it, as a log of
SimulEval's.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np

from simuljax.audio import RATE, AudioError
from simuljax.errors import SimuljaxError
from simuljax.serve.audio_io import Pace
from simuljax.serve.stream import Word

LIVE_QUEUE_S, FILE_QUEUE_S = 3600.0, 5.0
_SILENCE_DB = -100.0
_POLL_S = 0.005

T = TypeVar("T")


class LiveError(SimuljaxError):
    """A live translation that cannot start or cannot go on."""


class TooSlowError(LiveError):
    """The model is too far behind a live source."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A snapshot of the pipeline."""

    recorded_s: float
    settled_s: float  # no more words can come from this sound
    level_db: float  # of the newest sound, relative to full scale
    loudest_db: float  # of all sound
    pending: str
    spoken_s: float | None  # end of the speech so far; None without a voice

    @property
    def lag_s(self) -> float:
        """Return the seconds of sound that words may still come from."""
        return max(self.recorded_s - self.settled_s, 0.0)


class Pipeline:
    """The live translation of one source. A source at the "real" pace cannot wait."""

    def __init__(
        self,
        stream: Any,  # a `Stream`
        source: Generator[np.ndarray, None, None],
        *,
        speaker: Any = None,  # a `Speaker`
        pace: Pace = "real",
        queue_s: float | None = None,
    ):
        self.stream, self.source, self.speaker, self.pace = stream, source, speaker, pace
        limit_s = queue_s or (LIVE_QUEUE_S if pace == "real" else FILE_QUEUE_S)
        self.limit = round(limit_s * RATE)  # samples in the queue
        self.words: list[Word] = []
        self.error: BaseException | None = None
        self._audio: queue.SimpleQueue[np.ndarray | None] = queue.SimpleQueue()  # None: the end
        self._to_speak: queue.SimpleQueue[tuple[str, float] | None] = queue.SimpleQueue()
        self._stopped, self._lock = False, threading.Lock()
        self._queued = self._recorded = self._pushed = 0  # samples
        self._ready_s = 0.0
        self._level_db = self._loudest_db = _SILENCE_DB
        self._threads = [self._thread(work) for work in (self._record, self._translate)]
        if speaker is not None:
            self._threads.append(self._thread(self._speak))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Stop recording; the sound until now is translated and spoken."""
        with self._lock:
            self._stopped = True
            self._audio.put(None)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end; return True if all is done. A recorder that hangs is not awaited."""
        until = None if seconds is None else time.perf_counter() + seconds
        for thread in self._threads[1:]:
            thread.join(None if until is None else max(0.0, until - time.perf_counter()))
        done = not any(thread.is_alive() for thread in self._threads[1:])
        if done:
            self._threads[0].join(1.0)  # long enough to close a device; a pipe may never answer
        return done

    @property
    def backlog(self) -> int:
        return self._queued - self._pushed

    @property
    def recorded_s(self) -> float:
        return self._recorded / RATE

    def progress(self) -> Progress:
        return Progress(
            recorded_s=self.recorded_s,
            settled_s=self.stream.settled_s,
            level_db=self._level_db,
            loudest_db=self._loudest_db,
            pending=self.stream.pending,
            spoken_s=self.speaker.end_s if self.speaker else None,
        )

    @property
    def _failed(self) -> bool:
        """Return True after an error that ends everything; one of the source ends the sound."""
        return self.error is not None and not isinstance(self.error, AudioError)

    def _record(self) -> None:
        with contextlib.closing(self.source) as source:
            try:
                for samples in source:
                    if not self._enqueue(samples):
                        break
            except AudioError as error:  # raised after the translation of the sound before
                self.error = error
        self.finish()

    def _enqueue(self, samples: np.ndarray) -> bool:
        """Queue sound, or wait for room if the source can wait; return False after the end."""
        while self.backlog and self.backlog + len(samples) > self.limit and not self._stopped:
            if self.pace == "real":
                raise TooSlowError(
                    f"the model is {self.backlog / RATE:.0f} s behind the speaker and the queue is "
                    "full: use a smaller model, a larger --window, or --pace fast for a pipe that "
                    "can wait"
                )
            time.sleep(_POLL_S)
        with self._lock:
            if not self._stopped:
                self._queued += len(samples)
                self._audio.put(samples)
                if self.pace == "real":
                    self._count(samples)
            return not self._stopped

    def _count(self, samples: np.ndarray) -> None:
        """Count sound when it is recorded; that of a file when the model takes it."""
        self._recorded += len(samples)
        self._level_db = level_db(samples)
        self._loudest_db = max(self._loudest_db, self._level_db)

    def _translate(self) -> None:
        count = "all" if self.pace == "real" else "one"
        while (chunks := _take(self._audio, count)) and not self._failed:
            samples = np.concatenate(chunks)
            if self.pace == "fast":
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
        if words:
            self.words.extend(words)
            if self.speaker is not None:
                self._to_speak.put((" ".join(word.text for word in words), self._ready_s))

    def _speak(self) -> None:
        while (items := _take(self._to_speak)) and not self._failed:
            texts, ready_s = zip(*items, strict=True)
            self.speaker.say(" ".join(texts), ready_s[-1])
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


def _take(items: "queue.SimpleQueue[T | None]", count: Literal["one", "all"] = "all") -> list[T]:
    """Wait for items and return the first or all; return [] after the end."""
    taken: list[T] = []
    while (item := items.get()) is not None:
        taken.append(item)
        if count == "one" or items.empty():
            return taken
    items.put(None)  # for the next call
    return taken


def level_db(samples: np.ndarray) -> float:
    """Return the power of int16 samples in decibels relative to full scale."""
    power = np.mean(np.square(samples.astype(np.float32) / 32768)) if len(samples) else 0.0
    return max(float(10 * np.log10(power)) if power > 0 else _SILENCE_DB, _SILENCE_DB)
