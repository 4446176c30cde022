"""Run the application: load the models, bind, serve, drain on SIGTERM."""

import asyncio
import contextlib
import functools
import logging
import resource
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import h11
import tyro
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from simuljax.cache import enable_compilation_cache, show_status
from simuljax.errors import SimuljaxError
from simuljax.serve.bundled import CLIP, parts_of
from simuljax.serve.translator import load
from simuljax.serve.web.app import LOOPBACK, Access, create_app
from simuljax.serve.web.hub import Hub, Limits
from simuljax.serve.web.models import Model

HEADERS_S = 10.0  # until a request's headers have to be there
SPARE = 256  # connections beyond two for every stream


class ServeError(SimuljaxError):
    """Options of the server that cannot be used."""


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """The address of the server, its protection and its limits."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all. Use --token and TLS then."""
    port: int = 8000
    """Port to listen on; 0 for any that is free."""
    streams: int = 16
    """Speakers at a time, of each model."""
    token: str | None = None
    """What clients have to give; better in the environment, as SIMULJAX_TOKEN."""
    origin: tuple[str, ...] = ()
    """Addresses of pages elsewhere that may connect, like https://captions.example.org."""
    certificate: Path | None = None
    """The certificate for TLS, a PEM file."""
    key: Path | None = None
    """The key of the certificate, a PEM file."""
    drain: float = 30.0
    """Seconds that sessions have to end after SIGTERM."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of Whisper models."""
    limits: tyro.conf.Suppress[Limits] = field(default_factory=Limits)


def check_options(models: Sequence[Path], options: ServeOptions) -> None:
    """Refuse options that cannot be used, before anything is loaded."""
    if not models:
        raise ServeError(
            "no model is given, and none is bundled here: name the directory of a trained run or a "
            "Whisper file, as in `simuljax serve ggml-base.bin`"
        )
    for model in models:
        for part in parts_of(model):
            if not part.exists():
                raise ServeError(f"there is no model {part}")
    if options.streams < 1:
        raise ServeError(f"--streams is {options.streams}: give 1 or more")
    if not 0 <= options.port < 65536:
        raise ServeError(f"--port is {options.port}: give 0 to 65535 (0: any that is free)")
    if not options.limits.idle_s > 0:
        raise ServeError(f"--idle is {options.limits.idle_s:g}: give seconds above 0")
    if not options.drain >= 0:
        raise ServeError(f"--drain is {options.drain:g}: give seconds, or 0")
    if (options.certificate is None) != (options.key is None):
        raise ServeError("--certificate and --key go together: give both, or neither")
    for path in filter(None, (options.certificate, options.key)):
        if not path.is_file():
            raise ServeError(f"there is no file {path}")
    if options.token is not None and not options.token.isascii():
        raise ServeError("--token is sent in headers and addresses: use ASCII characters")


def load_models(paths: Sequence[Path], options: ServeOptions) -> dict[str, Model]:
    """Load and compile the models; return them by name."""
    models: dict[str, Model] = {}
    for path in paths:
        show_status(f"loading {path.name} ...")
        translator = load(path, dtype=options.dtype)
        if translator.name in models:
            raise ServeError(f"two models are called {translator.name!r}: rename one ({path})")
        make = functools.partial(
            translator.engine,
            streams=options.streams,
            waiting_ms=options.limits.waiting_ms + options.limits.frame_ms,
            **translator.live_settings,
        )
        show_status(f"compiling {translator.name} ...")
        clip = path / CLIP if (path / CLIP).is_file() else None
        model = Model(translator.name, make, translator.languages, clip)
        models[translator.name] = model
        model.warm_up()
    show_status("")
    return models


class PatientProtocol(H11Protocol):
    """HTTP that gives up on clients who do not finish their headers, and on too many."""

    def __init__(self, *given: Any, most: int, **named: Any):
        super().__init__(*given, **named)
        self.most = most  # connections

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for headers, unless there are too many connections."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
        else:
            self._wait()

    def _wait(self) -> None:
        self.loop.call_later(HEADERS_S, self._check, self.cycle)

    def _check(self, cycle_before: Any) -> None:
        """Close if no request came in this time, and none is being answered."""
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        if self.cycle is cycle_before and self.conn.their_state is h11.IDLE:
            self.transport.close()
        else:
            self._wait()


