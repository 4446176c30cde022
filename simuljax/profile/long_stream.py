"""`simuljax profile stream`: push hours of sound into one stream and watch every minute.

    simuljax profile stream ggml-tiny.bin talks/*.wav --minutes 60 --policy local-agreement

Recordings are pushed one after the other, as fast as the machine goes, and again from the first
until so many minutes have passed. Memory should stay flat once every shape is compiled, words
should come in time, and no phrase should loop. Works for any model that `simuljax.load` takes.
"""

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from resource import getpagesize
from typing import Annotated, Any

import jax
import numpy as np
import tyro

from simuljax.audio import RATE, read_audio
from simuljax.config.decoding import Sentences
from simuljax.decode.policies import policy_class
from simuljax.profile.measure import (
    check_positive,
    counted_programs,
    environment,
    say,
)
from simuljax.serve.bundled import parts_of
from simuljax.serve.session import Stream
from simuljax.serve.translator import load

STATM = Path("/proc/self/statm")  # Linux: pages; the second number is those in memory
PHRASE = 6  # words of the longest phrase that is searched for


@dataclass(frozen=True, kw_only=True)
class StreamProfile:
    """Memory, computing time, open sound and repeated phrases of one long stream, by minute."""

    model: Annotated[Path, tyro.conf.Positional]
    """A run directory or a Whisper file."""
    recordings: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Sound files."""
    minutes: float = 60.0
    """Length of the stream."""
    chunk: float = 0.5
    """Seconds pushed at a time."""
    policy: str | None = None
    """Policy by name; by default the model's."""
    read_ms: int | None = None
    """Sound between decisions, in milliseconds; by default the model's."""
    sentences: Sentences | None = None
    """Where sentences of a run end: a stream of hours needs many or pauses, as in `translate`."""

    def __post_init__(self) -> None:
        check_positive(self)
        for path in (*parts_of(self.model), *self.recordings):
            if not path.exists():
                raise ValueError(f"{path} does not exist")


def run(config: StreamProfile) -> dict[str, Any]:
    """Push the recordings and return the numbers of every minute."""
    overrides = {"read_ms": config.read_ms, "sentences": config.sentences}
    overrides["policy"] = policy_class(config.policy)() if config.policy else None
    given = {name: value for name, value in overrides.items() if value}
    stream = load(config.model).stream(**given)
    sound = cut(itertools.cycle(config.recordings), config.minutes * 60)
    minutes = []
    for minute in measure_minutes(stream, sound, round(config.chunk * RATE)):
        minutes.append(minute)
        say(f"minute {len(minutes)}: {minute['resident_mb']:.0f} MB, {len(minute['words'])} words")
    words = [word for minute in minutes for word in minute["words"]]
    return environment(config) | {
        "minutes": minutes,
        "repeated": {size: repeated(words, size) for size in range(1, PHRASE + 1)},
    }


def cut(recordings: Iterable[Path], seconds: float) -> Iterator[np.ndarray]:
    """Yield recordings until they are so long together."""
    left = round(seconds * RATE)
    for path in recordings:
        samples = read_audio(path).samples[:left]
        left -= len(samples)
        yield samples
        if left <= 0:
            return


def measure_minutes(
    stream: Stream, sound: Iterable[np.ndarray], size: int
) -> Iterator[dict[str, Any]]:
    """Push all sound in chunks; yield a measurement after every minute and at the end.

    Times are the longest of the minute, memory is that at its end: the process', JAX's arrays.
    `programs` were compiled or read from the cache on disk. `open_s` is sound for which more words
    may come, `behind_s` the time from the end of a chunk until it was done with, had it come in
    real time, `quiet_s` the time since the last word.
    """
    chunks = (part[i : i + size] for part in sound for i in range(0, len(part), size))
    pushed, last_s, done_s = 0, 0.0, 0.0
    rows: list[dict[str, Any]] = []
    with counted_programs() as programs:
        for chunk in itertools.chain(chunks, [None]):
            if chunk is not None and rows and pushed // (60 * RATE) > rows[0]["start"]:
                yield _minute(rows, programs)
                rows = []
            start, pushed = pushed, pushed + (0 if chunk is None else len(chunk))
            open_s, before = pushed / RATE - stream.settled_s, time.perf_counter()
            words = stream.finish() if chunk is None else stream.push(chunk)
            spent = time.perf_counter() - before
            done_s = max(done_s, pushed / RATE) + spent
            quiet_s, last_s = pushed / RATE - last_s, pushed / RATE if words else last_s
            rows.append(
                {
                    "start": start // (60 * RATE),
                    "sound_s": (pushed - start) / RATE,
                    "spent_s": spent,
                    "open_s": open_s,
                    "behind_s": done_s - pushed / RATE,
                    "quiet_s": quiet_s,
                    "words": [word.text for word in words],
                }
            )
        yield _minute(rows, programs)


def _minute(rows: Sequence[dict[str, Any]], programs: list[float]) -> dict[str, Any]:
    count = len(programs)
    programs.clear()
    return {
        **{name: sum(row[name] for row in rows) for name in ("sound_s", "spent_s")},
        **{name: max(row[name] for row in rows) for name in ("open_s", "behind_s", "quiet_s")},
        "resident_mb": int(STATM.read_text().split()[1]) * getpagesize() / 1e6,
        "arrays_mb": sum(array.nbytes for array in jax.live_arrays()) / 1e6,
        "programs": count,
        "words": [word for row in rows for word in row["words"]],
    }


def repeated(words: Sequence[str], size: int) -> tuple[str, int]:
    """Return the phrase of `size` words that comes most often in a row, and how often."""
    best, times, run = "", 0, 0
    for i in range(size - 1, len(words)):
        run = run + 1 if i >= size and words[i] == words[i - size] else 0
        if run // size + 1 > times:
            best, times = " ".join(words[i + 1 - size : i + 1]), run // size + 1
    return best, times
