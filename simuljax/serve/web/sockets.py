"""`/stream`: binary PCM16 in, one JSON frame a word out. What its sockets share with realtime ones.

The query takes more than scripts need: `session=ID` (the session can be resumed for some seconds
after its connection was lost: the answer says how many samples had come), `words=N` (that the
client has already), `detail=1` (frames "session", "read" and "pending"), `language` and `task` of
Whisper.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import Coroutine
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from simuljax.serve.web.access import Access
from simuljax.serve.web.hub import Hub
from simuljax.serve.web.sessions import LOG, LiveSession, Refused

CLOSE_CODES = {"shutdown": 1012, "full": 1013, "late": 1013, "failure": 1011, "frame": 1009}
POLICY_VIOLATION = 1008
_json = json.JSONEncoder(ensure_ascii=False).encode
SESSION_NAME = re.compile(r"[\w-]{16,64}", re.ASCII)


class Socket:
    """A WebSocket that is read and written by two tasks, and closed with a reason."""

    def __init__(self, websocket: WebSocket, hub: Hub):
        self.websocket, self.hub = websocket, hub
        self.protocol = websocket.scope["state"]["protocol"]

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

    async def close(self, refusal: Refused | None = None) -> None:
        code = 1000 if refusal is None else CLOSE_CODES.get(refusal.reason, POLICY_VIOLATION)
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # the client was quicker
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


class StreamSocket(Socket):
    """One connection of `/stream`."""

    async def run(self, access: Access) -> None:
        """Serve the connection from its first frame to its last."""
        await self.websocket.accept()
        try:
            access.check(self.websocket)
            session = self._session()
            await self._serve(session)
            await self.close()
        except Refused as refusal:
            if refusal.reason in ("token", "origin", "host", "protocol", "frame"):
                LOG.warning("cut off: %s", refusal)
            frame = {"type": "error", "message": str(refusal)}
            with contextlib.suppress(Refused, WebSocketDisconnect):
                await self.send(frame | refusal.retry_after)
            await self.close(refusal)

    def _session(self) -> LiveSession:
        query = self.websocket.query_params
        name = query.get("session")
        if name is not None and not SESSION_NAME.fullmatch(name):
            raise Refused("protocol", "session is 16 to 64 letters and digits that you draw")
        if name is not None and (session := self.hub.resume(name)) is not None:
            return session
        return self.hub.open(
            self.hub.model(query.get("model")),
            rate=whole_number(query.get("rate", "16000"), "rate"),
            name=name,
            changes={key: query[key] for key in ("language", "task") if query.get(key)},
        )

    async def _serve(self, session: LiveSession) -> None:
        connection, kept = session.connection, False
        self.protocol.sink = session.try_push
        try:
            await self.both(self._read(session), self._write(session))
        except WebSocketDisconnect as gone:
            kept = session.name is not None and gone.code not in (1000, 1001)
        finally:
            self.protocol.sink = None
            if session.connection != connection:
                pass  # another connection has it
            elif kept:
                self.hub.detach(session)
            else:
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

    async def _write(self, session: LiveSession) -> None:
        query, connection = self.websocket.query_params, session.connection
        sent = whole_number(query.get("words", "0"), "words")
        if sent > session.dropped + len(session.words):
            sent = 0  # of a session that is gone: this one has just begun
        detail, shown = query.get("detail") == "1", ("", (-1.0, 0.0))
        if detail:
            await self.send(_description(session, sent))
        while True:
            if session.connection != connection:
                session.news.set()
                raise Refused("moved", "the session goes on in another connection")
            for word in session.after(sent):
                await self.send({"type": "word", **vars(word)})
                sent += 1
            if detail and shown != (now := (session.pending, session.read)):
                await self._send_progress(session, shown, now)
                shown = now
            if session.over(sent):
                break
            await session.more()
        if session.farewell is not None:
            raise session.farewell
        await self.send({"type": "done"})

    async def _send_progress(self, session: LiveSession, before: tuple, now: tuple) -> None:
        if now[1] != before[1]:
            read_ms, delay_ms = now[1]
            frame = {"type": "read", "read_ms": read_ms, "delay_ms": delay_ms}
            await self.send(frame | {"samples": session.received})
        if now[0] != before[0]:
            await self.send({"type": "pending", "text": now[0]})


def _description(session: LiveSession, sent: int) -> dict[str, Any]:
    return {
        "type": "session",
        "model": session.model.name,
        "read_ms": session.model.read_ms,
        "samples": session.received,
        "words": sent,
    }


def whole_number(text: str, name: str) -> int:
    """Return a number of the query."""
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise Refused("protocol", f"{name} is {text[:20]!r}: give a whole number")
    return int(text)
