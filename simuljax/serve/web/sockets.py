"""`/stream` and `/v1/realtime`: sound in, words out as they are committed.

`/stream` takes binary PCM16 and gives one JSON frame a word. Its query takes more than scripts
need: `session=ID` (the session can be resumed for some seconds after its connection was lost: the
answer says how many samples had come), `words=N` (that the client has already), `detail=1` (frames
"session", "read" and "pending"), `language`, `task` and `behind` of Whisper.

`/v1/realtime` has OpenAI's events of realtime transcription, as far as they apply:

    from the client   session.update, input_audio_buffer.append, .commit, .clear; binary frames are
                      sound as in append
    from the server   session.created, session.updated, input_audio_buffer.committed, .cleared,
                      conversation.item.input_audio_transcription.delta, .completed, .failed, error

An item is the speech from the first append to a commit. Its deltas come while it is spoken; each is
a committed word, with `delay_ms` and `elapsed_ms`. The next item begins when this one is completed.
The rate is 24 kHz unless `session.audio.input.format.rate` says otherwise. Turns are not detected:
a session goes on until the client commits. A bad event is answered by an error, and the socket
stays open; after many of them it is closed.
"""

import asyncio
import base64
import contextlib
import json
import re
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from simuljax.audio import RATE
from simuljax.eval.spacing import join_words, space_between
from simuljax.serve.web.hub import LOG, RATES, Hub, LiveSession, Refused

CLOSE_CODES = {"shutdown": 1012, "full": 1013, "late": 1013, "failure": 1011, "frame": 1009}
POLICY_VIOLATION = 1008
SESSION_NAME = re.compile(r"[\w-]{16,64}", re.ASCII)
TRANSCRIPTION = "conversation.item.input_audio_transcription"
MOST_ERRORS = 50
FATAL = ("idle", "long", "shutdown", "slow", "errors")
_json = json.JSONEncoder(ensure_ascii=False).encode


class Socket:
    """A WebSocket that is read and written by two tasks, and closed with a reason."""

    subprotocol: str | None = None

    def __init__(self, websocket: WebSocket, hub: Hub):
        self.websocket, self.hub, self.query = websocket, hub, websocket.query_params
        self.protocol = websocket.scope["state"]["protocol"]

    async def serve(self) -> None:
        """Read and write to the end, as a protocol has it."""
        raise NotImplementedError

    def error(self, refusal: Refused, cause: Any) -> dict[str, Any]:
        """Return the frame of a refusal, for the frame that caused it."""
        raise NotImplementedError

    async def run(self, check: Callable[[WebSocket], None]) -> None:
        """Serve the connection from its first frame to its last, if `check` lets it in."""
        offered = self.websocket.scope.get("subprotocols", ())
        await self.websocket.accept(self.subprotocol if self.subprotocol in offered else None)
        refusal, code = None, 1000
        try:
            check(self.websocket)
            await self.serve()
        except WebSocketDisconnect:
            return
        except Refused as error:
            refusal, code = error, CLOSE_CODES.get(error.reason, POLICY_VIOLATION)
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # the client was quicker
            with contextlib.suppress(Refused):
                if refusal is not None:
                    await self.tell(refusal)
            await self.websocket.close(code, str(refusal or "")[:100])

    async def both(self, reading: Coroutine[Any, Any, None], writing: Coroutine) -> None:
        """Run both until one ends; raise what it raised."""
        tasks = [asyncio.create_task(reading), asyncio.create_task(writing)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def tell(self, refusal: Refused, cause: Any = None) -> None:
        """Log a refusal and send it."""
        LOG.warning("%s refused: %s", self.websocket.url.path, refusal)
        await self.send(self.error(refusal, cause))

    async def send(self, frame: dict[str, Any]) -> None:
        """Send a JSON frame; a client that does not take it is given up."""
        text = _json(frame)
        if self.protocol.writable.is_set():  # the usual case: nothing to wait for
            return await self.websocket.send_text(text)
        try:
            async with asyncio.timeout(self.hub.limits.send_s):
                await self.websocket.send_text(text)
        except TimeoutError:
            seconds = self.hub.limits.send_s
            raise Refused("slow", f"a frame was not taken for {seconds:g} s") from None

    async def receive(self) -> bytes | dict[str, Any]:
        """Return the next frame: sound, or a JSON object."""
        message = await self.websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1006))
        if (data := message.get("bytes")) is not None:
            return data
        try:
            frame = json.loads(message["text"])
        except (ValueError, RecursionError):
            raise Refused("protocol", "a text frame is not JSON") from None
        if not isinstance(frame, dict) or not isinstance(frame.get("type"), str):
            raise Refused("protocol", 'a text frame is an object with a "type"')
        return frame


