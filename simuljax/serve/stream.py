"""Live streams of any model, and what a model has to offer for them.

A `Backend` is a model with its settings: it opens sessions (`simuljax.serve.session`), and its rows
compute the READs of many of them at once. `Stream` is one session with a row to itself;
`stream_all` plays recordings to many sessions; `simuljax.serve.engine` serves many live ones.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import numpy as np

from simuljax.serve.session import Session


@dataclass(frozen=True)
class Word:
    """A committed word: it will not change."""

    text: str
    delay_ms: float  # of the source that had been pushed
    elapsed_ms: float  # the same plus the time spent until then


class Rows(Protocol):
    """The states of so many streams on a device."""

    meanwhile: Callable[[], object]  # may be called while the device computes

    def step(self, reads: Mapping[int, Any]) -> Mapping[int, Any]:
        """Compute one READ of some rows; return what each has written, for `Session.commit`."""
        ...


class Backend(Protocol):
    """A model with settings, compiled once for all of its streams."""

    def open(self) -> Session: ...

    def rows(self, streams: int) -> Rows:
        """Return room for so many streams."""
        ...

    def compile(self, streams: int) -> None:
        """Compile all that so many streams may need."""
        ...


def batch_sizes(streams: int) -> tuple[int, ...]:
    """Return the numbers of rows that an encoder of whole sounds is compiled for: 1, 4, ..., all.

    On a CPU one: there, two rows take as long as two times one.
    """
    if jax.default_backend() == "cpu":
        return (1,)
    return (*(4**power for power in range(streams) if 4**power < streams), streams)


def batches(rows: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[list[int], int]]:
    """Yield parts of the rows, each with the size that it is padded to; sizes rise."""
    for k in range(0, len(rows), sizes[-1]):
        part = [*rows[k : k + sizes[-1]]]
        yield part, next(size for size in sizes if size >= len(part))


class Stream:
    """One speaker, with a device to himself. Sound may come in pieces of any size."""

    def __init__(self, backend: Backend):
        self.backend, self.session, self.rows = backend, backend.open(), backend.rows(1)
        self.computed_ms = 0.0

    @property
    def pending(self) -> str:
        """Return the text that is not committed yet; "" where there is none."""
        return self.session.pending

    @property
    def settled_s(self) -> float:
        """Return the seconds of sound for which no more words will come."""
        return self.session.settled_s

    def push(self, samples: Sequence[float] | np.ndarray) -> list[Word]:
        """Take more sound: mono, int16 or float in [-1, 1]. Return the words it completes."""
        start = time.perf_counter()
        self.session.push(np.asarray(samples))
        return self._listen(start)

    def finish(self) -> list[Word]:
        """Note that nothing more will come; return the words that were still waiting."""
        start = time.perf_counter()
        self.session.finish()
        return self._listen(start)

    def _listen(self, start: float) -> list[Word]:
        words = []
        while (read := self.session.next()) is not None:
            texts = self.session.commit(self.rows.step({0: read})[0])
            delay = self.session.delay_ms
            elapsed = delay + self.computed_ms + (time.perf_counter() - start) * 1e3
            words += [Word(text=text, delay_ms=delay, elapsed_ms=elapsed) for text in texts]
        self.computed_ms += (time.perf_counter() - start) * 1e3
        return words


@dataclass(kw_only=True, eq=False)
class _Playback:
    """A recording that is pushed to its session a READ at a time."""

    session: Session
    samples: np.ndarray
    words: list[Word] = field(default_factory=list)
    pushed: int = 0
    computed_ms: float = 0.0

    def next(self) -> Any:
        while (read := self.session.next()) is None and not self.session.finished:
            size = self.session.push_size
            chunk = self.samples[self.pushed : self.pushed + size]
            self.pushed += len(chunk)
            self.session.push(chunk)
            if len(chunk) < size:
                self.session.finish()
        return read

    def commit(self, written: Any, took_ms: float) -> None:
        texts, delay = self.session.commit(written), self.session.delay_ms
        elapsed = delay + self.computed_ms + took_ms
        self.words += [Word(text=text, delay_ms=delay, elapsed_ms=elapsed) for text in texts]


def stream_all(
    backend: Backend, recordings: Sequence[np.ndarray], *, streams: int = 16
) -> list[list[Word]]:
    """Return the words of recordings, int16 at 16 kHz, each played to a stream of its own.

    READs of up to `streams` recordings are computed at once. `elapsed_ms` counts the whole of each
    step that a recording took part in.
    """
    playing = [_Playback(session=backend.open(), samples=each) for each in recordings]
    rows = backend.rows(min(streams, len(playing))) if playing else None
    waiting, seated = deque(playing), dict[int, _Playback]()
    free = list(range(min(streams, len(playing))))[::-1]
    while waiting or seated:
        while free and waiting:
            seated[free.pop()] = waiting.popleft()
        start = time.perf_counter()
        reads = {row: read for row, one in seated.items() if (read := one.next()) is not None}
        written = rows.step(reads) if rows is not None and reads else {}
        took_ms = (time.perf_counter() - start) * 1e3
        for row, result in written.items():
            seated[row].commit(result, took_ms)
            seated[row].computed_ms += took_ms
        for row in [row for row, one in seated.items() if one.session.finished]:
            seated.pop(row)
            free.append(row)
    return [one.words for one in playing]
