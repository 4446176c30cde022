"""Keep compiled programs on disk, and say how long a compilation takes."""

import contextlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import jax

from simuljax.parsing import parse_json


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
def announce_compilation(name: str, *, about_s: float) -> Iterator[None]:
    """Show on the terminal that a model compiles, the time so far and the time to expect.

    `about_s` is the estimate for the first time. The time of the last compilation of `name` is kept
    beside the compiled programs, so that the next message tells the time with the cache.
    """
    directory = jax.config.values["jax_compilation_cache_dir"]
    times = Path(directory) / "compile_seconds.json" if directory else None
    key = f"{name}, {jax.devices()[0].device_kind}, jax {jax.__version__}"
    known = _read_times(times)
    message = (
        f"compiling: {{}} s of about {about_s:.0f} s{', cached next time' if directory else ''}"
    )
    if key in known:
        message = f"loading compiled programs: {{}} s of about {known[key]:.0f} s"
    start = time.perf_counter()
    with _running_clock(message):
        yield
    if times is not None:
        known[key] = round(time.perf_counter() - start, 1)
        with contextlib.suppress(OSError):  # a cache that cannot be written is only slower
            times.write_text(json.dumps(known, indent=1) + "\n")


@contextlib.contextmanager
def _running_clock(message: str) -> Iterator[None]:
    """Show a message; {} in it is the seconds since it began."""
    done = threading.Event()

    def run() -> None:
        seconds = 0
        while not done.is_set():
            show_status(message.format(seconds))
            done.wait(1.0)
            seconds += 1

    clock = threading.Thread(target=run, daemon=True)
    clock.start()
    try:
        yield
    finally:
        done.set()
        clock.join()


def _read_times(path: Path | None) -> dict[str, float]:
    try:
        held = parse_json(path.read_bytes()) if path else {}
        return {name: float(time) for name, time in held.items()}
    except (OSError, ValueError, TypeError, AttributeError, OverflowError):
        return {}


def show_status(text: str) -> None:
    """Print a line on the terminal that the next one replaces; print nothing elsewhere."""
    if sys.stderr.isatty():
        text = text[: shutil.get_terminal_size().columns - 1]
        print(f"\r{text}\x1b[K", end="\r", file=sys.stderr, flush=True)
