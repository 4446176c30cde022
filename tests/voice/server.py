"""A server that speaks ElevenLabs' protocol and says every text as a tone, as long as the text."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import numpy as np

KEY = "sk_0123456789abcdef"
VOICE = "a voice/1"  # a name that has to be quoted
SECONDS = 0.01  # of tone to a character


def tone(text: str, rate: int) -> np.ndarray:
    at = np.arange(round(len(text) * SECONDS * rate)) / rate
    return np.round(8000 * np.sin(2 * np.pi * 440 * at)).astype(np.int16)


@dataclass(kw_only=True)
class Asked:
    path: str
    headers: dict[str, str]
    question: dict


@dataclass(kw_only=True)
class Server:
    url: str
    asked: list[Asked] = field(default_factory=list)
    trouble: list[Callable[["Handler"], None]] = field(default_factory=list)  # in turn


class Handler(BaseHTTPRequestHandler):
    said: Server

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.said.asked.append(Asked(path=self.path, headers=headers, question=question))
        if self.said.trouble:
            return self.said.trouble.pop(0)(self)
        url = urlsplit(self.path)
        if headers.get("xi-api-key") != KEY:
            return refuse(self, 401, "invalid_api_key")
        if url.path != "/v1/text-to-speech/a%20voice%2F1":
            return refuse(self, 404, "voice_not_found")
        if not question.get("text") or not question.get("model_id"):
            return refuse(self, 422, "text and model_id are required")
        (output_format,) = parse_qs(url.query)["output_format"]
        assert output_format.startswith("pcm_")
        samples = tone(question["text"], int(output_format.split("_")[1]))
        send(self, 200, samples.astype("<i2").tobytes(), {"Content-Type": "audio/pcm"})

    def do_GET(self) -> None:
        """Only a redirect that was followed comes here."""
        self.said.asked.append(Asked(path=self.path, headers=dict(self.headers), question={}))
        send(self, 200, bytes(100), {"Content-Type": "audio/pcm"})

    def log_message(self, format, *args) -> None:
        pass


def send(handler: Handler, status: int, body: bytes, headers: dict[str, str]) -> None:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def refuse(handler: Handler, status: int, message: str, headers: dict[str, str] | None = None):
    body = json.dumps({"detail": {"status": "refused", "message": message}}).encode()
    send(handler, status, body, {"Content-Type": "application/json", **(headers or {})})


def refusing(status: int, message: str = "no", **headers: str) -> Callable[[Handler], None]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: refuse(handler, status, message, named)


def answering(body: bytes, **headers: str) -> Callable[[Handler], None]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: send(handler, 200, body, {"Content-Type": "audio/pcm", **named})


def sleeping(seconds: float) -> Callable[[Handler], None]:
    return lambda handler: time.sleep(seconds)


@contextmanager
def serving() -> Iterator[Server]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    said = Server(url=f"http://127.0.0.1:{server.server_address[1]}")
    server.RequestHandlerClass = type("Here", (Handler,), {"said": said})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield said
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
