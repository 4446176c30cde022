"""Run what docs/serving.md shows: the client, the command for files, HAProxy's file."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from websockets.sync.client import connect

from tests.serve.web.servers import frames, running, sound, speak, words_of

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "serving.md").read_text()
HAPROXY = os.environ.get("HAPROXY") or shutil.which("haproxy")


def test_the_client_in_python(live, tmp_path):
    (code,) = [c for c in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "connect(" in c]
    assert "127.0.0.1:8000" in code
    (tmp_path / "client.py").write_text(code.replace(":8000", f":{live.port}"))
    samples = sound(1, 1.5)
    soundfile.write(tmp_path / "talk.wav", samples, 16_000)
    command = [sys.executable, "client.py", "talk.wav"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    received = [json.loads(line) for line in done.stdout.splitlines()]
    pieces = [samples[k : k + 1600] for k in range(0, len(samples), 1600)]
    assert words_of(received) == live.alone(pieces)
    assert received[-1] == {"type": "done"}


@pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl")
def test_the_command_for_files(live, tmp_path):
    (line,) = re.findall(r"^curl .*$", PAGE, re.MULTILINE)
    soundfile.write(tmp_path / "talk.wav", sound(2, 2.0), 16_000)
    command = line.replace(":8000", f":{live.port}").replace("curl", "curl -s --noproxy '*'")
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert re.match(r"1\n00:00:0\d,\d{3} --> 00:00:0\d,\d{3}\n\w", done.stdout), done


@pytest.mark.slow
@pytest.mark.skipif(not HAPROXY, reason="there is no HAProxy; set $HAPROXY")
def test_two_processes_behind_haproxy(translator, live, tmp_path):
    """Sockets go to both; a session that is resumed comes back to its own."""
    with running(translator) as other:
        text = (ROOT / "docs" / "examples" / "haproxy.cfg").read_text()
        port = live.port + 1 if live.port < 60_000 else live.port - 1
        for given, ours in ((8001, live.port), (8002, other.port)):
            text = text.replace(f"127.0.0.1:{given}", f"127.0.0.1:{ours}")
        text = text.replace("bind :8000", f"bind 127.0.0.1:{port}")
        (tmp_path / "haproxy.cfg").write_text(text)
        assert HAPROXY is not None
        process = subprocess.Popen([HAPROXY, "-f", str(tmp_path / "haproxy.cfg")])
        try:
            time.sleep(3)
            url, options = f"ws://127.0.0.1:{port}/stream", {"compression": None}
            for _ in range(4):
                with connect(url, **options) as socket:
                    assert speak(socket, [sound(3, 0.4)])[-1] == {"type": "done"}
            opened = [server.metric("simuljax_sessions_opened_total") for server in (live, other)]
            assert opened[1] >= 1 and opened[0] >= 1
            samples = sound(4, 2.0)
            for number in range(4):
                resumed(f"{url}?session={'s' * 20}{number}&detail=1", samples, live)
        finally:
            process.terminate()
            process.wait(20)


def resumed(url: str, samples: np.ndarray, live) -> None:
    with connect(url, compression=None) as socket:
        socket.send(samples[:16_000].tobytes())
        got: list = []
        while not got:
            got = words_of([json.loads(socket.recv(timeout=20))])
        time.sleep(0.3)
        socket.socket.shutdown(2)
        got += words_of(frames(socket))
    time.sleep(0.2)
    with connect(f"{url}&words={len(got)}", compression=None) as socket:
        begun = json.loads(socket.recv(timeout=20))
        assert begun["samples"] == 16_000
        received = speak(socket, [samples[16_000:]])
    texts = [text for text, _ in got + words_of(received)]
    assert texts == [text for text, _ in live.alone([samples])]
