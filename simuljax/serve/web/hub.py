"""Sessions of the server, and who is let in: asyncio on one side, one thread on the other.

The event loop pushes sound and reads words; it never computes. The device thread steps the engine
of every model that has a READ and posts the words to the loop, once a step. A step takes one READ
of every stream that has one, so a speaker waits for two steps at most: while a step is shorter
than a READ, everybody keeps up. That is the measure by which new sessions are admitted.
"""

import asyncio
import dataclasses
import gc
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from simuljax.errors import SimuljaxError, unknown
from simuljax.serve.engine import EngineStream
from simuljax.serve.session import Word
from simuljax.serve.web.models import Model, Recent, exposition

LOG = logging.getLogger("simuljax.serve")
RETRY_S = 5  # until a refused client should ask again
TICK_S = 0.25
RATES = range(8_000, 48_001)


class Refused(SimuljaxError):
    """A session that is not admitted, or that the server ends; `reason` is a word for metrics."""

    def __init__(self, reason: str, message: str, *, retry: bool = False):
        super().__init__(message)
        self.reason, self.retry = reason, retry

    @property
    def retry_after(self) -> dict[str, int]:
        """Return when to ask again, as a part of an answer."""
        return {"retry_after": RETRY_S} if self.retry else {}

    @property
    def error(self) -> dict[str, Any]:
        """Return the refusal in the form of OpenAI's errors."""
        kind = "server_error" if self.retry else "invalid_request_error"
        error = {"type": kind, "code": self.reason, "message": str(self), "param": None}
        return error | self.retry_after


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


class LiveSession:
    """One speaker. All methods belong to the event loop."""

    def __init__(self, hub: "Hub", model: Model, stream: EngineStream, name: str | None):
        self.hub, self.model, self.stream, self.name = hub, model, stream, name
        self.words: list[Word] = []
        self.dropped = 0  # words that are not kept any more
        self.pending, self.read = "", (0.0, 0.0)
        self.received = 0  # samples
        self.half = b""  # a byte whose other half has not come
        self.rate = stream.session.rate
        self.longest_frame = int(hub.limits.frame_ms / 1000 * self.rate) * 2  # bytes
        self.news, self.room = asyncio.Event(), asyncio.Event()
        self.finishing = self.done = False
        self.failure: Refused | None = None
        self.farewell: Refused | None = None  # why the server ended the speech
        self.connection = 0  # number of the one that has the session now
        self.left: float | None = None  # when its connection was lost
        self.opened = self.active = time.monotonic()

    @property
    def held_back(self) -> bool:
        """Return True if so much sound waits to be read that no more is taken."""
        return self.stream.waiting_ms > self.hub.limits.waiting_ms

    async def push(self, data: bytes) -> None:
        """Take PCM16. Wait while much of it waits already: the client's socket fills up."""
        data = self.half + data
        whole = len(data) & ~1
        data, self.half = data[:whole], data[whole:]
        if whole > self.longest_frame:
            longest = self.hub.limits.frame_ms / 1000
            raise Refused("frame", f"more than {longest:.0f} s of sound in a frame: send less")
        self.hub.blocked.add(self)  # before a look at what waits, or the last step might be missed
        try:
            while self.held_back and not (self.done or self.failure):
                self.room.clear()
                await self.room.wait()
        finally:
            self.hub.blocked.discard(self)
        self.check()
        if self.farewell is not None:
            return  # the client will be told, and may send it again elsewhere
        if self.finishing:
            raise Refused("protocol", "the speech has been finished: open another session")
        self._offer(data)

    def try_push(self, data: bytes) -> bool:
        """Take PCM16 if nothing has to be waited for or said; else return False."""
        over = self.finishing or self.done or self.failure is not None
        odd = self.half or len(data) & 1 or len(data) > self.longest_frame
        if over or odd or self in self.hub.blocked or self.held_back:
            return False
        self._offer(data)
        return True

    def _offer(self, data: bytes) -> None:
        if data and not self.done:
            self.active = time.monotonic()
            if self.stream.offer(data):
                self.hub.work.set()
        self.received += len(data) // 2
        self.model.metrics.counts["audio_seconds"] += len(data) / 2 / self.rate

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
            self._note_end(farewell)
            self.finish()

    def fail(self, failure: Refused) -> None:
        """End the session at once; those who wait for it are told."""
        if self.failure is None and not self.done:
            self.failure = failure
            self._note_end(failure)
        self.news.set()
        self.room.set()

    def _note_end(self, why: Refused) -> None:
        self.model.metrics.cut[why.reason] += 1
        LOG.warning("session of %s ended: %s", self.model.name, why)

    def check(self) -> None:
        """Raise the failure, if there is one."""
        if self.failure is not None:
            raise self.failure

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
            self.model.metrics.note_word((word.elapsed_ms - word.delay_ms) / 1000)
        self.news.set()

    async def follow(self, sent: int = 0) -> AsyncIterator[list[Word]]:
        """Yield the words after the first `sent` as they come, to the last; or none at progress.

        Words are kept until they are asked for, or for good if the client may come back.
        """
        connection = self.connection
        while True:
            if self.connection != connection:
                self.news.set()
                raise Refused("moved", "the session goes on in another connection")
            if sent < self.dropped:
                most = self.hub.limits.words
                raise Refused("slow", f"more than {most} words were not read in time")
            if self.name is None:
                del self.words[: sent - self.dropped]
                self.dropped = sent
            words = self.words[sent - self.dropped :]
            yield words
            sent += len(words)
            self.check()
            if self.done and sent == self.dropped + len(self.words):
                return
            await self.news.wait()
            self.news.clear()