class SoundProtocol(WebSocketsSansIOProtocol):
    """WebSockets whose sound goes straight to its session, without a queue and a task.

    What `sink` does not take, and all that comes before a frame in the queue is read, goes the
    usual way, so that the order of frames is kept.
    """

    sink: Callable[[bytes], bool] | None = None

    def handle_connect(self, event: Any) -> None:
        """Let the application find this object."""
        super().handle_connect(event)
        if hasattr(self, "scope"):  # the handshake was not refused
            self.scope.setdefault("state", {})["protocol"] = self

    def handle_bytes(self, event: Any) -> None:
        """Give a whole frame to the sink, if it is next."""
        is_next = event.fin and self.queue.empty()
        if not (self.sink and is_next and self.sink(bytes(event.data))):
            super().handle_bytes(event)


class DrainingServer(uvicorn.Server):
    """A server that lets sessions end before it stops."""

    def __init__(self, config: uvicorn.Config, hub: Hub, drain_s: float, greeting: str = ""):
        super().__init__(config)
        self.hub, self.drain_s, self.greeting = hub, drain_s, greeting
        self.draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, then say so."""
        await super().startup(sockets)
        if self.greeting:
            print(self.greeting, flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal; stop at the second."""
        if self.hub.loop is None or self.hub.draining or sig == signal.SIGINT:
            self.should_exit = True
        else:
            self.hub.draining = True
            self.hub.loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self.draining = asyncio.get_running_loop().create_task(self.hub.drain(self.drain_s))
        self.draining.add_done_callback(lambda _: setattr(self, "should_exit", True))


def build(hub: Hub, options: ServeOptions, greeting: str = "") -> DrainingServer:
    """Return the server of a hub; it prints the greeting when it can be reached."""
    rows = sum(len(model.engine.streams) for model in hub.models.values())
    hosts = LOOPBACK if options.host in LOOPBACK else None  # there, others' names are refused
    access = Access(token=options.token, origins=options.origin, hosts=hosts)
    protocol: Any = functools.partial(PatientProtocol, most=2 * rows + SPARE)
    config = uvicorn.Config(
        create_app(hub, access),
        http=protocol,
        ws=SoundProtocol,
        ws_max_size=options.limits.frame_bytes,
        ws_per_message_deflate=False,  # sound is not smaller for it, and bombs are
        ws_ping_interval=20.0,
        ws_ping_timeout=None,  # who is held back cannot answer; who is gone sends no sound
        access_log=False,  # it would hold the tokens of addresses
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=5,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
    )
    return DrainingServer(config, hub, options.drain, greeting)


def bind(options: ServeOptions) -> socket.socket:
    """Return the bound socket; nobody can connect before the server runs."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    bound = socket.socket(family)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)  # of each connection
        bound.bind((options.host, options.port))
    except OSError as error:
        bound.close()
        where = f"{options.host}:{options.port}"
        raise ServeError(f"cannot listen on {where}: {error.strerror}; see --port") from None
    return bound


def run(models: Sequence[Path], options: ServeOptions) -> None:
    """Serve until a signal comes."""
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", level=logging.INFO)
    enable_compilation_cache()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # or sockets are refused for it
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with contextlib.closing(bind(options)) as bound:
        hub = Hub(load_models(models, options), options.limits)
        scheme = "https" if options.certificate else "http"
        host = f"[{options.host}]" if ":" in options.host else options.host
        greeting = (
            f"{scheme}://{host}:{bound.getsockname()[1]} serves {', '.join(hub.models)}, up to "
            f"{options.streams} streams each; stop with Ctrl-C"
        )
        build(hub, options, greeting).run(sockets=[bound])
