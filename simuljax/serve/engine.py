"""Many live streams on one device: sessions whose READs are computed together.

    with translator.engine(streams=64) as engine:
        stream = engine.open()  # or EngineFull
        stream.push(samples)  # or Behind, if too much of it waits already
        stream.words()  # those written since the last time
        stream.finish()
        list(stream)  # the rest

A step takes a READ from every stream that has one and leaves the others as they are: a speaker who
is slow, pauses or leaves holds nobody up. What a stream writes is what it would write alone. Memory
is that of the rows, plus `waiting_ms` of sound for each.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Iterator

import numpy as np

from simuljax.audio import RATE
from simuljax.serve.session import Backend, Session, Word

REMEMBERED = 100_000  # READs whose latencies are kept


class EngineFull(RuntimeError):
    """All rows are taken."""


class Behind(RuntimeError):
    """A stream has more sound waiting than the engine holds for it; nothing of it was lost."""


class EngineStream:
    """One stream of an engine. Its methods may be called from any thread."""

    def __init__(self, engine: "Engine", session: Session, row: int):
        self.engine, self.session, self.row = engine, session, row
        self.written: deque[Word] = deque()
        # PCM16 and when it came, until the next step; None is the end.
        self.offered: deque[tuple[bytes | None, float]] = deque()
        self.offered_bytes = self.taken_bytes = 0  # each counted by one thread
        self.wanted_bytes = 0.0  # offered ones without which there can be no READ

    @property
    def done(self) -> bool:
        """Return True if nothing more will be written."""
        return self.session.finished

    @property
    def pending(self) -> str:
        return self.session.pending

    @property
    def waiting_ms(self) -> float:
        """Return the sound that was pushed or offered and not read; while it is taken, too much."""
        offered = (self.offered_bytes - self.taken_bytes) / 2
        return self.session.waiting_ms + offered * 1000 / self.session.rate

    def offer(self, pcm: bytes | None) -> bool:
        """Take PCM16, or None at the end, for `Engine.take_offered`: no lock, no bound.

        Return True if there may be a READ now.
        """
        self.offered_bytes += len(pcm or b"")
        self.offered.append((pcm, time.perf_counter()))
        # Counted before the look at what is wanted; `Engine.note` does both the other way round.
        is_due = pcm is None or self.has_wanted
        if is_due:
            self.wanted_bytes = math.inf
            self.engine.offering.append(self)
        return is_due

    @property
    def has_wanted(self) -> bool:
        """Return True if so much was offered that there may be a READ."""
        return self.offered_bytes - self.taken_bytes >= self.wanted_bytes

    def take_offered(self) -> None:
        """Push what was offered, with the times at which it came."""
        pieces, ended_at = [], None
        while self.offered:
            pcm, at = self.offered.popleft()
            if pcm is None:
                ended_at = at
            elif pcm:
                pieces.append((pcm, at))
        if pieces and not self.done:
            self.session.push_pcm(pieces)
        self.taken_bytes += sum(len(pcm) for pcm, _ in pieces)  # it has counted as waiting so far
        if ended_at is not None:
            self.session.finish(ended_at)

    def push(self, samples: np.ndarray, timeout: float = 0.0) -> None:
        """Take more sound. Wait up to `timeout` s for room; without room it is refused whole."""
        engine, session, samples = self.engine, self.session, np.asarray(samples)
        new, most = samples.size / session.rate * 1000, engine.waiting_ms
        if new > most:
            raise ValueError(
                f"{new:.0f} ms of sound at once, and the engine holds {most:.0f} for a stream: "
                "push less at a time, or begin it with more waiting_ms"
            )

        def room() -> bool:
            return self.waiting_ms + new <= most or self.done

        with engine.changed:
            engine.changed.wait_for(lambda: room() or engine.failure or engine.closing, timeout)
            engine.check()
            if not room():
                raise Behind(
                    f"{self.waiting_ms:.0f} ms of sound wait already, of {most:.0f} that may: "
                    "push again later, or with a timeout"
                )
            self.take_offered()
            session.push(samples)
            engine.note(self)

    def finish(self) -> None:
        """Note that nothing more will come; the last words follow."""
        with self.engine.changed:
            self.engine.check()
            self.take_offered()
            self.session.finish()
            self.engine.note(self)

    def leave(self, *, wait: bool = True) -> None:
        """Give the row away, whatever it had still to write; at the next step if not to `wait`."""
        self.session.finished = True
        if not self.engine.changed.acquire(blocking=wait):
            self.engine.offering.append(self)
            return
        self.engine.note(self)
        self.engine.changed.release()

    def words(self) -> list[Word]:
        """Return the words written since they were asked for last."""
        with self.engine.changed:
            self.engine.check()
            words = list(self.written)
            self.written.clear()
            return words

    def __iter__(self) -> Iterator[Word]:
        """Yield words as they come, until the stream is done; wait for them."""
        engine = self.engine
        while True:
            with engine.changed:
                engine.changed.wait_for(lambda: self.written or self.done or not engine.serves)
                words = self.words()
            if not words and self.done:
                return
            if not words:
                raise RuntimeError(
                    "the engine is closed, and this stream was not done: wait for words while the "
                    "engine is entered, or call step() and words()"
                )
            yield from words


class Engine:
    """A batch of streams, and the thread that steps it while the engine is entered.

    Without a thread (not entered) call `step` where it suits you.
    """

    def __init__(self, backend: Backend, *, streams: int, waiting_ms: float = 10_000.0):
        self.backend, self.rows, self.waiting_ms = backend, backend.rows(streams), waiting_ms
        self.streams: list[EngineStream | None] = [None] * streams
        self.free = deque(range(streams))
        self.ready: set[int] = set()  # rows with a READ
        self.offering: deque[EngineStream] = deque()  # those with sound that was offered
        self.news: set[EngineStream] | None = None  # that were stepped or are done; see `take_news`
        self.changed = threading.Condition()
        self.latencies_ms: deque[float] = deque(maxlen=REMEMBERED)  # from push to words
        self.steps, self.failure = 0, None
        self.thread: threading.Thread | None = None
        self.closing = False
        self.rows.meanwhile = self.take_offered

    def __enter__(self) -> "Engine":
        self.closing = False
        self.thread = threading.Thread(target=self._serve, daemon=True, name="simuljax engine")
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        with self.changed:
            self.closing = True
            self.changed.notify_all()
        assert self.thread is not None
        self.thread.join()
        self.thread = None

    def open(self) -> EngineStream:
        """Return a new stream in a free row; never wait."""
        try:
            row = self.free.popleft()
        except IndexError:
            raise EngineFull(
                f"all {len(self.streams)} streams are taken: wait for one to end, or begin an "
                "engine of more streams"
            ) from None
        stream = self.streams[row] = EngineStream(self, self.backend.open(), row)
        return stream

    def take_offered(self) -> bool:
        """Push all sound that was offered; return True if a stream has a READ."""
        with self.changed:
            for _ in range(len(self.offering)):  # what comes meanwhile has to wait
                stream = self.offering.popleft()
                stream.take_offered()
                self.note(stream)
            return bool(self.ready)

    def take_news(self) -> list[tuple[EngineStream, list[Word], bool]]:
        """Return the streams that went on since the last time, new words, and True if done.

        From the first call on the engine remembers them.
        """
        with self.changed:
            news, self.news = self.news or (), set()
            return [(stream, stream.words(), stream.done) for stream in news]

    def step(self) -> int:
        """Compute one READ of every stream that has one; return how many those were."""
        with self.changed:
            self.take_offered()
            streams, reads = list(self.streams), {}
            for row in sorted(self.ready):
                stream = self.streams[row]
                if stream is None:
                    continue
                stream.take_offered()
                if (read := stream.session.next()) is not None:
                    reads[row] = read
                else:  # silence was skipped, and that was all
                    self.note(stream)
        if not reads:
            return 0
        written = self.rows.step(reads)
        self.steps += 1
        with self.changed:
            for row, result in written.items():
                stream = streams[row]
                if stream is None or stream is not self.streams[row] or stream.done:
                    continue  # the row was given to somebody else meanwhile
                texts = stream.session.commit(result)
                took_ms = (time.perf_counter() - stream.session.needed.at) * 1e3
                self.latencies_ms.append(took_ms)
                stream.written.extend(stream.session.timed(texts, took_ms))
                if self.news is not None:
                    self.news.add(stream)
                self.note(stream)
            self.changed.notify_all()
        return len(reads)

    def note(self, stream: EngineStream) -> None:
        """Remember if the stream has something to do; free its row if it is done."""
        row = stream.row
        if self.streams[row] is not stream:
            return
        self.ready.discard(row)
        if stream.done:
            self.streams[row] = None
            self.free.append(row)
            if self.news is not None:
                self.news.add(stream)
        elif stream.session.ready:
            self.ready.add(row)
            stream.wanted_bytes = math.inf  # the next step takes what was offered
        else:
            stream.wanted_bytes = 2 * (stream.session.missing * stream.session.rate // RATE)
            if stream.offered and stream.has_wanted:
                stream.take_offered()
                self.note(stream)
            return
        self.changed.notify_all()

    @property
    def serves(self) -> bool:
        """Return True if a thread steps, so that it is worth waiting."""
        return self.thread is not None and not self.closing and self.failure is None

    def check(self) -> None:
        """Raise what has stopped the engine, if anything has."""
        if self.failure is not None:
            raise RuntimeError("the engine has stopped") from self.failure

    def _serve(self) -> None:
        """Step while there is something to do."""
        try:
            while True:
                with self.changed:
                    self.changed.wait_for(lambda: self.ready or self.closing)
                    if self.closing:
                        return
                self.step()
        except BaseException as error:
            with self.changed:
                self.failure = error
                self.changed.notify_all()
            raise
