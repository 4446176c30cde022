"""Record, translate and speak at the same time, each in its own thread.

    source -> [audio] -> stream -> [words] -> speaker
    recorder            translator           speaker

Brackets are queues. No thread blocks another:

    recorder    queues every sample. The queue of a live source holds an hour (115 MB); a model that
                is an hour late is an error. No sound is dropped.
    translator  takes the whole queue at once, so that a slow model gets fewer and longer chunks. A
                file at the "fast" pace is taken chunk by chunk instead: its words do not depend on
                the speed of the machine.
    speaker     speaks everything in its queue at once, at most 100,000 words.

`finish` ends the recording; the sound until then is translated and spoken. An error in one thread
ends all of them; `words` keeps what was committed.

Times are seconds from the start of the source. Words are ready at max(ready time of the words
before, end of the pushed sound) + time spent on them. This is the wall clock of a live source.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np

from simuljax.audio import RATE, AudioError
from simuljax.errors import SimuljaxError
from simuljax.serve.audio_io import Pace
from simuljax.serve.session import Word

LIVE_QUEUE_S, FILE_QUEUE_S = 3600.0, 5.0
_WORD_LIMIT = 100_000
_SILENCE_DB = -100.0

T = TypeVar("T")


class LiveError(SimuljaxError):
    """A live translation that cannot start or cannot go on."""


class QueueFullError(LiveError):
    """The consumer of a queue is too slow."""


class BoundedQueue(Generic[T]):
    """A first-in-first-out queue from one thread to another, bounded by the size of its items."""

    def __init__(
        self, *, limit: int, size_of: Callable[[T], int], when_full: Literal["wait", "raise"]
    ) -> None:
        self.limit, self.size_of, self.when_full = limit, size_of, when_full
        self.size = 0
        self._items: deque[T] = deque()
        self._closed = False
        self._changed = threading.Condition()

    def put(self, item: T) -> bool:
        """Append an item; return False if the queue is closed.

        A full queue waits or raises `QueueFullError`. An item above the limit is taken when the
        queue is empty.
        """
        size = self.size_of(item)
        with self._changed:
            while not self._closed and self._items and self.size + size > self.limit:
                if self.when_full == "raise":
                    raise QueueFullError(f"the queue holds {self.size} of {self.limit}")
                self._changed.wait()
            if self._closed:
                return False
            self._items.append(item)
            self.size += size
            self._changed.notify_all()
            return True

    def take(self, count: Literal["one", "all"] = "all") -> list[T]:
        """Wait for items and return the first or all; return [] after the end."""
        with self._changed:
            while not self._items and not self._closed:
                self._changed.wait()
            number = len(self._items) if count == "all" else min(1, len(self._items))
            taken = [self._items.popleft() for _ in range(number)]
            self.size -= sum(map(self.size_of, taken))
            self._changed.notify_all()
            return taken

    def close(self, *, discard: bool = False) -> None:
        """Refuse further items; those in the queue can still be taken unless discarded."""
        with self._changed:
            if discard:
                self._items.clear()
                self.size = 0
            self._closed = True
            self._changed.notify_all()


class LiveStream(Protocol):
    """The stream of any model, as the pipeline uses it."""

    @property
    def pending(self) -> str:
        """Return the text that is written and not committed."""
        ...

    @property
    def settled_s(self) -> float:
        """Return the seconds of sound that no more words can come from."""
        ...

    def push(self, samples: np.ndarray) -> list[Word]: ...
    def finish(self) -> list[Word]: ...


class SpeechOutput(Protocol):
    """Speak text that is ready at a time."""

    @property
    def end_s(self) -> float: ...
    def say(self, text: str, ready_s: float) -> object: ...
    def finish(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Committed:
    """The words of one push."""

    words: tuple[Word, ...]
    ready_s: float

    @property
    def text(self) -> str:
        """Return the words as one text."""
        return " ".join(word.text for word in self.words)


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
        stream: LiveStream,
        source: Generator[np.ndarray, None, None],
        *,
        speaker: SpeechOutput | None = None,
        pace: Pace = "real",
        queue_s: float | None = None,
    ):
        self.stream, self.source, self.speaker, self.pace = stream, source, speaker, pace
        limit_s = queue_s or (LIVE_QUEUE_S if pace == "real" else FILE_QUEUE_S)
        self.audio: BoundedQueue[np.ndarray] = BoundedQueue(
            limit=round(limit_s * RATE),
            size_of=len,
            when_full="raise" if pace == "real" else "wait",
        )
        self.to_speak: BoundedQueue[Committed] = BoundedQueue(
            limit=_WORD_LIMIT, size_of=lambda item: len(item.words), when_full="raise"
        )
        self.words: list[Word] = []
        self.error: BaseException | None = None
        self._recorded = self._pushed = 0  # samples
        self._ready_s = 0.0
        self._level_db = self._loudest_db = _SILENCE_DB
        self._threads = [self._thread(work) for work in (self._record, self._translate)]
        if speaker is not None:
            self._threads.append(self._thread(self._speak))

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Stop recording; the sound until now is translated and spoken."""
        self.audio.close()

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
    def recorded_s(self) -> float:
        """Return the seconds of sound so far."""
        return self._recorded / RATE

    def progress(self) -> Progress:
        """Return a snapshot."""
        return Progress(
            recorded_s=self.recorded_s,
            settled_s=self.stream.settled_s,
            level_db=self._level_db,
            loudest_db=self._loudest_db,
            pending=self.stream.pending,
            spoken_s=self.speaker.end_s if self.speaker else None,
        )

    def _record(self) -> None:
        with contextlib.closing(self.source) as source:
            try:
                for samples in source:
                    if not self.audio.put(samples):
                        break
                    if self.pace == "real":
                        self._count(samples)
            except AudioError as error:  # ends the sound; raised after its translation
                self.error = error
            except QueueFullError as error:
                raise QueueFullError(
                    f"the model is {self.audio.size / RATE:.0f} s behind the speaker and the queue "
                    "is full: use a smaller model, a larger --window, or --pace fast for a pipe "
                    "that can wait"
                ) from error
        self.audio.close()

    def _count(self, samples: np.ndarray) -> None:
        """Count sound when it is recorded; that of a file when the model takes it."""
        self._recorded += len(samples)
        self._level_db = level_db(samples)
        self._loudest_db = max(self._loudest_db, self._level_db)

    def _translate(self) -> None:
        count = "all" if self.pace == "real" else "one"
        while chunks := self.audio.take(count):
            samples = np.concatenate(chunks)
            if self.pace == "fast":
                self._count(samples)
            self._pushed += len(samples)
            self._commit(lambda samples=samples: self.stream.push(samples))
        if self.error is None or isinstance(self.error, AudioError):
            self._commit(self.stream.finish)
        self.to_speak.close()

    def _commit(self, step: Callable[[], list[Word]]) -> None:
        start = time.perf_counter()
        words = tuple(step())
        spent = time.perf_counter() - start
        self._ready_s = max(self._ready_s, self._pushed / RATE) + spent
        if words:
            self.words.extend(words)
            if self.speaker is not None:
                self.to_speak.put(Committed(words=words, ready_s=self._ready_s))

    def _speak(self) -> None:
        assert self.speaker is not None
        while items := self.to_speak.take():
            self.speaker.say(" ".join(item.text for item in items), items[-1].ready_s)
        if self.error is None or isinstance(self.error, AudioError):
            self.speaker.finish()

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.error = self.error or error
                self.audio.close(discard=True)
                self.to_speak.close(discard=True)

        return threading.Thread(target=run, name=work.__name__.strip("_"), daemon=True)


def level_db(samples: np.ndarray) -> float:
    """Return the power of int16 samples in decibels relative to full scale."""
    power = np.mean(np.square(samples.astype(np.float32) / 32768)) if len(samples) else 0.0
    return max(float(10 * np.log10(power)) if power > 0 else _SILENCE_DB, _SILENCE_DB)
