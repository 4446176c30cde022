"""The routes of the server, who may use them, and files; `sockets` has the streaming protocols.

`POST /v1/audio/translations` and `/transcriptions`: a file is played to a stream as fast as the
device takes it, in READs, so that its words and times are those of a live speaker. Whisper
translates or transcribes as the address says; a trained run writes the language it was trained for.
"""

import asyncio
import contextlib
import hmac
import io
import json
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np
import soundfile
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import HTTPConnection, Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
)
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from simuljax.audio import MS, RATE, AudioError, read_audio
from simuljax.eval.spacing import UNSPACED_CHARACTERS, join_words
from simuljax.serve.outputs import subtitle_file, subtitles
from simuljax.serve.session import Word
from simuljax.serve.web.hub import LOG, RETRY_S, Hub, LiveSession, Refused
from simuljax.serve.web.sockets import RealtimeSocket, StreamSocket
from simuljax.text.sentences import ABBREVIATIONS

PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'unsafe-inline' blob:; "
    "style-src 'unsafe-inline'; connect-src 'self' blob:; media-src blob:; img-src data:; "
    "worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "permissions-policy": "microphone=(self)",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")
KEY_PROTOCOL = "openai-insecure-api-key."  # how browsers give OpenAI's sockets a key
FORMATS = ("json", "text", "srt", "vtt", "verbose_json")
MOST_BYTES = 25 << 20  # as OpenAI has it
MOST_S, MOST_SAMPLES = 3600.0, 3600 * 48_000  # of all channels: a small file may hold much
UPLOAD_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Access:
    """Declare who may use the server. Without `hosts` any Host header is taken."""

    token: str | None = None
    origins: tuple[str, ...] = ()  # of pages elsewhere that may connect
    hosts: Collection[str] | None = LOOPBACK

    def check(self, connection: HTTPConnection) -> None:
        """Raise `Refused` for a foreign page, another host's name, no token or a wrong one."""
        self.check_host(connection)
        origin = connection.headers.get("origin")  # scripts have none
        ours = _part(origin or "", "netloc") == connection.headers.get("host")
        if origin is not None and origin not in self.origins and not ours:
            raise Refused("origin", f"pages of {origin[:100]!r} may not connect; see --origin")
        if self.token is None:
            return
        given = _token(connection)
        if given is None:
            raise Refused("token", "no token: add ?token=T or an Authorization: Bearer header")
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            raise Refused("token", "the token is wrong")

    def check_host(self, connection: HTTPConnection) -> None:
        """Refuse names that are not ours: a foreign page may let its name point to us."""
        host = _part("//" + connection.headers.get("host", ""), "hostname")
        known = {*(self.hosts or ()), *(_part(origin, "hostname") for origin in self.origins)}
        if self.hosts is not None and host not in known:
            raise Refused("host", f"host {host!r} is not served here; see --origin")


def _token(connection: HTTPConnection) -> str | None:
    kind, _, value = connection.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and value:
        return value.strip()
    for protocol in connection.scope.get("subprotocols", ()):
        if protocol.startswith(KEY_PROTOCOL):
            return protocol.removeprefix(KEY_PROTOCOL)
    return connection.query_params.get("token")


def _part(url: str, name: Literal["hostname", "netloc"]) -> str:
    """Return a part of an address; "" if there is none, or if it is no address."""
    try:
        return getattr(urlsplit(url), name) or ""
    except ValueError:
        return ""


def create_app(hub: Hub, access: Access) -> Starlette:
    """Return the server's application."""
    page = (resources.files("simuljax.serve.web") / "page.html").read_text(encoding="utf-8")
    page = page.replace("/*abbreviations*/[]", json.dumps(ABBREVIATIONS))
    page = page.replace('/*unspaced*/""', json.dumps(UNSPACED_CHARACTERS))
    decoders = asyncio.Semaphore(2)  # files that are decompressed at a time

    async def index(request: Request) -> Response:
        access.check_host(request)
        return HTMLResponse(page, headers=PAGE_HEADERS)

    async def health(request: Request) -> Response:
        ready = not hub.draining and hub.thread is not None and hub.thread.is_alive()
        body = {"status": "ok" if ready else "shutting down", "models": list(hub.models)}
        return JSONResponse(body, 200 if ready else 503)

    async def metrics(request: Request) -> Response:
        access.check(request)
        return PlainTextResponse(hub.metrics(), media_type="text/plain; version=0.0.4")

    async def models(request: Request) -> Response:
        access.check(request)
        data = [
            {"id": name, "object": "model", "owned_by": "simuljax", "languages": model.languages}
            | {"clip": model.clip is not None}
            for name, model in hub.models.items()
        ]
        return JSONResponse({"object": "list", "data": data})

    async def clip(request: Request) -> Response:
        access.check(request)
        model = hub.model(request.query_params.get("model"))
        if model.clip is None:
            raise Refused("model", f"model {model.name!r} comes without a clip")
        return FileResponse(model.clip)

    async def file(request: Request) -> Response:
        access.check(request)
        return await _translate_file(request, hub, decoders)

    async def stream(websocket: WebSocket) -> None:
        await StreamSocket(websocket, hub).run(access.check)

    async def realtime(websocket: WebSocket) -> None:
        await RealtimeSocket(websocket, hub).run(access.check)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await hub.start()
        yield
        await hub.stop()

    routes = [
        Route("/", index),
        Route("/healthz", health),
        Route("/metrics", metrics),
        Route("/v1/models", models),
        Route("/clip", clip),
        Route("/v1/audio/translations", file, methods=["POST"]),
        Route("/v1/audio/transcriptions", file, methods=["POST"]),
        WebSocketRoute("/stream", stream),
        WebSocketRoute("/v1/realtime", realtime),
    ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={Refused: _refuse})


