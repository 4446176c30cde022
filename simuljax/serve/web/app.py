"""The routes of the server. Protocols have their own modules: `sockets`, `realtime`, `files`."""

import contextlib
import json
from collections.abc import AsyncIterator
from importlib import resources

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
)
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from simuljax.serve.web.access import Access
from simuljax.serve.web.files import translate_file
from simuljax.serve.web.hub import Hub
from simuljax.serve.web.realtime import RealtimeSocket
from simuljax.serve.web.sessions import LOG, Refused
from simuljax.serve.web.sockets import StreamSocket
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


def error_response(refusal: Refused) -> Response:
    """Return a refusal as HTTP has it, in the form of OpenAI's errors."""
    statuses = {"token": 401, "origin": 403, "host": 403, "model": 404, "frame": 413}
    status = statuses.get(refusal.reason, 400) if refusal.retry_s is None else 503
    headers = {} if refusal.retry_s is None else {"retry-after": str(refusal.retry_s)}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse({"error": refusal.error}, status, headers)


def create_app(hub: Hub, access: Access | None = None) -> Starlette:
    """Return the server's application."""
    gate = access or Access()
    page = (resources.files("simuljax.serve.web") / "page.html").read_text(encoding="utf-8")
    page = page.replace("/*abbreviations*/[]", json.dumps(ABBREVIATIONS))

    async def index(request: Request) -> Response:
        gate.check_host(request)
        return HTMLResponse(page, headers=PAGE_HEADERS)

    async def health(request: Request) -> Response:
        ready = not hub.draining and hub.thread is not None and hub.thread.is_alive()
        body = {"status": "ok" if ready else "shutting down", "models": list(hub.models)}
        return JSONResponse(body, 200 if ready else 503)

    async def metrics(request: Request) -> Response:
        gate.check(request)
        return PlainTextResponse(hub.metrics(), media_type="text/plain; version=0.0.4")

    async def models(request: Request) -> Response:
        gate.check(request)
        data = [
            {"id": name, "object": "model", "owned_by": "simuljax", "languages": model.languages}
            | {"clip": model.clip is not None}
            for name, model in hub.models.items()
        ]
        return JSONResponse({"object": "list", "data": data})

    async def clip(request: Request) -> Response:
        gate.check(request)
        model = hub.model(request.query_params.get("model"))
        if model.clip is None:
            raise Refused("model", f"model {model.name!r} comes without a clip")
        return FileResponse(model.clip)

    async def stream(websocket: WebSocket) -> None:
        await StreamSocket(websocket, hub).run(gate)

    async def realtime(websocket: WebSocket) -> None:
        await RealtimeSocket(websocket, hub).run(gate)

    async def file(request: Request) -> Response:
        gate.check(request)
        task = "translate" if request.url.path.endswith("translations") else "transcribe"
        return await translate_file(request, hub, task)

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        LOG.warning("%s %s refused: %s", request.method, request.url.path[:80], error)
        return error_response(error)

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
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={Refused: refused})
