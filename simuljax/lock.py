"""Locks of directories, which a process that dies releases.

On a file system without locks, work goes on with a warning, and every directory looks free.
"""

import errno
import fcntl
import functools
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from simuljax.config.fields import ConfigError

LOCK = "lock"  # of a grid's worker
TRAINING = "training.lock"  # of whoever writes checkpoints and metrics
UNSUPPORTED = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)


@contextmanager
def try_lock(directory: Path, patience_s: float = 0.2, name: str = LOCK) -> Iterator[bool]:
    """Hold the lock of a directory if it is free, and yield True if it was.

    A process that dies releases its lock. `is_locked` holds it for a moment, hence the patience.
    """
    deadline = time.monotonic() + patience_s
    with (directory / name).open("w") as file:
        while (mine := _flock(file, fcntl.LOCK_EX)) is False and time.monotonic() < deadline:
            time.sleep(0.01)
        if mine is None:
            _warn()
        yield mine is not False


@contextmanager
def locked(directory: Path, patience_s: float = 2.0, name: str = LOCK) -> Iterator[None]:
    """Hold the lock of a directory; an error if another process keeps it."""
    with try_lock(directory, patience_s, name) as mine:
        if not mine:
            raise ConfigError(f"another process works on {directory}")
        yield


def is_locked(directory: Path) -> bool:
    """Return True if a process works on the directory, which may be read-only."""
    try:
        with (directory / LOCK).open() as file:
            return _flock(file, fcntl.LOCK_SH) is False
    except FileNotFoundError:
        return False


def _flock(file: TextIO, operation: int) -> bool | None:
    """Lock the file if it is free; return if it was, or None if the file system has no locks."""
    try:
        fcntl.flock(file, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        return None
    return True


@functools.cache  # once in a process
def _warn() -> None:
    print(
        "simuljax: warning: this file system has no locks, so nothing keeps two processes from "
        "working on one directory: run one at a time",
        file=sys.stderr,
        flush=True,
    )
