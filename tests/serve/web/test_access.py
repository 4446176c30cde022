"""Who may connect: tokens, origins, hosts; what cannot be asked for; clients that dawdle."""

import json
import socket as sockets
import ssl
import subprocess
import time
from urllib.parse import quote

import pytest

from simuljax.serve.web import server as server_module
from simuljax.serve.web.server import ServeError, ServeOptions, bind
from tests.serve.web.servers import frames, raw, running, sound, speak

TOKEN = "a+secret&of-some-length"  # has to be quoted in an address
AUTHORISED = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def live(translator):
    page = "https://captions.example.org"
    with running(translator, token=TOKEN, origin=(page,)) as server:
        yield server


def refusal(live, path: str = "/stream", **given) -> str:
    """The message of a socket that is not let in."""
    with live.socket(path, **given) as socket:
        received = frames(socket)
        assert received[-1]["type"] == "error" and socket.close_code == 1008
        assert not [*live.hub.sessions]
        return received[-1].get("message") or received[-1]["error"]["message"]


@pytest.mark.parametrize("path", ["/stream", "/v1/realtime"])
def test_without_the_token_nobody_is_let_in(live, path, caplog):
    assert "no token" in refusal(live, path)
    assert "wrong" in refusal(live, f"{path}?token=guess")
    assert "wrong" in refusal(live, f"{path}?token={quote(TOKEN[:-1])}")
    assert "wrong" in refusal(live, path, additional_headers={"Authorization": "Bearer x"})
    assert "token" in caplog.text and TOKEN[:-1] not in caplog.text


def test_with_the_token(live):
    assert live.get("/metrics")[0] == 401
    assert live.get("/v1/models", Authorization="Bearer no")[0] == 401
    assert live.get("/metrics", **AUTHORISED)[0] == 200
    assert live.get("/healthz")[0] == 200 and live.get("/")[0] == 200
    for path, given in [
        (f"/stream?token={quote(TOKEN)}", {}),
        ("/stream", {"additional_headers": AUTHORISED}),
    ]:
        with live.socket(path, **given) as socket:
            assert speak(socket, [sound(1, 0.3)])[-1] == {"type": "done"}
    offered = ["realtime", f"openai-insecure-api-key.{TOKEN}"]
    with live.socket("/v1/realtime", subprotocols=offered) as socket:
        assert json.loads(socket.recv(timeout=20))["type"] == "session.created"
        assert socket.subprotocol == "realtime"


def test_foreign_pages_may_not_connect(live):
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{live.port + 1}"):
        message = refusal(live, origin=origin, additional_headers=AUTHORISED)
        assert "--origin" in message
        status, _ = live.get("/v1/models", Origin=origin, **AUTHORISED)
        assert status == 403
    assert live.get("/v1/models", Origin="http://[", **AUTHORISED)[0] == 403
    for origin in (f"http://127.0.0.1:{live.port}", "https://captions.example.org"):
        with live.socket(origin=origin, additional_headers=AUTHORISED) as socket:
            assert speak(socket, [sound(1, 0.2)])[-1] == {"type": "done"}


def test_names_of_other_hosts_are_refused_on_loopback(live):
    """A page whose name was made to point to us has itself as the origin."""
    assert live.get("/", Host="evil.example")[0] == 403
    status, _ = live.get(
        "/v1/models", Host="evil.example", Origin="http://evil.example", **AUTHORISED
    )
    assert status == 403
    assert live.get("/", Host="captions.example.org")[0] == 200
    assert live.get("/", Host="localhost:1")[0] == 200


def test_no_path_leads_to_files(live):
    for path in (
        *("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", "/page.html"),
        *("//etc/passwd", "/stream/../../x", "/v1/../../pyproject.toml", "/%00"),
    ):
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        answer = raw(live, request.encode())
        assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400")) and b"root:" not in answer


def test_a_client_that_dawdles_over_its_headers_is_dropped(translator, monkeypatch):
    monkeypatch.setattr(server_module, "HEADERS_S", 0.4)
    with running(translator) as live:
        for begun in (b"", b"GET / HTTP/1.1\r\nHost: local"):
            with sockets.create_connection(("127.0.0.1", live.port), timeout=10) as slow:
                start = time.monotonic()
                slow.sendall(begun)
                assert slow.recv(100) == b""
                assert time.monotonic() - start < 5
        # One that has been answered may not dawdle over the next request either.
        with sockets.create_connection(("127.0.0.1", live.port), timeout=10) as slow:
            slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert slow.recv(4096).startswith(b"HTTP/1.1 200")
            slow.sendall(b"GET /healthz HT")
            while slow.recv(4096):
                pass
        with live.socket() as socket:  # one that has arrived is not: it may speak for long
            socket.send(sound(1, 0.2).tobytes())
            time.sleep(1.0)
            assert speak(socket, [sound(2, 0.2)])[-1] == {"type": "done"}


def test_too_many_connections_are_dropped(translator, monkeypatch):
    monkeypatch.setattr(server_module, "SPARE", 0)
    with running(translator, streams=4) as live:
        with pytest.raises(ServeError, match="cannot listen"):
            bind(ServeOptions(port=live.port))
        idle = [sockets.create_connection(("127.0.0.1", live.port), timeout=10) for _ in range(8)]
        time.sleep(0.3)
        with sockets.create_connection(("127.0.0.1", live.port), timeout=10) as late:
            try:
                late.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert late.recv(100) == b""
            except (ConnectionResetError, BrokenPipeError):
                pass
        for each in idle:
            each.close()


def test_tls(translator, tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    try:
        subprocess.run(
            [*command, "-keyout", key, "-out", certificate], check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("openssl cannot make a certificate here")
    trusted = ssl.create_default_context(cafile=str(certificate))
    with (
        running(translator, certificate=certificate, key=key) as live,
        live.socket("/stream", scheme="wss", ssl=trusted) as socket,
    ):
        assert speak(socket, [sound(1, 0.3)])[-1] == {"type": "done"}
