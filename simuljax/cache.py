"""Keep compiled programs on disk, and say how long a compilation takes."""

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import jax


def enable_compilation_cache() -> Path:
    """Keep what XLA compiles on disk, in ~/.cache/simuljax/xla unless JAX has a directory."""
    chosen = jax.config.values["jax_compilation_cache_dir"]  # JAX reads the variable itself
    if chosen:
        return Path(chosen)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(caches) / "simuljax" / "xla"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"{directory} cannot be made ({error.strerror}): programs compile every time"
        print(f"simuljax: warning: {problem}; set XDG_CACHE_HOME", file=sys.stderr)
        return directory
    jax.config.update("jax_compilation_cache_dir", str(directory))
    return directory


@contextlib.contextmanager
def announce_compilation() -> Iterator[None]:
    """Show on the terminal that a model compiles, and the seconds so far."""
    done = threading.Event()

    def run() -> None:
        start = time.monotonic()
        while not done.is_set():
            seconds = time.monotonic() - start
            show_status(f"compiling, or loading compiled programs: {seconds:.0f} s")
            done.wait(1.0)

    clock = threading.Thread(target=run, daemon=True)
    clock.start()
    try:
        yield
    finally:
        done.set()
        clock.join()


def show_status(text: str) -> None:
    """Print a line on the terminal that the next one replaces; print nothing elsewhere."""
    if sys.stderr.isatty():
        text = text[: shutil.get_terminal_size().columns - 1]
        print(f"\r{text}\x1b[K", end="\r", file=sys.stderr, flush=True)