async def _refuse(request: Request, error: Exception) -> Response:
    """Log a refusal; answer it as HTTP has it, in the form of OpenAI's errors."""
    assert isinstance(error, Refused)
    LOG.warning("%s %s refused: %s", request.method, request.url.path[:80], error)
    statuses = {"token": 401, "origin": 403, "host": 403, "model": 404, "frame": 413}
    status = 503 if error.retry else statuses.get(error.reason, 400)
    headers = {"retry-after": str(RETRY_S)} if error.retry else {}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse({"error": error.error}, status, headers)


async def _translate_file(request: Request, hub: Hub, decoders: asyncio.Semaphore) -> Response:
    form = await _form(request)
    language, shape = form.get("language"), form.get("response_format") or "json"
    if shape not in FORMATS:
        raise Refused("format", f"response_format {shape!r:.40}: one of {', '.join(FORMATS)}")
    model = hub.model(form.get("model"))
    async with decoders:
        samples = await asyncio.to_thread(_decoded, form["file"])
    task = "translate" if request.url.path.endswith("translations") else "transcribe"
    changes = {"language": language} if language else {}
    changes |= {"task": task} if model.languages else {}
    changes |= {"behind": "every"}  # a file is never late
    session = hub.open(model, changes=changes)
    try:
        words = await _play(request, session, samples)
    finally:
        hub.close(session)
    about: dict[str, Any] = {"duration": len(samples) / RATE}
    about |= {"task": task, "language": language} if model.languages else {}
    return _response(shape, words, about)


async def _form(request: Request) -> dict[str, Any]:
    """Return the fields; `file` as bytes."""
    length = request.headers.get("content-length", "")
    if not length.isdecimal():
        raise Refused("protocol", "a Content-Length is needed")
    if int(length) > MOST_BYTES:
        raise Refused("frame", f"more than {MOST_BYTES >> 20} MiB: send a shorter file")
    try:
        async with asyncio.timeout(UPLOAD_S), request.form(max_files=1, max_fields=20) as form:
            fields = {name: value for name, value in form.items() if isinstance(value, str)}
            file = form.get("file")
            if file is None or isinstance(file, str):
                raise Refused("protocol", "there is no part `file` with a file")
            return fields | {"file": await file.read()}
    except (HTTPException, MultiPartException, KeyError) as error:
        detail = getattr(error, "detail", error)
        raise Refused("protocol", f"not multipart/form-data: {detail}") from None
    except TimeoutError:
        raise Refused("slow", f"the file did not come within {UPLOAD_S:g} s") from None


def _decoded(data: bytes) -> np.ndarray:
    try:
        about = soundfile.info(io.BytesIO(data))
        if about.duration > MOST_S or about.frames * about.channels > MOST_SAMPLES:
            long = f"{about.duration / 60:.0f} minutes of sound, {about.channels} channels"
            raise Refused("frame", f"{long}: send less")
        return read_audio(io.BytesIO(data)).samples
    except (soundfile.LibsndfileError, AudioError) as error:
        problem = getattr(error, "error_string", error)  # else it names the object that was read
        raise Refused("audio", f"the file cannot be read: {problem}") from None


async def _play(request: Request, session: LiveSession, samples: np.ndarray) -> list[Word]:
    """Return the words of a recording; end the session if it cannot be pushed on."""

    async def push() -> None:
        size = max(1, int(session.model.read_ms * MS))
        try:
            for start in range(0, len(samples), size):
                await session.push(samples[start : start + size].astype("<i2").tobytes())
                if start % (size * 50) == 0 and await request.is_disconnected():
                    raise Refused("gone", "the client is gone")
            session.finish()
        except Exception as error:
            session.fail(error if isinstance(error, Refused) else Refused("failure", str(error)))

    pushing = asyncio.create_task(push())
    try:
        return [word async for words in session.follow() for word in words]
    finally:
        pushing.cancel()
        await asyncio.gather(pushing, return_exceptions=True)


def _response(shape: str, words: Sequence[Word], about: dict[str, Any]) -> Response:
    text = join_words(word.text for word in words)
    if shape == "json":
        return JSONResponse({"text": text})
    if shape == "text":
        return PlainTextResponse(text + "\n")
    if shape == "verbose_json":
        segments = [
            {"id": number, "start": start_s, "end": end_s, "text": shown}
            for number, (start_s, end_s, shown) in enumerate(subtitles(words))
        ]
        spoken = [{"word": word.text, "delay_ms": word.delay_ms} for word in words]
        return JSONResponse({**about, "text": text, "segments": segments, "words": spoken})
    kind = "text/vtt" if shape == "vtt" else "application/x-subrip"
    return PlainTextResponse(subtitle_file(words, shape), media_type=kind)
