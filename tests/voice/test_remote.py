"""A voice on a server: what is asked, what is retried, and that the key stays secret."""

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from simuljax.voice import Http, VoiceError, remote

KEY = "sk_0123456789abcdef"
VOICE = "a voice/1"  # a name that has to be quoted
TEXT = "Good morning, everybody."
Trouble = Callable[["Handler"], None]


def tone(text: str) -> np.ndarray:
    """A tone at 24 kHz, as long as the text."""
    at = np.arange(len(text) * 240) / 24_000
    return np.round(8000 * np.sin(2 * np.pi * 440 * at)).astype(np.int16)


class Handler(BaseHTTPRequestHandler):
    """ElevenLabs' protocol; says every text as a tone, after the troubles that wait in turn."""

    asked: list[tuple[str, dict[str, str], dict]]  # path, headers, question
    trouble: list[Trouble]

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.asked.append((self.path, headers, question))
        if self.trouble:
            return self.trouble.pop(0)(self)
        assert headers["xi-api-key"] == KEY and question["text"] and question["model_id"]
        assert self.path == "/v1/text-to-speech/a%20voice%2F1?output_format=pcm_24000"
        self.send(200, tone(question["text"]).astype("<i2").tobytes())

    def do_GET(self) -> None:
        """Only a redirect that was followed comes here."""
        self.asked.append((self.path, {}, {}))
        self.send(200, bytes(100))

    def log_message(self, format, *args) -> None:
        pass

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        usual = {"Content_Length": str(len(body)), "Content_Type": "audio/pcm"}
        for name, value in (usual | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)


def refusing(status: int, message: str = "no", **headers: str) -> Trouble:
    body = json.dumps({"detail": {"status": "refused", "message": message}}).encode()
    return lambda handler: handler.send(status, body, **headers)


def answering(body: bytes, **headers: str) -> Trouble:
    return lambda handler: handler.send(200, body, **headers)


def sleeping(seconds: float) -> Trouble:
    return lambda handler: time.sleep(seconds)


@dataclass
class Server:
    url: str
    asked: list[tuple[str, dict[str, str], dict]]
    trouble: list[Trouble]


