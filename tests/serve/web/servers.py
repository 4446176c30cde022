"""A server of small random models on a free port, in a thread, and clients for it."""

import base64
import contextlib
import json
import socket as sockets
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from simuljax.config.model import SpeechConfig
from simuljax.serve.web.hub import Hub, Limits
from simuljax.serve.web.models import Model
from simuljax.serve.web.server import DrainingServer, ServeOptions, bind, build
from tests.helpers.streams import push_all, timed
from tests.serve.live_fakes import until
from tests.written_runs import write_run

SPEECH = SpeechConfig(kind="streaming", layers=2, shared=1, channels=12, chunk=3, left=6, right=1)
READ = 120 * 16
Words = list[tuple[str, float]]


class Running:
    """A server that runs, with the means to reach it."""

    def __init__(self, server: DrainingServer, hub: Hub, port: int, translator: Any):
        self.server, self.hub, self.port, self.translator = server, hub, port, translator

    def url(self, path: str, scheme: str = "ws") -> str:
        return f"{scheme}://127.0.0.1:{self.port}{path}"

    def socket(self, path: str = "/stream", scheme: str = "ws", **given: Any) -> ClientConnection:
        usual = {"compression": None, "max_size": None, "open_timeout": 60, "close_timeout": 5}
        return connect(self.url(path, scheme), **usual | given)

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        return fetch(urllib.request.Request(self.url(path, "http"), headers=headers))

    def metric(self, name: str) -> float:
        _, text = self.get("/metrics")
        rows = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return sum(float(value) for series, value in rows if series.split("{")[0] == name)

    def alone(self, pieces: list[np.ndarray], rate: int = 16_000) -> Words:
        """Return what `Stream` writes for the same pieces."""
        return alone(self.translator, pieces, sentences="pauses", rate=rate)

    def wait_for(self, sessions: int = 1) -> None:
        """Wait until so many sessions are open."""
        until(lambda: len([*self.hub.sessions]) >= sessions)

    def empty(self, seconds: float = 10.0) -> bool:
        """Wait until no session is open and all rows are free."""

        def free(model: Model) -> bool:
            engine = model.engine
            return not (model.sessions or engine.ready) and len(engine.free) == len(engine.streams)

        until(lambda: all(map(free, self.hub.models.values())), seconds)
        return True


@contextlib.contextmanager
def running(
    translator: Any, streams: int = 4, port: int = 0, clip: Path | None = None, **options: Any
) -> Iterator[Running]:
    """Serve a translator, as `simuljax serve` does; a busy machine does not make it refuse."""
    options.setdefault("limits", Limits(load=1e9))
    chosen = ServeOptions(port=port, streams=streams, **options)
    limits = chosen.limits

    def engine():
        waiting_ms = limits.waiting_ms + limits.frame_ms
        many = {k: v for k, v in translator.live_settings.items() if k == "sentences"}
        return translator.engine(streams=streams, waiting_ms=waiting_ms, **many)

    name = translator.name
    hub = Hub({name: Model(name, engine, translator.languages, clip)}, limits)
    server, bound = build(hub, chosen), bind(chosen)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    try:
        until(lambda: server.started, 20)
        yield Running(server, hub, bound.getsockname()[1], translator)
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()
        assert hub.thread is not None and not hub.thread.is_alive()


def alone(translator: Any, pieces: list[np.ndarray], **settings: Any) -> Words:
    """Return what `Stream` writes for these pieces."""
    return timed(push_all(translator.stream(**settings), pieces))


def free_port() -> int:
    with sockets.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def small_run(directory: Path) -> Path:
    """A streaming translator that writes something at every READ."""
    return write_run(directory, speech=SPEECH)


def fetch(request: urllib.request.Request | str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def upload(url: str, file: bytes, **fields: str) -> tuple[int, str]:
    """Send a file and fields as a form; return the status and the answer."""
    mark = "7d3f"
    head = f"--{mark}\r\nContent-Disposition: form-data; name="
    body = "".join(f'{head}"{name}"\r\n\r\n{value}\r\n' for name, value in fields.items())
    body += f'{head}"file"; filename="a.wav"\r\n\r\n'
    data = body.encode() + file + f"\r\n--{mark}--\r\n".encode()
    headers = {"Content-Type": f"multipart/form-data; boundary={mark}"}
    return fetch(urllib.request.Request(url, data=data, headers=headers))


def sound(seed: int, seconds: float | None = None, rate: int = 16_000) -> np.ndarray:
    """Noise whose loudness changes, as int16."""
    random = np.random.default_rng(seed)
    count = int((seconds or random.uniform(0.3, 2.5)) * rate)
    loud = np.repeat(random.uniform(0.0, 0.4, count // 800 + 1), 800)[:count]
    return (random.normal(size=count) * loud * 32767).clip(-32768, 32767).astype(np.int16)


def pieces_of(samples: np.ndarray, seed: int) -> list[np.ndarray]:
    """Cut at random; some pieces are empty."""
    random = np.random.default_rng(seed)
    cuts = np.sort(random.integers(0, len(samples) + 1, random.integers(1, 30)))
    return np.split(samples, cuts)


def speak(socket: ClientConnection, pieces: list[np.ndarray]) -> list[dict[str, Any]]:
    """Send the pieces through `/stream`; return all frames up to the close."""
    for piece in pieces:
        socket.send(piece.astype("<i2").tobytes())
    socket.send(json.dumps({"type": "finish"}))
    return frames(socket)


def frames(socket: ClientConnection) -> list[dict[str, Any]]:
    """All frames that come until the socket is closed."""
    found = []
    with contextlib.suppress(ConnectionClosed):
        while True:
            found.append(json.loads(socket.recv(timeout=30)))
    return found


def cut(socket: ClientConnection) -> None:
    """Break the connection without a farewell."""
    socket.socket.shutdown(sockets.SHUT_RDWR)


def words_of(received: list[dict[str, Any]]) -> Words:
    return [(f["text"], f["delay_ms"]) for f in received if f["type"] == "word"]


def texts_of(words: Words) -> list[str]:
    return [text for text, _ in words]


def append(piece: np.ndarray) -> str:
    """The event of `/v1/realtime` that holds sound."""
    audio = base64.b64encode(piece.astype("<i2").tobytes()).decode()
    return json.dumps({"type": "input_audio_buffer.append", "audio": audio})


def cut_all(live: Running) -> None:
    """Break every connection of the server, as a network does."""
    loop = live.hub.loop
    assert loop is not None
    for connection in list(live.server.server_state.connections):
        loop.call_soon_threadsafe(connection.transport.abort)


def raw(live: Running, data: bytes, seconds: float = 15.0) -> bytes:
    """Return the answer to some bytes until the server closes."""
    with sockets.create_connection(("127.0.0.1", live.port), timeout=seconds) as socket:
        socket.sendall(data)
        answer = b""
        with contextlib.suppress(TimeoutError, ConnectionResetError):
            while part := socket.recv(4096):
                answer += part
        return answer
