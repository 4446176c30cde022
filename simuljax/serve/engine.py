"""Many live streams on one device: rows of a batch that one compiled step moves on.

    with translator.engine(streams=64) as engine:
        seat = engine.open()  # or EngineFull
        seat.push(samples)  # or Behind, if too much of it waits already
        seat.words()  # those written since the last time
        seat.finish()
        list(seat)  # the rest

A step takes a READ from every stream that has one and leaves the other rows as they are: who speaks
slowly, pauses or leaves holds nobody up. What a stream writes is what it would write alone. Memory
is that of the rows, plus `waiting_ms` of sound for each.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.decode import slots
from simuljax.decode.stream import Chunk, Events, Learnt, StreamingDecoder
from simuljax.serve.session import Listener, Read, Word

REMEMBERED = 100_000  # READs whose latencies are kept


class EngineFull(RuntimeError):
    """All rows are taken."""


class Behind(RuntimeError):
    """A stream has more sound waiting than the engine holds for it; nothing of it was lost."""


class Seat:
    """One stream of an engine. Its methods may be called from any thread."""

    def __init__(self, engine: "Engine", listener: Listener, row: int):
        self.engine, self.listener, self.row = engine, listener, row
        self.written: deque[Word] = deque()

    @property
    def done(self) -> bool:
        """Whether nothing more will be written."""
        return self.listener.finished

    def push(self, samples: np.ndarray, timeout: float = 0.0) -> None:
        """More sound. Waits up to `timeout` s for room; without room it is refused whole."""
        self.engine.take(self, np.asarray(samples), timeout)

    def finish(self) -> None:
        """Nothing more will be said; its last words follow."""
        self.engine.end(self)

    def leave(self) -> None:
        """Gives the row away, whatever it had still to write."""
        self.engine.release(self)

    def words(self) -> list[Word]:
        """Those written since they were asked for last."""
        return self.engine.collect(self)

    def __iter__(self) -> Iterator[Word]:
        """Words as they come, until the stream is done; waits for them."""
        while (words := self.engine.collect(self, wait=True)) or not self.done:
            yield from words


class Engine:
    """A batch of streams, and the thread that steps it while the engine is entered.

    Without a thread (not entered) call `step` where it suits you.
    """

    def __init__(
        self,
        decoder: StreamingDecoder,
        learnt: Learnt,
        listener: Callable[[], Listener],
        *,
        streams: int,
        waiting_ms: float = 10_000.0,
    ):
        self.decoder, self.learnt, self.listener = decoder, learnt, listener
        self.size, self.waiting_ms = listener().read, waiting_ms
        axes, device = slots.batch_axes(decoder, learnt), jax.local_devices()[0]
        self.fresh = jax.device_put(decoder.init(learnt, 1), device)
        self.state = jax.device_put(decoder.init(learnt, streams), device)
        self.seat_anew = jax.jit(
            lambda state, row, new: slots.put(state, row, new, axes), donate_argnums=0
        )
        self.advance = jax.jit(decoder.step, donate_argnums=1)
        self.seats: list[Seat | None] = [None] * streams
        self.free = deque(range(streams))
        self.ready: set[int] = set()  # rows with a READ, or with more to write
        self.more: set[int] = set()  # rows that have more to write of what they heard
        self.changed = threading.Condition()
        self.latencies_ms: deque[float] = deque(maxlen=REMEMBERED)  # from push to events
        self.steps, self.failure = 0, None
        self.thread: threading.Thread | None = None
        self.closing = False
        self._advance({0: Read(samples=np.zeros(0, np.int16), ended=False, anew=True)})  # compiles

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

    def open(self) -> Seat:
        """A row for a new stream."""
        with self.changed:
            if not self.free:
                raise EngineFull(
                    f"all {len(self.seats)} streams are taken: wait for one to end, or begin an "
                    "engine of more streams"
                )
            row = self.free.popleft()
            seat = self.seats[row] = Seat(self, self.listener(), row)
            return seat

    def take(self, seat: Seat, samples: np.ndarray, timeout: float) -> None:
        """Sound for a stream: see `Seat.push`."""

        new = samples.size / seat.listener.rate * 1000
        if new > self.waiting_ms:
            raise ValueError(
                f"{new:.0f} ms of sound at once, and the engine holds {self.waiting_ms:.0f} for a "
                "stream: push less at a time, or begin it with more waiting_ms"
            )

        def room() -> bool:
            return seat.listener.waiting_ms + new <= self.waiting_ms or seat.done

        with self.changed:
            self.changed.wait_for(lambda: room() or self.failure or self.closing, timeout)
            self._check()
            if not room():
                raise Behind(
                    f"{seat.listener.waiting_ms:.0f} ms of sound wait already, of "
                    f"{self.waiting_ms:.0f} that may: push again later, or with a timeout"
                )
            seat.listener.push(samples)
            self._note(seat)

    def end(self, seat: Seat) -> None:
        """No more sound: see `Seat.finish`."""
        with self.changed:
            self._check()
            seat.listener.finish()
            self._note(seat)
            self._release_if_done(seat)

    def release(self, seat: Seat) -> None:
        """Frees the row: see `Seat.leave`."""
        with self.changed:
            seat.listener.finished = True
            self._release_if_done(seat)

    def collect(self, seat: Seat, wait: bool = False) -> list[Word]:
        """What a stream has written: see `Seat.words`."""
        with self.changed:
            if wait:
                self.changed.wait_for(lambda: seat.written or seat.done or not self._serves())
            self._check()
            words = list(seat.written)
            seat.written.clear()
            if wait and not words and not seat.done:
                raise RuntimeError(
                    "the engine is closed, and this stream was not done: wait for words while the "
                    "engine is entered, or call step() and words()"
                )
            return words

    def step(self) -> int:
        """One READ of every stream that has one; gives how many those were."""
        with self.changed:
            reads, seats = self._reads(), list(self.seats)
        if not reads:
            return 0
        events = self._advance(reads)
        with self.changed:  # a row may have been given to somebody else meanwhile
            self._hand_out([row for row in reads if self.seats[row] is seats[row]], events)
            self.changed.notify_all()
        return len(reads)

    def _reads(self) -> dict[int, Read]:
        reads = {}
        for row in sorted(self.ready):
            seat = self.seats[row]
            if row in self.more:  # no sound: the step goes on writing
                reads[row] = Read(samples=np.zeros(0, np.int16), ended=False, anew=False)
            elif seat and (read := seat.listener.next()):
                reads[row] = read
        return reads

    def _advance(self, reads: dict[int, Read]) -> Events:
        """On the device; nothing else touches its state."""
        sound = np.zeros((len(self.seats), self.size), np.int16)
        length = np.zeros(len(self.seats), np.int32)
        ended = np.zeros(len(self.seats), bool)
        for row, read in reads.items():
            if read.anew:
                self.state = self.seat_anew(self.state, np.int32(row), self.fresh)
            sound[row, : len(read.samples)] = read.samples
            length[row], ended[row] = len(read.samples), read.ended
        chunk = Chunk(
            samples=jnp.asarray(sound), length=jnp.asarray(length), ended=jnp.asarray(ended)
        )
        self.state, events = self.advance(self.learnt, self.state, chunk)
        self.steps += 1
        return jax.device_get(events)

    def _hand_out(self, rows: list[int], events: Events) -> None:
        now = time.perf_counter()
        for row in rows:
            seat = self.seats[row]
            if seat is None:  # left meanwhile
                continue
            (self.more.add if events.more[row] else self.more.discard)(row)
            late = (now - seat.listener.needed.at) * 1e3
            self.latencies_ms.append(late)
            delay = seat.listener.delay_ms
            for text in seat.listener.write(*events.row(row)):
                seat.written.append(Word(text=text, delay_ms=delay, elapsed_ms=delay + late))
            self._note(seat)
            self._release_if_done(seat)

    def _note(self, seat: Seat) -> None:
        """Whether the stream has something to do."""
        if self.seats[seat.row] is not seat:
            return
        if seat.row in self.more or seat.listener.ready:
            self.ready.add(seat.row)
            self.changed.notify_all()
        else:
            self.ready.discard(seat.row)

    def _release_if_done(self, seat: Seat) -> None:
        if seat.done and self.seats[seat.row] is seat:
            self.seats[seat.row] = None
            self.ready.discard(seat.row)
            self.more.discard(seat.row)
            self.free.append(seat.row)
            self.changed.notify_all()

    def _serves(self) -> bool:
        """Whether a thread steps, so that it is worth waiting."""
        return self.thread is not None and not self.closing and self.failure is None

    def _check(self) -> None:
        if self.failure is not None:
            raise RuntimeError("the engine has stopped") from self.failure

    def _serve(self) -> None:
        """Steps while there is something to do."""
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
