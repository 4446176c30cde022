"""Read damaged files: `python -m tests.fuzz.run [--seconds S | --count N] [--seed N] [READER ...]`.

A reader may return, or raise an error that users see as one sentence. Anything else is a fault: it
is shown with its traceback, and the input is kept in fuzz_out/. Every reader works in a process of
its own, which may take 1 GiB more memory than it has at the start: beyond that allocation fails,
and that is a fault too. A process reads 20,000 inputs at most: the library of the records keeps
about 20 kB for every file that it has opened. `--record FILE` adds a JSON line for each reader.
"""

import argparse
import hashlib
import itertools
import json
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
INPUTS = 20_000  # to a process
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


def fuzz(name: str, seed: int, seconds: float, part: range | None, folder: Path) -> Counter[str]:
    """Read damaged files until the time is over or all of the part are read; keep those that fail.

    `MiB` in the result is how far the resident memory rose at most.
    """
    read(name, folder, READERS[name].good())  # its threads stay, and their memory is no rise
    pages, resident = map(int, Path("/proc/self/statm").read_text().split()[:2])
    bound = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # decoders write there themselves
    counts: Counter[str] = Counter()
    deadline = time.monotonic() + seconds
    every = inputs(name, seed)
    for data in itertools.islice(every, part.start, part.stop) if part else every:
        if time.monotonic() > deadline:
            break
        try:
            counts[read(name, folder, data)] += 1
        except Exception:
            counts["fault"] += 1
            if counts["fault"] <= 3:
                keep(name, data, traceback.format_exc(limit=-6))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    counts["MiB"] = max(0, most - resident * resource.getpagesize()) >> 20
    return counts


def fuzz_apart(name: str, seed: int, seconds: float, part: range | None) -> Counter[str]:
    """Fuzz in a process of its own; its death and a hang are faults."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # disks are slow
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        given = (name, seed, seconds, part, Path(folder))
        child = context.Process(target=lambda: theirs.send(fuzz(*given)))
        child.start()
        theirs.close()
        try:
            if ours.poll(seconds + 3 * SLOWEST):
                return ours.recv()
            problem = "a hang"
        except EOFError:
            child.join()
            problem = f"the process ended with {child.exitcode}"
        finally:
            child.kill()
        keep(name, (Path(folder) / READERS[name].file).read_bytes(), problem)
    return Counter(fault=1)


def keep(name: str, data: bytes, problem: str) -> None:
    """Keep the input, and show what happened."""
    KEPT.mkdir(exist_ok=True)
    digest = hashlib.sha256(data).hexdigest()[:12]
    path = KEPT / f"{name.replace(' ', '_')}-{digest}"
    path.write_bytes(data)
    print(f"{path}:\n{problem}", flush=True)


def main() -> None:
    """Fuzz the readers one after the other; exit 1 if one fails, hangs or dies."""
    parser = argparse.ArgumentParser()
    parser.add_argument("readers", nargs="*", default=[*READERS])
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path)
    chosen, failed = parser.parse_args(), []
    seconds = chosen.seconds or (3600.0 if chosen.count else 10.0)
    for name in chosen.readers:
        ends = chosen.count and chosen.count + 1  # the good file is the first
        parts = (
            [range(i, min(i + INPUTS, ends)) for i in range(0, ends, INPUTS)] if ends else [None]
        )
        found = [fuzz_apart(name, chosen.seed, seconds / len(parts), part) for part in parts]
        counts = sum(found, Counter[str]())
        counts["MiB"] = max(each["MiB"] for each in found)
        print(f"{name:22} " + ", ".join(f"{n:,} {what}" for what, n in counts.items()), flush=True)
        failed += [name] if counts["fault"] else []
        if chosen.record:
            with chosen.record.open("a") as out:
                out.write(json.dumps({"reader": name, "seed": chosen.seed} | counts) + "\n")
    sys.exit(f"faults in {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
