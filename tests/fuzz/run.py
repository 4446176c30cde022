"""Read damaged files for a while: `python -m tests.fuzz.run [--seconds S] [--seed N] [READER ...]`.

A reader may return, or raise an error that users see as one sentence. Anything else is a fault: it
is shown with its traceback, and the input is kept in fuzz_out/. Every reader works in a process of
its own, which may take 1 GiB more memory than it has at the start.
"""

import argparse
import hashlib
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from simuljax.errors import SimuljaxError
from tests.fuzz.mutate import mutate
from tests.fuzz.readers import READERS

KEPT = Path("fuzz_out")
MEMORY = 1 << 30  # bytes beyond what the process has when it begins
SLOWEST = 20.0  # seconds that one input may take


def inputs(name: str, seed: int, count: int | None = None):
    """Yield the good file, then damaged ones; the same for the same seed."""
    good, rng = READERS[name].good(), random.Random(f"{name}/{seed}")
    yield good
    while count is None or (count := count - 1) >= 0:
        yield mutate(good, rng)


def read(name: str, folder: Path, data: bytes) -> str:
    """Return "read" or "refused"; raise what no reader may raise."""
    path = folder / READERS[name].file
    path.write_bytes(data)
    started = time.monotonic()
    try:
        READERS[name].read(path)
        outcome = "read"
    except (SimuljaxError, OSError):
        outcome = "refused"
    if time.monotonic() - started > SLOWEST:
        raise TimeoutError(f"{name} took {time.monotonic() - started:.0f} s")
    return outcome


def fuzz(name: str, seed: int, seconds: float) -> Counter[str]:
    """Read damaged files until the time is over; keep those that fail."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    bound = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # decoders write there themselves
    counts: Counter[str] = Counter()
    deadline = time.monotonic() + seconds
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # disks are slow
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        for data in inputs(name, seed):
            if time.monotonic() > deadline:
                return counts
            try:
                counts[read(name, Path(folder), data)] += 1
            except Exception:
                counts["fault"] += 1
                if counts["fault"] <= 3:
                    keep(name, data)
    return counts


def keep(name: str, data: bytes) -> None:
    """Keep the input, and show what happened."""
    KEPT.mkdir(exist_ok=True)
    digest = hashlib.sha256(data).hexdigest()[:12]
    path = KEPT / f"{name.replace(' ', '_')}-{digest}"
    path.write_bytes(data)
    print(f"{path}:\n{traceback.format_exc(limit=-6)}", flush=True)


def main() -> None:
    """Fuzz the readers one after the other; exit 1 if one fails, hangs or dies."""
    parser = argparse.ArgumentParser()
    parser.add_argument("readers", nargs="*", default=[*READERS])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    chosen, failed = parser.parse_args(), []
    for name in chosen.readers:
        with multiprocessing.get_context("fork").Pool(1) as pool:
            waiting = pool.apply_async(fuzz, (name, chosen.seed, chosen.seconds))
            try:
                counts = waiting.get(chosen.seconds + 3 * SLOWEST)
            except multiprocessing.TimeoutError:
                counts = Counter(fault=1)
        print(f"{name:22} " + ", ".join(f"{n:,} {what}" for what, n in counts.items()), flush=True)
        failed += [name] if counts["fault"] else []
    sys.exit(f"faults in {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