class StreamSocket(Socket):
    """One connection of `/stream`."""

    async def serve(self) -> None:
        """Open a session, or take over the one that was lost, and serve it."""
        query, name = self.query, self.query.get("session")
        if name is not None and not SESSION_NAME.fullmatch(name):
            raise Refused("protocol", "session is 16 to 64 letters and digits that you draw")
        sent = _whole_number(query, "words", 0)
        session = (self.hub.resume(name) if name else None) or self.hub.open(
            self.hub.model(query.get("model")),
            rate=_whole_number(query, "rate", RATE),
            name=name,
            changes={k: query[k] for k in ("language", "task", "behind") if query.get(k)},
        )
        connection, lost = session.connection, False
        self.protocol.sink = session.try_push
        try:
            await self.both(self._read(session), self._write(session, sent))
        except WebSocketDisconnect as gone:
            lost = gone.code not in (1000, 1001)
            raise
        finally:
            self.protocol.sink = None
            if session.connection == connection:  # or else another connection has it
                session.left = time.monotonic()
                if not (lost and name):
                    self.hub.close(session)

    async def _read(self, session: LiveSession) -> None:
        while True:
            frame = await self.receive()
            if isinstance(frame, bytes):
                await session.push(frame)
            elif frame["type"] == "finish":
                session.finish()
            else:
                raise Refused("protocol", f"there is no frame of type {frame['type'][:40]!r}")

    async def _write(self, session: LiveSession, sent: int) -> None:
        """Send words, and details if they were asked for, to the last."""
        if sent > session.dropped + len(session.words):
            sent = 0  # of a session that is gone: this one has just begun
        detail, read, pending = self.query.get("detail") == "1", (-1.0, 0.0), ""
        if detail:
            about = {"model": session.model.name, "read_ms": session.model.read_ms}
            about |= {"samples": session.received, "words": sent}
            await self.send({"type": "session", **about})
        async for words in session.follow(sent):
            for word in words:
                await self.send({"type": "word", **vars(word)})
            if detail and session.read != read:
                read = session.read
                frame = {"type": "read", "read_ms": read[0], "delay_ms": read[1]}
                await self.send(frame | {"samples": session.received})
            if detail and session.pending != pending:
                pending = session.pending
                await self.send({"type": "pending", "text": pending})
        if session.farewell is not None:
            raise session.farewell
        await self.send({"type": "done"})

    def error(self, refusal: Refused, cause: Any) -> dict[str, Any]:
        """Return the last frame of a connection that is refused."""
        return {"type": "error", "message": str(refusal)} | refusal.retry_after


def _whole_number(query: Mapping[str, str], name: str, usual: int) -> int:
    text = query.get(name, str(usual))
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise Refused("protocol", f"{name} is {text[:20]!r}: give a whole number")
    return int(text)


