"""Sessions of the server: asyncio on one side, one thread that steps the device on the other.

The event loop pushes sound and reads words; it never computes. The device thread steps the engine
of every model that has a READ and posts the words to the loop, once a step. A step takes one READ
of every stream that has one, so a speaker waits for two steps at most: while a step is shorter
than a READ, everybody keeps up. That is the measure by which new sessions are admitted.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simuljax.errors import SimuljaxError
from simuljax.serve.engine import Engine, EngineStream
from simuljax.serve.session import MS
from simuljax.serve.stream import Word
from simuljax.serve.web.metrics import ModelMetrics

if TYPE_CHECKING:
    from simuljax.serve.web.hub import Hub

LOG = logging.getLogger("simuljax.serve")
RETRY_S = 5  # until a refused client should ask again


class Refused(SimuljaxError):
    """A session that is not admitted, or that the server ends; `reason` is a word for metrics."""

    def __init__(self, reason: str, message: str, *, retry_s: int | None = None):
        super().__init__(message)
        self.reason, self.retry_s = reason, retry_s

    @property
    def error(self) -> dict[str, Any]:
        kind = "invalid_request_error" if self.retry_s is None else "server_error"
        return {"type": kind, "code": self.reason, "message": str(self), "param": None}

    @property
    def retry_after(self) -> dict[str, int]:
        """Return when to ask again, as a part of an answer."""
        return {} if self.retry_s is None else {"retry_after": self.retry_s}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one session."""

    idle_s: float = 60.0  # without sound
    longest_s: float = 6 * 3600.0
    frame_bytes: int = 1 << 20
    frame_ms: float = 30_000.0  # of sound
    waiting_ms: float = 10_000.0  # of sound; with more, the socket is not read
    words: int = 5_000  # that wait for a slow reader, or are kept for one who comes back
    send_s: float = 20.0  # until a frame has to be taken
    keep_s: float = 30.0  # that a session waits for its client to come back
    load: float = 0.9  # of a READ that a step may take before nobody else is admitted


