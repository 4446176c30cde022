"""Stand-ins for the model and the voice of a live translation; terminals for child processes."""

import os
import pty
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from simuljax.audio import RATE
from simuljax.serve.session import Word
from simuljax.serve.whisper import WhisperStreaming

ROOT = Path(__file__).parents[2]
# The leader of a session that opens a terminal owns it from then on.
TAKE_TERMINAL = """
import os, sys
os.close(os.open(os.ttyname(1), os.O_RDWR))
os.execv(sys.argv[1], sys.argv[1:])
"""


class Model:
    """Keep all sound, and commit a word with every push: its number of samples."""

    def __init__(self, slow_s: float = 0.0, fails_at: int | None = None, last_s: float = 0.0):
        self.slow_s, self.fails_at, self.last_s = slow_s, fails_at, last_s
        self.chunks: list[np.ndarray] = []
        self.session, self.window_s = self, 1.0
        self.pending = ""
        self.settled_s = 0.0
        self.gate = threading.Event()  # a push waits for it
        self.gate.set()

    @property
    def samples(self) -> np.ndarray:
        return np.concatenate([np.zeros(0, np.int16), *self.chunks])

    def change(self, settings: WhisperStreaming) -> None:
        self.window_s = settings.window_s

    def push(self, samples: np.ndarray) -> list[Word]:
        self.gate.wait()
        time.sleep(self.slow_s)
        if len(self.chunks) == self.fails_at:
            raise ZeroDivisionError("the model broke")
        self.chunks.append(samples)
        self.pending = f"perhaps {len(self.chunks)}"
        self.settled_s = len(self.samples) / RATE
        return [self.word(str(len(samples)))]

    def finish(self) -> list[Word]:
        time.sleep(self.last_s)
        return [self.word("end")]

    def word(self, text: str) -> Word:
        delay = 1000 * len(self.samples) / RATE
        return Word(text=text, delay_ms=delay, elapsed_ms=delay + 1)


class Voice:
    """Keep what was to be spoken."""

    def __init__(self, fails: bool = False):
        self.fails = fails
        self.gate = threading.Event()
        self.gate.set()
        self.spoken: list[tuple[str, float]] = []
        self.finished = False
        self.end_s = 0.0

    def say(self, text: str, ready_s: float) -> None:
        self.gate.wait()
        if self.fails:
            raise ZeroDivisionError("the voice broke")
        self.spoken.append((text, ready_s))

    def finish(self) -> None:
        self.finished = True


def until(happens: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.perf_counter() + seconds
    while not happens():
        assert time.perf_counter() < end, "it never happens"
        time.sleep(0.001)


def on_terminal(*args: str, **given) -> tuple[subprocess.Popen, int]:
    """Run Python with these arguments; return the process and our end of its terminal."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE_TERMINAL, sys.executable, *args],
        **{"stdin": its, "stdout": its, "stderr": its, "cwd": ROOT, **given},
        start_new_session=True,
    )
    os.close(its)
    return process, ours


def read_until(terminal: int, text: str, seconds: float = 120) -> str:
    """Return the output until the text comes or the process ends."""
    seen, end = b"", time.monotonic() + seconds
    while text.encode() not in seen:
        assert time.monotonic() < end, f"no {text!r} in {seen.decode()!r}"
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                seen += os.read(terminal, 65536)
            except OSError:  # Linux: the other end is closed
                break
    return seen.decode()
