"""`/v1/realtime`: OpenAI's events of realtime transcription, as far as they apply.

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
import binascii
import contextlib
import secrets
from typing import Any

from starlette.websockets import WebSocketDisconnect

from simuljax.serve.web.access import Access
from simuljax.serve.web.hub import RATES
from simuljax.serve.web.sessions import LOG, LiveSession, Refused
from simuljax.serve.web.sockets import Socket

SUBPROTOCOL = "realtime"
TRANSCRIPTION = "conversation.item.input_audio_transcription"
MOST_ERRORS = 50
UPDATES = ("session.update", "transcription_session.update")  # the second: OpenAI's beta
FATAL = ("idle", "long", "shutdown", "slow", "token", "origin", "host", "errors")


class RealtimeSocket(Socket):
    """One connection: its settings, and the item that is spoken now."""

    async def run(self, access: Access) -> None:
        """Serve the connection from its first event to its last."""
        offered = self.websocket.scope.get("subprotocols", ())
        await self.websocket.accept(subprotocol=SUBPROTOCOL if SUBPROTOCOL in offered else None)
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.session: LiveSession | None = None
        self.item, self.before = _name("item"), None
        self.writer: asyncio.Task[None] | None = None
        self.written: LiveSession | None = None  # the session whose words the writer sends
        self.rate, self.errors = 24_000, 0
        self.changes: dict[str, str] = {}
        try:
            access.check(self.websocket)
            self.model = self.hub.model(self.websocket.query_params.get("model"))
            self.name = _name("sess")
            await self._send("session.created", session=self._settings())
            await self.both(self._read(), self._wait())
        except WebSocketDisconnect:
            pass
        except Refused as refusal:
            LOG.warning("cut off: %s", refusal)
            with contextlib.suppress(Refused, WebSocketDisconnect):
                await self._send_error(refusal, None)
            await self.close(refusal)
        finally:
            await self._leave()

    async def _wait(self) -> None:
        await self.broken

    async def _read(self) -> None:
        """Answer events, one after the other."""
        while True:
            event: Any = None
            try:
                event = await self._receive()
                if isinstance(event, bytes):
                    await self._append(event)
                else:
                    await self._handle(event)
            except Refused as refusal:
                self.errors += 1
                if refusal.reason in FATAL:
                    raise
                if self.errors > MOST_ERRORS:
                    raise Refused("errors", f"more than {MOST_ERRORS} bad events") from None
                await self._send_error(refusal, event)

    async def _receive(self) -> bytes | dict[str, Any]:
        """Return the next event; a connection on which nobody speaks is idle after a while."""
        if self.session is not None:
            return await self.receive()  # the hub watches it
        try:
            async with asyncio.timeout(self.hub.limits.idle_s):
                return await self.receive()
        except TimeoutError:
            raise Refused("idle", f"no sound for {self.hub.limits.idle_s:g} s") from None

    async def _handle(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind == "input_audio_buffer.append":
            await self._append(_decoded(event.get("audio")))
        elif kind == "input_audio_buffer.commit":
            await self._commit()
        elif kind == "input_audio_buffer.clear":
            await self._leave()
            await self._send("input_audio_buffer.cleared")
        elif kind in UPDATES:
            self._update(event.get("session"))
            await self._send(f"{kind}d", session=self._settings())
        else:
            raise Refused("protocol", f"there is no event of type {kind[:60]!r}")

    async def _append(self, data: bytes) -> None:
        if self.writer is not None and (self.session is None or self.session.finishing):
            await self.writer  # the item before has to be completed
            self.writer = None
        if self.session is None:
            opened = self.hub.open(self.model, rate=self.rate, changes=self.changes)
            self.session = self.written = opened
            self.writer = asyncio.create_task(self._write(self.session, self.item))
        await self.session.push(data)

    async def _commit(self) -> None:
        session = self.session
        if session is None or not session.received or session.finishing:
            raise Refused("empty", "the buffer is empty: append sound before a commit")
        event = {"item_id": self.item, "previous_item_id": self.before}
        await self._send("input_audio_buffer.committed", **event)
        self.before, self.item, self.session = self.item, _name("item"), None
        session.finish()

    async def _leave(self) -> None:
        """Drop the item that is spoken now, and what is being written."""
        if self.writer is not None:
            self.writer.cancel()
            await asyncio.gather(self.writer, return_exceptions=True)
        if self.written is not None:  # a task that is cancelled early closes nothing
            self.hub.close(self.written)
        self.session = self.writer = self.written = None

    async def _write(self, session: LiveSession, item: str) -> None:
        """Send the words of an item as they come, then all of them."""
        try:
            text = await self._send_words(session, item)
            usage = {"type": "duration", "seconds": session.received / session.rate}
            event = {"item_id": item, "content_index": 0, "transcript": text, "usage": usage}
            await self._send(f"{TRANSCRIPTION}.completed", **event)
            if session.farewell is not None:
                raise session.farewell
        except (Refused, WebSocketDisconnect) as error:
            if isinstance(error, Refused) and error.reason not in FATAL:
                with contextlib.suppress(Refused, WebSocketDisconnect):
                    event = {
                        "item_id": item,
                        "content_index": 0,
                        "error": error.error | error.retry_after,
                    }
                    await self._send(f"{TRANSCRIPTION}.failed", **event)
            if not self.broken.done():
                self.broken.set_exception(error)
        finally:
            self.hub.close(session)

    async def _send_words(self, session: LiveSession, item: str) -> str:
        texts: list[str] = []
        async for word in session.follow():
            await self._send(
                f"{TRANSCRIPTION}.delta",
                item_id=item,
                content_index=0,
                delta=f" {word.text}" if texts else word.text,
                delay_ms=word.delay_ms,
                elapsed_ms=word.elapsed_ms,
            )
            texts.append(word.text)
        return " ".join(texts)

    def _update(self, session: Any) -> None:
        """Take settings for the next item: format, model, language, task."""
        if not isinstance(session, dict):
            raise Refused("protocol", "session.update needs an object `session`")
        given = _part(_part(session, "audio"), "input")
        format_ = _part(given, "format")
        kind = format_.get("type", session.get("input_audio_format", "audio/pcm"))
        if kind not in ("audio/pcm", "pcm16"):
            raise Refused("format", f"format {kind!r:.40}: send audio/pcm, 16 bits")
        rate = format_.get("rate", self.rate)
        if type(rate) is not int or rate not in RATES:
            raise Refused("format", f"rate is {rate!r:.20}: give {RATES[0]} to {RATES[-1]}")
        chosen = _part(given, "transcription") or _part(session, "input_audio_transcription")
        named = {k: v for k in ("model", "language", "task") if (v := chosen.get(k)) is not None}
        for name, value in named.items():
            if not isinstance(value, str):
                raise Refused("protocol", f"{name} is {value!r:.40}: give a text")
        model = self.hub.model(named.pop("model")) if "model" in named else self.model
        if named and not model.languages:
            raise Refused("settings", f"{' and '.join(named)}: {model.name} has one direction only")
        self.model, self.rate, self.changes = model, rate, self.changes | named

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

    async def _send_error(self, refusal: Refused, cause: Any) -> None:
        theirs = cause.get("event_id") if isinstance(cause, dict) else None
        of_event = {"event_id": theirs if isinstance(theirs, str) else None}
        await self._send("error", error=refusal.error | refusal.retry_after | of_event)


def _name(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(10)}"


def _decoded(audio: Any) -> bytes:
    try:
        return base64.b64decode(audio, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise Refused("audio", "audio is not base64") from None


def _part(tree: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a part of a document, empty if it is not there."""
    part = tree.get(name)
    if part is not None and not isinstance(part, dict):
        raise Refused("protocol", f"{name} is {part!r:.40}: give an object")
    return part or {}
