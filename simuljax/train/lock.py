"""Locks of directories, which a process that dies releases."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simuljax.config.fields import ConfigError

LOCK = "lock"  # of a grid's worker
TRAINING = "training.lock"  # of whoever writes checkpoints and metrics


@contextmanager
def try_lock(directory: Path, patience_s: float = 0.2, name: str = LOCK) -> Iterator[bool]:
    """Hold the lock of a directory if it is free, and yield True if it was.

    A process that dies releases its lock. `is_locked` holds it for a moment, hence the patience.
    """
    deadline, mine = time.monotonic() + patience_s, False
    with (directory / name).open("w") as file:
        while not mine:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                mine = True
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    break
                time.sleep(0.01)
        yield mine


@contextmanager
def locked(directory: Path, patience_s: float = 2.0, name: str = LOCK) -> Iterator[None]:
    """Hold the lock of a directory; an error if another process keeps it."""
    with try_lock(directory, patience_s, name) as mine:
        if not mine:
            raise ConfigError(f"another process works on {directory}")
        yield


def is_locked(directory: Path) -> bool:
    """Return True if a process works on the directory."""
    if not (directory / LOCK).exists():
        return False
    with try_lock(directory, patience_s=0.0) as mine:
        return not mine