class Hub:
    """All models of a server, the thread that steps them, and who is let in."""

    def __init__(self, models: dict[str, Model], limits: Limits | None = None):
        self.models, self.limits = models, limits or Limits()
        self.work = threading.Event()
        self.cycles, self.lags = Recent(), Recent()
        self.closing = self.draining = False
        self.blocked: set[LiveSession] = set()  # with a frame that waits for room
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread: threading.Thread | None = None
        self.ticker: asyncio.Task[None] | None = None

    @property
    def sessions(self) -> Iterator[LiveSession]:
        """Yield the open sessions of all models."""
        for model in self.models.values():
            yield from list(model.sessions.values())

    async def start(self) -> None:
        """Begin to step the device."""
        self.loop = asyncio.get_running_loop()
        for model in self.models.values():
            model.engine.take_news()
        gc.collect()
        gc.freeze()  # to look through what stays would hold everybody up
        self.thread = threading.Thread(target=self._run, daemon=True, name="simuljax device")
        self.thread.start()
        self.ticker = asyncio.create_task(self._tick())

    async def stop(self) -> None:
        """End all sessions and the thread."""
        self.closing = True
        self.work.set()
        if self.ticker is not None:
            self.ticker.cancel()
        for session in self.sessions:
            session.fail(Refused("shutdown", "the server has been stopped"))
            self.close(session)
        if self.thread is not None:
            await asyncio.to_thread(self.thread.join)

    async def drain(self, seconds: float) -> None:
        """Admit nobody; give open sessions so long to end, then end their speech for them."""
        self.draining, why = True, Refused("shutdown", "the server is shutting down", retry=True)
        for patience_s, end in ((seconds, LiveSession.end), (10.0, LiveSession.fail)):
            until = time.monotonic() + patience_s
            while any(one.left is None for one in self.sessions) and time.monotonic() < until:
                await asyncio.sleep(0.05)
            for session in self.sessions:
                end(session, why)

    def model(self, name: str | None) -> Model:
        """Return a model by name, or the first."""
        if not name:
            return next(iter(self.models.values()))
        if name not in self.models:
            known = ", ".join(self.models)
            raise Refused("model", f"model: {unknown(name, self.models)}; the models are {known}")
        return self.models[name]

    def open(
        self,
        model: Model,
        *,
        rate: int = 16_000,
        name: str | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> LiveSession:
        """Return a new session, or raise `Refused`.

        A `name` makes it one that can be resumed; `changes` are settings of Whisper.
        """
        try:
            self._admit(model)
            if rate not in RATES:
                raise Refused("rate", f"rate is {rate}: give one of {RATES[0]} to {RATES[-1]}")
            stream = model.engine.open()
            try:
                stream.session.set_rate(rate)
                _change(model, stream, changes or {})
            except Refused:
                stream.leave()
                raise
        except Refused as refusal:
            model.metrics.refused[refusal.reason] += 1
            LOG.warning("refused: %s", refusal)
            raise
        session = model.sessions[stream] = LiveSession(self, model, stream, name)
        model.metrics.counts["sessions_opened"] += 1
        return session

    def _admit(self, model: Model) -> None:
        if self.draining or self.closing:
            raise Refused("shutdown", "the server is shutting down", retry=True)
        if not model.engine.free:
            message = f"all {len(model.engine.streams)} streams of {model.name} are taken"
            raise Refused("full", message, retry=True)
        count = len([*self.sessions])
        cycle_s = self.cycles.percentile(90) * model.growth(count)
        slow = max(cycle_s, self.lags.percentile(90)) > self.limits.load * model.read_ms / 1000
        if slow and count:
            message = f"{count} sessions are all that this device can keep up with"
            raise Refused("late", message, retry=True)

    def resume(self, name: str) -> LiveSession | None:
        """Return the session that a client has lost, if it is still there, and take it over."""
        for session in self.sessions:
            if session.name == name:
                session.connection += 1
                session.left, session.active = None, time.monotonic()
                session.news.set()
                return session
        return None

    def close(self, session: LiveSession) -> None:
        """Free the row of a session, whatever it had still to write."""
        if session.model.sessions.pop(session.stream, None):
            session.stream.leave(wait=False)
            self.work.set()

    def metrics(self) -> str:
        """Return all counters and what is measured now, as Prometheus reads them."""
        series = []
        for name, model in self.models.items():
            done, sessions = model.metrics, model.sessions.values()
            audio_s, step_s = done.counts["audio_seconds"], done.counts["step_seconds"]
            gauges = {
                "sessions": len(sessions),
                "rows": len(model.engine.streams),
                "waiting_audio_seconds": sum(one.stream.waiting_ms for one in sessions) / 1000,
                "recent_step_p90_seconds": self.cycles.percentile(90),
                "real_time_factor": step_s / audio_s if audio_s else 0.0,
            }
            series += done.series(name, gauges)
        return exposition(series)

    async def _tick(self) -> None:
        """Measure how late the loop is; end sessions that are idle, too long or not resumed."""
        limits = self.limits
        while True:
            before = time.monotonic()
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            self.lags.add(now - before - TICK_S)
            for session in self.sessions:
                waits = session.finishing or session in self.blocked  # which is no silence
                if session.left is not None:
                    if now - session.left > limits.keep_s:
                        self.close(session)
                elif not waits and now - session.active > limits.idle_s:
                    session.end(Refused("idle", f"no sound for {limits.idle_s:g} s"))
                elif now - session.opened > limits.longest_s:
                    hours = limits.longest_s / 3600
                    session.end(Refused("long", f"a session may last {hours:g} h"))

    def _run(self) -> None:
        """Step the engines that have READs: the body of the device thread."""
        while not self.closing:
            self.work.wait()
            self.work.clear()
            while not self.closing and self._cycle():
                pass

    def _cycle(self) -> bool:
        """Step every engine that has a READ once, and tell its sessions; return True if one had."""
        start = time.perf_counter()
        due = [model for model in self.models.values() if model.engine.take_offered()]
        for model in due:
            self._step(model)
        news = []
        for model in self.models.values():
            for stream, words, done in model.engine.take_news():
                if session := model.sessions.get(stream):
                    read = (stream.session.read_ms, stream.session.delay_ms)
                    news.append((session, (words, stream.pending, read, done)))
        if news or self.blocked:
            self._post(self._deliver, news)
        if due:
            self.cycles.add(time.perf_counter() - start)
        return bool(due)

    def _step(self, model: Model) -> None:
        start = time.perf_counter()
        try:
            model.engine.step()
        except Exception as error:
            LOG.exception("a step of %s failed; its sessions end, and it begins anew", model.name)
            model.metrics.counts["failures"] += 1
            model.engine = model.make_engine()
            self._post(self._fail, model, f"the model failed: {error}")
            return
        model.metrics.counts["step_seconds"] += time.perf_counter() - start
        model.metrics.counts["steps"] += 1

    def _post(self, function: Callable[..., None], *args: Any) -> None:
        assert self.loop is not None
        if not self.closing:
            self.loop.call_soon_threadsafe(function, *args)

    def _deliver(self, news: list[tuple[LiveSession, tuple[Any, ...]]]) -> None:
        for session, what in news:
            if not session.done:
                session.deliver(*what)
        for session in self.blocked:
            session.room.set()

    def _fail(self, model: Model, message: str) -> None:
        for session in list(model.sessions.values()):
            if session.stream.engine is not model.engine:
                session.fail(Refused("failure", message, retry=True))


def _change(model: Model, stream: EngineStream, changes: Mapping[str, Any]) -> None:
    """Change settings of Whisper for one stream."""
    session: Any = stream.session
    if not model.skips and changes.get("behind") == "every":  # as it does
        changes = {name: value for name, value in changes.items() if name != "behind"}
    if changes and not model.skips:
        given = " and ".join(sorted(changes))
        raise Refused("settings", f"{given}: model {model.name!r} has one direction only")
    if changes:
        try:
            session.change(dataclasses.replace(session.settings, **changes))
        except SimuljaxError as error:
            raise Refused("settings", str(error)) from None
