"""Chromium over its DevTools socket: enough to press buttons and to look at a page."""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.serve.live_fakes import until

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
    "--mute-audio",
]


def find() -> str | None:
    """The browser: $CHROMIUM, or one that is installed."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


needs_browser = pytest.mark.skipif(find() is None, reason="there is no Chromium; set $CHROMIUM")


class Tab:
    """One tab."""

    def __init__(self, socket: ClientConnection):
        self.socket, self.numbers = socket, itertools.count(1)
        for domain in ("Page", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            answer = json.loads(self.socket.recv(timeout=60))
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def run(self, code: str) -> Any:
        """The value of an expression, awaited."""
        given = {"awaitPromise": True, "returnByValue": True, "userGesture": True}
        result = self.call("Runtime.evaluate", expression=code, **given)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, code: str, seconds: float = 40.0) -> Any:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not (value := self.run(code)):
            assert time.monotonic() < end, f"{code} stayed {value!r}"
            time.sleep(0.05)
        return value

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && !!document.querySelector('#model option')")

    def click(self, name: str) -> None:
        self.run(f"document.getElementById({name!r}).click()")

    def text(self, name: str) -> str:
        return self.run(f"document.getElementById({name!r}).innerText")

    def open_file(self, path: Path) -> None:
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
        self.call("DOM.setFileInputFiles", files=[str(path)], nodeId=node)


@contextlib.contextmanager
def browsing(microphone: Path) -> Iterator[Callable[[], Tab]]:
    """Start a browser whose microphone plays a WAV file again and again; yield what opens a tab."""
    program = find()
    assert program is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        own = [f"--use-file-for-fake-audio-capture={microphone}", f"--user-data-dir={profile}"]
        command = [program, *FLAGS, *own, "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            told = Path(profile) / "DevToolsActivePort"
            until(lambda: process.poll() is not None or (told.exists() and told.read_text()), 60)
            port = int(told.read_text().split()[0])
            with contextlib.ExitStack() as stack:

                def tab() -> Tab:
                    url = f"http://127.0.0.1:{port}/json/new?about:blank"
                    request = urllib.request.Request(url, method="PUT")
                    with urllib.request.urlopen(request, timeout=20) as answer:
                        address = json.load(answer)["webSocketDebuggerUrl"]
                    options = {"max_size": None, "compression": None, "ping_interval": None}
                    return Tab(stack.enter_context(connect(address, **options)))

                yield tab
        finally:
            process.terminate()
            process.wait(20)
