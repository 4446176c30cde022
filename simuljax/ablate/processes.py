"""A command as a job runs it: its output goes to a file, and it may save before it has to stop."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

SAVING_S = 300.0  # that a command has when it is told to stop


def run(
    command: Sequence[str],
    output: Path,
    *,
    where: Path | None = None,
    carried: Mapping[str, str] | None = None,
    limit_s: float | None = None,
) -> int:
    """The command's exit status. A job that is told to stop tells it, and waits while it saves."""
    with output.open("a") as said:
        process = subprocess.Popen(
            command,
            stdout=said,
            stderr=subprocess.STDOUT,
            cwd=where,
            env=os.environ | dict(carried or {}),
        )
        try:
            return process.wait(limit_s)
        except BaseException as why:
            end(process)
            if limit_s is not None and isinstance(why, subprocess.TimeoutExpired):
                said.write(f"ended after {limit_s / 60:g} minutes (--minutes)\n")
                return 1
            raise


def end(process: subprocess.Popen[bytes]) -> None:
    """Tells it to stop and waits while it saves, however often we are told to stop meanwhile."""
    process.terminate()
    until = time.monotonic() + SAVING_S
    while process.poll() is None:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except KeyboardInterrupt:
            continue
        except subprocess.TimeoutExpired:
            process.kill()