class RealtimeSocket(Socket):
    """One connection of `/v1/realtime`: its settings, and a session for each item."""

    subprotocol = "realtime"

    async def serve(self) -> None:
        """Tell the settings, then serve one item after the other."""
        self.model = self.hub.model(self.query.get("model"))
        self.rate, self.changes, self.errors = 24_000, dict[str, str](), 0
        self.name, self.item, self.before = _name("sess"), _name("item"), None
        self.spoken: LiveSession | None = None  # the session of the item that is spoken now
        self.opened: LiveSession | None = None  # the last session, which may be written still
        self.items: asyncio.Queue[tuple[str, LiveSession]] = asyncio.Queue()
        self.completed = asyncio.Event()  # the next item may begin
        self.completed.set()
        await self._send("session.created", session=self._settings())
        try:
            await self.both(self._read(), self._write())
        finally:
            if self.opened is not None:
                self.hub.close(self.opened)

    async def _read(self) -> None:
        """Answer events, one after the other."""
        while True:
            event: Any = None
            try:
                # With a session, the hub sees who is idle.
                idle_s = None if self.spoken else self.hub.limits.idle_s
                async with asyncio.timeout(idle_s):
                    event = await self.receive()
                await self._handle(event)
            except TimeoutError:
                raise Refused("idle", f"no sound for {self.hub.limits.idle_s:g} s") from None
            except Refused as refusal:
                self.errors += 1
                if refusal.reason in FATAL:
                    raise
                if self.errors > MOST_ERRORS:
                    raise Refused("errors", f"more than {MOST_ERRORS} bad events") from None
                await self.tell(refusal, event)

    async def _handle(self, event: bytes | dict[str, Any]) -> None:
        if isinstance(event, bytes):
            return await self._append(event)
        kind = event["type"]
        if kind == "input_audio_buffer.append":
            try:
                data = base64.b64decode(event["audio"], validate=True)
            except (KeyError, TypeError, ValueError):
                raise Refused("audio", "audio is not base64") from None
            await self._append(data)
        elif kind == "input_audio_buffer.commit":
            await self._commit()
        elif kind == "input_audio_buffer.clear":
            if self.spoken is not None:
                self.spoken.fail(Refused("cleared", "the client has cleared its buffer"))
                self.item, self.spoken = _name("item"), None
            await self._send("input_audio_buffer.cleared")
        elif kind == "session.update":
            self._update(event.get("session"))
            await self._send("session.updated", session=self._settings())
        else:
            raise Refused("protocol", f"there is no event of type {kind[:60]!r}")

    async def _append(self, data: bytes) -> None:
        if self.spoken is None:
            await self.completed.wait()
            self.opened = self.hub.open(self.model, rate=self.rate, changes=self.changes)
            self.spoken = self.opened
            self.completed.clear()
            self.items.put_nowait((self.item, self.opened))
        await self.spoken.push(data)

    async def _commit(self) -> None:
        session = self.spoken
        if session is None or not session.received or session.finishing:
            raise Refused("empty", "the buffer is empty: append sound before a commit")
        event = {"item_id": self.item, "previous_item_id": self.before}
        await self._send("input_audio_buffer.committed", **event)
        self.before, self.item, self.spoken = self.item, _name("item"), None
        session.finish()

    async def _write(self) -> None:
        """Send the words of one item after the other."""
        while True:
            item, session = await self.items.get()
            await self._write_item({"item_id": item, "content_index": 0}, session)
            self.hub.close(session)
            self.completed.set()

    async def _write_item(self, item: dict[str, Any], session: LiveSession) -> None:
        """Send the words of an item as they come, then all of them."""
        texts: list[str] = []
        try:
            async for words in session.follow():
                for word in words:
                    times = {"delay_ms": word.delay_ms, "elapsed_ms": word.elapsed_ms}
                    delta = space_between(texts[-1] if texts else "", word.text) + word.text
                    await self._send(f"{TRANSCRIPTION}.delta", **item, delta=delta, **times)
                    texts.append(word.text)
        except Refused as refusal:
            if refusal.reason == "cleared":
                return
            if refusal.reason not in FATAL:
                await self._send(f"{TRANSCRIPTION}.failed", **item, error=refusal.error)
            raise
        usage = {"type": "duration", "seconds": session.received / session.rate}
        transcript = join_words(texts)
        await self._send(f"{TRANSCRIPTION}.completed", **item, transcript=transcript, usage=usage)
        if session.farewell is not None:
            raise session.farewell

    def _update(self, session: Any) -> None:
        """Take settings for the next item: format, model, language, task."""
        if not isinstance(session, dict):
            raise Refused("protocol", "session.update needs an object `session`")
        given = _part(_part(session, "audio"), "input")
        form = {"type": "audio/pcm", "rate": self.rate} | _part(given, "format")
        rate = form["rate"]
        if form["type"] != "audio/pcm":
            raise Refused("format", f"format {form['type']!r:.40}: send audio/pcm, 16 bits")
        if type(rate) is not int or rate not in RATES:
            raise Refused("format", f"rate is {rate!r:.20}: give {RATES[0]} to {RATES[-1]}")
        chosen = _part(given, "transcription")
        asked = {k: chosen[k] for k in ("model", "language", "task") if k in chosen}
        named = {k: v for k, v in asked.items() if v is not None}
        for name, value in named.items():
            if not isinstance(value, str):
                raise Refused("protocol", f"{name} is {value!r:.40}: give a text")
        model = self.hub.model(named.pop("model")) if "model" in named else self.model
        if named and not model.languages:
            raise Refused("settings", f"{' and '.join(named)}: {model.name} has one direction only")
        kept = {k: v for k, v in self.changes.items() if k not in asked and model.languages}
        self.model, self.rate, self.changes = model, rate, kept | named

    def _settings(self) -> dict[str, Any]:
        transcription = {"model": self.model.name, "language": None} | self.changes
        return {
            "id": self.name,
            "object": "realtime.transcription_session",
            "type": "transcription",
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": self.rate},
                    "transcription": transcription,
                    "noise_reduction": None,
                    "turn_detection": None,
                }
            },
        }

    async def _send(self, kind: str, **event: Any) -> None:
        await self.send({"type": kind, "event_id": _name("event"), **event})

    def error(self, refusal: Refused, cause: Any) -> dict[str, Any]:
        """Return the event of a refusal, with the id of the event that caused it."""
        theirs = cause.get("event_id") if isinstance(cause, dict) else None
        error = refusal.error | {"event_id": theirs if isinstance(theirs, str) else None}
        return {"type": "error", "event_id": _name("event"), "error": error}


def _name(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(10)}"


def _part(tree: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a part of a document, empty if it is not there."""
    part = tree.get(name)
    if part is not None and not isinstance(part, dict):
        raise Refused("protocol", f"{name} is {part!r:.40}: give an object")
    return part or {}