class Model:
    """A model that is served: its engine, and the sessions that are open."""

    def __init__(
        self,
        name: str,
        make_engine: Callable[[], Engine],
        languages: tuple[str, ...],
        clip: Path | None = None,
    ):
        self.name, self.make_engine, self.languages, self.clip = name, make_engine, languages, clip
        self.engine = make_engine()
        self.sessions: dict[EngineStream, LiveSession] = {}
        self.metrics = ModelMetrics()
        self.read_ms = self.engine.backend.open().size / MS
        self.step_s: dict[int, float] = {}  # of so many streams, when the server began

    @property
    def skips(self) -> bool:
        """Return True if late streams leave out windows, as Whisper's do."""
        return hasattr(self.engine.backend.open(), "settings")

    def warm_up(self) -> None:
        """Compile all that streams may need; time a step of 1, 2, 4, ... until one is late."""
        rows = len(self.engine.streams)
        self.engine.backend.compile(rows)
        counts = [1 << power for power in range(rows.bit_length()) if 1 << power < rows]
        for count in (*counts, rows):
            self.step_s[count] = self._step_s(count)
            if self.step_s[count] * 1000 > self.read_ms:
                break

    def _step_s(self, count: int) -> float:
        random = np.random.default_rng(0)
        loud = np.repeat(random.uniform(0, 0.3, 64), int(self.read_ms * MS) // 64 + 1)
        streams = [self.engine.open() for _ in range(count)]
        for stream in streams:
            stream.push((random.normal(size=len(loud)) * loud).clip(-1, 1))
        start = time.perf_counter()
        self.engine.step()
        took = time.perf_counter() - start
        for stream in streams:
            stream.leave()
        return took

    def growth(self, count: int) -> float:
        """Return how much longer a step takes with one more stream than `count`, at most (n+1)/n.

        A streaming encoder computes all rows in any case: 1. It is (n+1)/n beyond what was timed.
        """
        if count == 0 or not self.step_s:
            return 1.0
        if count >= max(self.step_s):
            return (count + 1) / count
        sizes, times = [*self.step_s], [*self.step_s.values()]
        now, then = np.interp([count, count + 1], sizes, times)
        return float(min(max(then / now, 1.0), (count + 1) / count))

    def gauges(self, step_s: float) -> dict[str, float]:
        """Return what is measured now."""
        waiting = sum(one.waiting_ms for one in self.sessions.values()) / 1000
        done = self.metrics
        return {
            "simuljax_sessions": len(self.sessions),
            "simuljax_rows": len(self.engine.streams),
            "simuljax_waiting_audio_seconds": waiting,
            "simuljax_recent_step_p90_seconds": step_s,
            "simuljax_real_time_factor": done.step_s / done.audio_s if done.audio_s else 0.0,
        }


class LiveSession:
    """One speaker. All methods belong to the event loop."""

    def __init__(self, hub: "Hub", model: Model, stream: EngineStream, rate: int, name: str | None):
        self.hub, self.model, self.stream, self.rate, self.name = hub, model, stream, rate, name
        self.words: list[Word] = []
        self.dropped = 0  # words that are not kept any more
        self.pending, self.read = "", (0.0, 0.0)
        self.received = 0  # samples
        self.half = b""  # a byte whose other half has not come
        self.longest_frame = int(hub.limits.frame_ms / 1000 * rate) * 2  # bytes
        self.news, self.room = asyncio.Event(), asyncio.Event()
        self.finishing = self.done = False
        self.failure: Refused | None = None
        self.farewell: Refused | None = None  # why the server ended the speech
        self.connection = 0  # number of the one that has the session now
        self.attached = True
        self.opened = self.active = self.left = time.monotonic()

    @property
    def waiting_ms(self) -> float:
        """Return the sound that was pushed and not read."""
        return self.stream.waiting_ms

    def idle_s(self, now: float) -> float:
        """Return the seconds without sound; none while a frame is held back, or after the end."""
        return 0.0 if self.finishing or self in self.hub.blocked else now - self.active

    async def push(self, data: bytes) -> None:
        """Take PCM16. Wait while much of it waits already: the client's socket fills up."""
        data = self.half + data
        whole = len(data) & ~1
        data, self.half = data[:whole], data[whole:]
        if whole > self.longest_frame:
            longest = self.hub.limits.frame_ms / 1000
            raise Refused("frame", f"more than {longest:.0f} s of sound in a frame: send less")
        if self.waiting_ms > self.hub.limits.waiting_ms:
            await self._wait_for_room()
        self.check()
        if self.farewell is not None:
            return  # the client will be told, and may send it again elsewhere
        if self.finishing:
            raise Refused("protocol", "the speech has been finished: open another session")
        self._offer(data)

    async def _wait_for_room(self) -> None:
        blocked = self.hub.blocked
        blocked.add(self)  # before a look at what waits, or the last step might be missed
        try:
            while self.waiting_ms > self.hub.limits.waiting_ms and not (self.done or self.failure):
                self.room.clear()
                await self.room.wait()
        finally:
            blocked.discard(self)

    def try_push(self, data: bytes) -> bool:
        """Take PCM16 if nothing has to be waited for or said; else return False."""
        if (
            self in self.hub.blocked
            or self.finishing
            or self.done
            or self.failure is not None
            or self.half
            or len(data) & 1
            or len(data) > self.longest_frame
            or self.waiting_ms > self.hub.limits.waiting_ms
        ):
            return False
        self._offer(data)
        return True

    def _offer(self, data: bytes) -> None:
        if data and not self.done:
            self.active = time.monotonic()
            if self.stream.offer(data):
                self.hub.work.set()
        self.received += len(data) // 2
        self.model.metrics.audio_s += len(data) / 2 / self.rate

    def finish(self) -> None:
        """Note that nothing more will come; the last words follow."""
        if not self.finishing and self.failure is None:
            self.finishing = True
            self.stream.offer(None)
            self.hub.work.set()

    def end(self, farewell: Refused) -> None:
        """End the speech in place of the client, who is told why after the last words."""
        if not self.finishing and self.failure is None:
            self.farewell = farewell
            self.model.metrics.cut[farewell.reason] += 1
            LOG.warning("session of %s ended: %s", self.model.name, farewell)
            self.finish()

    def deliver(
        self, words: list[Word], pending: str, read: tuple[float, float], done: bool
    ) -> None:
        """Take what a step has written, and how far it has read: ms, and ms pushed by then."""
        self.words += words
        if (surplus := len(self.words) - self.hub.limits.words) > 0:
            del self.words[:surplus]
            self.dropped += surplus
        self.pending, self.read, self.done = pending, read, self.done or done
        self.active = time.monotonic()
        for word in words:
            self.model.metrics.word_latency.add((word.elapsed_ms - word.delay_ms) / 1000)
        self.model.metrics.counters["words"] += len(words)
        self.news.set()

    def after(self, sent: int) -> list[Word]:
        """Return the words after the first `sent`; keep those for one who may come back."""
        if sent < self.dropped:
            raise Refused("slow", f"more than {self.hub.limits.words} words were not read in time")
        if self.name is None:
            del self.words[: sent - self.dropped]
            self.dropped = sent
        return self.words[sent - self.dropped :]

    def over(self, sent: int) -> bool:
        """Return True if the first `sent` words are all there will be; raise the failure."""
        self.check()
        return self.done and sent == self.dropped + len(self.words)

    async def follow(self) -> AsyncIterator[Word]:
        """Yield the words as they come, to the last."""
        sent = 0
        while True:
            for word in self.after(sent):
                yield word
                sent += 1
            if self.over(sent):
                return
            await self.more()

    async def more(self) -> None:
        await self.news.wait()
        self.news.clear()

    def fail(self, failure: Refused) -> None:
        """End the session; those who wait for it are told."""
        if self.failure is None and not self.done:
            self.failure = failure
            self.model.metrics.cut[failure.reason] += 1
            LOG.warning("session of %s ended: %s", self.model.name, failure)
        self.news.set()
        self.room.set()

    def check(self) -> None:
        """Raise the failure, if there is one."""
        if self.failure is not None:
            raise self.failure