@contextmanager
def serving() -> Iterator[Server]:
    kind = type("Here", (Handler,), {"asked": [], "trouble": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield Server(f"http://127.0.0.1:{server.server_address[1]}", kind.asked, kind.trouble)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    for name, value in {"_FIRST_WAIT_S": 0.01, "_TIMEOUT_S": 5, "_RETRIES": 1}.items():
        monkeypatch.setattr(remote, name, value)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as server:
        yield server


def voice(server: Server, key: str = KEY) -> Http:
    return Http(voice=VOICE, url=server.url, key=key)


def test_what_is_asked_and_said(server):
    said = voice(server)
    samples = said.speak(TEXT)
    assert samples.dtype == np.int16 and said.rate == 24_000
    np.testing.assert_array_equal(samples, tone(TEXT))
    said.speak(TEXT, speed=1.25)
    assert said.speak("— !").shape == (0,)  # asks nobody
    server.trouble.append(answering(b"\xff\xff\1\0", Content_Type="audio/mpeg"))  # no MP3
    assert list(said.speak(TEXT)) == [-1, 1]
    (_, headers, first), (_, _, fast), _ = server.asked
    assert headers["content-type"] == "application/json"
    assert first == {"text": TEXT, "model_id": "eleven_flash_v2_5"}
    assert fast == first | {"voice_settings": {"speed": 1.2}}


def test_long_text_goes_in_sentences(server, monkeypatch):
    monkeypatch.setattr(remote, "_CHARACTERS", 30)
    samples = voice(server).speak("One sentence is here. Another one follows it! And a third.")
    parts = [question["text"] for _, _, question in server.asked]
    assert parts == ["One sentence is here.", "Another one follows it!", "And a third."]
    np.testing.assert_array_equal(samples, np.concatenate([tone(part) for part in parts]))


HANG_UP = lambda handler: handler.connection.shutdown(socket.SHUT_RDWR)  # noqa: E731
BREAK_OFF = answering(b"\0" * 10, Content_Length="20")
PASSING = {
    "500": refusing(500),
    "500 broken off": lambda handler: handler.send(500, b"no", Content_Length="9"),
    "429": refusing(429, Retry_After="0"),
    "broken off": BREAK_OFF,
    "timeout": sleeping(0.5),
    "hung up": HANG_UP,
}


@pytest.mark.parametrize("trouble", PASSING.values(), ids=PASSING)
def test_passing_trouble_passes(server, trouble, monkeypatch):
    monkeypatch.setattr(remote, "_TIMEOUT_S", 0.3)
    server.trouble.append(trouble)
    np.testing.assert_array_equal(voice(server).speak(TEXT), tone(TEXT))
    assert len(server.asked) == 2


def test_the_server_says_how_long_to_wait(server, monkeypatch):
    waits = []
    monkeypatch.setattr(remote.time, "sleep", waits.append)
    monkeypatch.setattr(remote, "_RETRIES", 3)
    server.trouble += [refusing(429, Retry_After="7"), refusing(500), refusing(500)]
    voice(server).speak(TEXT)
    assert waits == [7.0, 0.02, 0.04]


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (refusing(500, "on fire"), "status 500.*on fire.*attempt 2"),
        (refusing(429, Retry_After="3600"), "wait 3600 s.*attempt 1"),
        (BREAK_OFF, "no whole answer.*10 bytes.*attempt 2"),
        (sleeping(0.5), "no whole answer: timed out"),
        (refusing(422, "no such model"), "status 422.*no such model.*check the address"),
        (refusing(401, "invalid_api_key"), "status 401.*invalid_api_key.*check the key"),
        (refusing(404, "voice_not_found"), "status 404.*voice_not_found.*name of the voice"),
        (answering(b"{}", Content_Type="application/json"), "2 bytes of application/json"),
        (answering(b""), "0 bytes"),
        (answering(b"\1\2\3"), "3 bytes .* no 16-bit samples"),
        (answering(b"RIFFnonsense"), "no 16-bit samples"),
        (answering(b"ID3\4nonsense"), "no 16-bit samples"),
        (answering(b"\xff\xfb\x90\x64", Content_Type="audio/mpeg"), "4 bytes of audio/mpeg"),
        (lambda handler: handler.send(422, b"no", Content_Length="9"), "status 422.*says ''"),
    ],
)
def test_lasting_trouble_is_an_error(server, trouble, message, monkeypatch):
    monkeypatch.setattr(remote, "_TIMEOUT_S", 0.3)
    server.trouble += [trouble] * 2
    with pytest.raises(VoiceError, match=message):
        voice(server).speak(TEXT)


def test_the_key_is_shown_nowhere(server, capfd):
    said = voice(server)
    server.trouble += [refusing(401, f"{KEY} is unknown"), refusing(500, KEY), refusing(500, KEY)]
    for _ in range(2):
        with pytest.raises(VoiceError, match=r"\*\*\*") as raised:
            said.speak(TEXT)
        assert KEY not in str(raised.value) and KEY not in repr(raised.value)
        assert raised.value.__suppress_context__
    assert KEY not in repr(said) and KEY not in said.name
    assert KEY not in "".join(capfd.readouterr())


def test_no_redirect_carries_the_key_away(server):
    with serving() as other:
        server.trouble.append(refusing(302, Location=f"{other.url}/elsewhere"))
        with pytest.raises(VoiceError, match=r"status 302.*check the address"):
            voice(server).speak(TEXT)
        assert not other.asked


def test_keys_and_addresses(server, monkeypatch):
    monkeypatch.setenv("ELEVENLABS_API_KEY", KEY + "\n")  # as from a file
    assert len(Http(voice=VOICE, url=server.url).speak(TEXT))
    monkeypatch.delenv("ELEVENLABS_API_KEY")
    with pytest.raises(VoiceError, match="ELEVENLABS_API_KEY"):
        Http(voice=VOICE)
    with pytest.raises(VoiceError, match="check how it was copied") as raised:
        Http(voice=VOICE, key="abc\ndef")
    assert "abc" not in str(raised.value)
    odd = ("api.elevenlabs.io", "http://[::1", "http://localhost:abc", "http:///x", "http://a b/")
    for url in odd:
        with pytest.raises(VoiceError, match=re.escape(f"url is {url!r}")):
            Http(voice=VOICE, key=KEY, url=url)
