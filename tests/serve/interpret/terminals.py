"""Processes with a terminal of their own, and what they write on it."""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[3]
# Whoever leads a session and opens a terminal has it from then on.
TAKE_TERMINAL = """
import os, sys
os.close(os.open(os.ttyname(1), os.O_RDWR))
os.execv(sys.argv[1], sys.argv[1:])
"""


def on_terminal(*args: str, **given) -> tuple[subprocess.Popen, int]:
    """Python with these arguments, and our end of its terminal."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE_TERMINAL, sys.executable, *args],
        **{"stdin": its, "stdout": its, "stderr": its, "cwd": ROOT, **given},
        start_new_session=True,
    )
    os.close(its)
    return process, ours


def read_until(terminal: int, text: str, seconds: float = 120) -> str:
    """What is written until the text comes, or the process ends."""
    seen, end = b"", time.monotonic() + seconds
    while text.encode() not in seen:
        assert time.monotonic() < end, f"no {text!r} in {seen.decode()!r}"
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                seen += os.read(terminal, 65536)
            except OSError:  # Linux: nobody has the other end any more
                break
    return seen.decode()
