"""Runs of `tests.train.running` in processes of their own: started, waited for, signalled."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE_S = 240


class Process:
    """One of them; what it says is kept."""

    def __init__(self, run: Path, *options: str) -> None:
        run.mkdir(parents=True, exist_ok=True)
        self._said = run / f"said.{time.monotonic_ns()}"
        with self._said.open("w") as said:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "tests.train.running", str(run), *options],
                cwd=ROOT,
                env=os.environ | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"},
                stdout=said,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        return self._said.read_text()

    def kill(self) -> None:
        """Ends it as a power cut would."""
        self.popen.send_signal(signal.SIGKILL)
        assert self.popen.wait() == -signal.SIGKILL, self.said  # it was alive until now

    def stop(self) -> None:
        """Stops it, as a machine that swaps or a hypervisor that is moving it would."""
        self.popen.send_signal(signal.SIGSTOP)

    def ended(self) -> int:
        """Waits, and gives the exit status."""
        try:
            return self.popen.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            raise AssertionError(f"it did not end:\n{self.said}") from None

    def wait_for_step(self, step: int) -> None:
        """Until it has said that it is there."""
        deadline = time.monotonic() + PATIENCE_S
        while max(map(int, re.findall(r"^step (\d+)/", self.said, re.M)), default=0) < step:
            assert self.popen.poll() is None and time.monotonic() < deadline, self.said
            time.sleep(0.02)


def two(run: Path, *options: str, second: tuple[str, ...] = ()) -> list[Process]:
    """Two that are one run, of two devices each; the second may have options of its own."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port = opened.getsockname()[1]
    meeting = ("--devices", "2", "--coordinator", f"127.0.0.1:{port}")
    more = ((), second)
    return [
        Process(run, *options, *meeting, "--index", str(index), *more[index]) for index in (0, 1)
    ]
