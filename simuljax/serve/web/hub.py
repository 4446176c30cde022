"""All models of a server, the thread that steps them, and the admission of new sessions."""

import asyncio
import dataclasses
import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from simuljax.errors import SimuljaxError, unknown
from simuljax.serve.engine import EngineStream
from simuljax.serve.web.metrics import Recent, exposition
from simuljax.serve.web.sessions import LOG, RETRY_S, Limits, LiveSession, Model, Refused

TICK_S = 0.25
RATES = range(8_000, 48_001)


class Hub:
    """All models of a server, the thread that steps them, and who is let in."""

    def __init__(self, models: dict[str, Model], limits: Limits | None = None):
        self.models, self.limits = models, limits or Limits()
        self.work = threading.Event()
        self.decoders = asyncio.Semaphore(2)  # files that are decompressed at a time
        self.cycles, self.lags = Recent(), Recent()
        self.closing = self.draining = False
        self.named: dict[str, LiveSession] = {}  # those that may be resumed
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
        self.draining = True
        await self._emptied(seconds)
        for session in self.sessions:
            session.end(Refused("shutdown", "the server is shutting down", retry_s=RETRY_S))
        await self._emptied(10.0)
        for session in self.sessions:
            session.fail(Refused("shutdown", "the server is shutting down", retry_s=RETRY_S))

    async def _emptied(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while any(one.attached for one in self.sessions) and time.monotonic() < until:
            await asyncio.sleep(0.05)

    def model(self, name: str | None) -> Model:
        """Return a model by name, or the first."""
        if name is None or name == "":
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
        changes: dict[str, Any] | None = None,
    ) -> LiveSession:
        """Return a new session, or raise `Refused`.

        A `name` makes it one that can be resumed; `changes` are settings of Whisper.
        """
        try:
            self._admit(model)
            if rate not in RATES:
                raise Refused("rate", f"rate is {rate}: give one of {RATES[0]} to {RATES[-1]}")
            stream = model.engine.open()
        except Refused as refusal:
            model.metrics.refused[refusal.reason] += 1
            LOG.warning("refused: %s", refusal)
            raise
        try:
            stream.session.set_rate(rate)
            self._change(model, stream, changes or {})
        except BaseException:
            stream.leave()
            raise
        session = LiveSession(self, model, stream, rate, name)
        model.sessions[stream] = session
        if name:
            self.named[name] = session
        model.metrics.counters["opened"] += 1
        return session

    def _change(self, model: Model, stream: EngineStream, changes: dict[str, Any]) -> None:
        settings: Any = getattr(stream.session, "settings", None)
        if changes and settings is None:
            given = " and ".join(sorted(changes))
            raise Refused("settings", f"{given}: model {model.name!r} has one direction only")
        if changes:
            try:
                stream.session.change(  # pyright: ignore[reportAttributeAccessIssue]
                    dataclasses.replace(settings, **changes)
                )
            except SimuljaxError as error:
                raise Refused("settings", str(error)) from None

    def _admit(self, model: Model) -> None:
        count, rows = len([*self.sessions]), len(model.engine.streams)
        if self.draining or self.closing:
            raise Refused("shutdown", "the server is shutting down", retry_s=RETRY_S)
        if not model.engine.free:
            message = f"all {rows} streams of {model.name} are taken"
            raise Refused("full", message, retry_s=RETRY_S)
        cycle_s = self.cycles.percentile(90) * model.growth(count)
        slow = max(cycle_s, self.lags.percentile(90)) > self.limits.load * model.read_ms / 1000
        if slow and count:
            message = f"{count} sessions are all that this device can keep up with"
            raise Refused("late", message, retry_s=RETRY_S)

    def resume(self, name: str) -> LiveSession | None:
        """Return the session that a client has lost, if it is still there, and take it over."""
        session = self.named.get(name)
        if session is not None:
            session.connection += 1
            session.attached = True
            session.active = time.monotonic()
            session.news.set()
        return session

    def detach(self, session: LiveSession) -> None:
        """Keep a session for a while whose connection was lost."""
        session.attached, session.left = False, time.monotonic()

    def close(self, session: LiveSession) -> None:
        """Free the row of a session, whatever it had still to write."""
        if session.model.sessions.pop(session.stream, None):
            if session.name:
                self.named.pop(session.name, None)
            session.stream.leave(wait=False)
            self.work.set()

    def metrics(self) -> str:
        step_s = self.cycles.percentile(90)
        series = (
            each
            for name, model in self.models.items()
            for each in model.metrics.lines(name, model.gauges(step_s))
        )
        return exposition(series)

    async def _tick(self) -> None:
        """Measure how late the loop is; end sessions that are idle, too long or not resumed."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            self.lags.add(now - before - TICK_S)
            for session in self.sessions:
                self._expire(session, now)

    def _expire(self, session: LiveSession, now: float) -> None:
        limits = self.limits
        if not session.attached:
            if now - session.left > limits.keep_s:
                self.close(session)
        elif session.idle_s(now) > limits.idle_s:
            session.end(Refused("idle", f"no sound for {limits.idle_s:g} s"))
        elif now - session.opened > limits.longest_s:
            session.end(Refused("long", f"a session may last {limits.longest_s / 3600:g} h"))

    def _run(self) -> None:
        """Step the engines that have READs: the body of the device thread."""
        while not self.closing:
            self.work.wait()
            self.work.clear()
            while not self.closing and self._cycle():
                pass

    def _cycle(self) -> bool:
        """Step every engine that has a READ once; return True if one had."""
        start = time.perf_counter()
        due = [model for model in self.models.values() if model.engine.take_offered()]
        for model in due:
            self._step(model)
        for model in self.models.values():
            self._tell(model)
        if self.blocked:
            self._post(self._unblock)
        if due:
            self.cycles.add(time.perf_counter() - start)
        return bool(due)

    def _step(self, model: Model) -> None:
        start = time.perf_counter()
        try:
            model.engine.step()
        except Exception as error:
            LOG.exception("a step of %s failed; its sessions end, and it begins anew", model.name)
            model.metrics.counters["failures"] += 1
            model.engine = model.make_engine()
            self._post(self._fail, model, str(error))
            return
        model.metrics.step_s += time.perf_counter() - start
        model.metrics.counters["steps"] += 1

    def _tell(self, model: Model) -> None:
        """Post what streams have written to the event loop, all at once."""
        news = []
        for stream, words, done in model.engine.take_news():
            if session := model.sessions.get(stream):
                read = (stream.session.read_ms, stream.session.delay_ms)
                news.append((session, (words, stream.pending, read, done)))
        if news:
            self._post(self._deliver, news)

    def _post(self, function: Callable[..., None], *args: Any) -> None:
        assert self.loop is not None
        if not self.closing:
            self.loop.call_soon_threadsafe(function, *args)

    def _deliver(self, news: list[tuple[LiveSession, tuple[Any, ...]]]) -> None:
        for session, what in news:
            if not session.done:
                session.deliver(*what)

    def _unblock(self) -> None:
        for session in self.blocked:
            session.room.set()

    def _fail(self, model: Model, message: str) -> None:
        for session in list(model.sessions.values()):
            if session.stream.engine is not model.engine:
                session.fail(Refused("failure", f"the model failed: {message}", retry_s=RETRY_S))
