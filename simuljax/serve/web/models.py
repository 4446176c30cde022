"""A model that is served: its engine, what a step takes, and its counters for Prometheus."""

import bisect
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from simuljax.audio import MS
from simuljax.serve.engine import Engine, EngineStream

WINDOW_S, LEAST = 10.0, 5  # of recent durations: how old, and how few tell nothing
BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
COUNTED = ("sessions_opened", "words", "steps", "failures", "audio_seconds", "step_seconds")


class Recent:
    """Durations of the last seconds. One thread adds, any thread reads."""

    def __init__(self) -> None:
        self.values: deque[tuple[float, float]] = deque(maxlen=2000)

    def add(self, seconds: float) -> None:
        """Note a duration that ends now."""
        self.values.append((time.monotonic(), seconds))

    def percentile(self, q: float) -> float:
        """Return a percentile in seconds; 0 if there are too few durations."""
        since = time.monotonic() - WINDOW_S
        recent = [seconds for at, seconds in self.values.copy() if at >= since]
        return float(np.percentile(recent, q)) if len(recent) >= LEAST else 0.0


class Metrics:
    """The counters of one model, and a histogram of the time from push to word."""

    def __init__(self) -> None:
        self.counts: dict[str, float] = dict.fromkeys(COUNTED, 0)
        self.refused: Counter[str] = Counter()  # by reason
        self.cut: Counter[str] = Counter()  # sessions that the server ended, by reason
        self.buckets, self.latency_s = [0] * (len(BUCKETS_S) + 1), 0.0

    def note_word(self, seconds: float) -> None:
        """Count a word and the time from its push."""
        self.counts["words"] += 1
        self.buckets[bisect.bisect_left(BUCKETS_S, seconds)] += 1
        self.latency_s += seconds

    def series(self, model: str, gauges: Mapping[str, float]) -> Iterator[tuple[str, str, str]]:
        """Yield (name, type, line) of every series."""
        name = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        label = f'model="{name}"'
        for key, value in gauges.items():
            yield f"simuljax_{key}", "gauge", f"simuljax_{key}{{{label}}} {value:g}"
        for key, value in self.counts.items():
            yield (
                f"simuljax_{key}_total",
                "counter",
                f"simuljax_{key}_total{{{label}}} {round(value, 3)}",
            )
        for key, reasons in (("refused", self.refused), ("sessions_cut", self.cut)):
            for reason, count in sorted(reasons.items()):
                line = f'simuljax_{key}_total{{{label},reason="{reason}"}} {count}'
                yield f"simuljax_{key}_total", "counter", line
        key, kind = "simuljax_push_to_word_seconds", "histogram"
        sums = np.cumsum(self.buckets)
        for bound, count in zip((*BUCKETS_S, "+Inf"), sums, strict=True):
            yield key, kind, f'{key}_bucket{{{label},le="{bound}"}} {count}'
        yield key, kind, f"{key}_sum{{{label}}} {self.latency_s:.6f}"
        yield key, kind, f"{key}_count{{{label}}} {sums[-1]}"


class Model:
    """A model that is served: its engine, its open sessions and its counters."""

    def __init__(
        self,
        name: str,
        make_engine: Callable[[], Engine],
        languages: tuple[str, ...] = (),
        clip: Path | None = None,
    ):
        self.name, self.make_engine, self.languages, self.clip = name, make_engine, languages, clip
        self.engine = make_engine()
        self.sessions: dict[EngineStream, Any] = {}  # a `LiveSession` each
        self.metrics = Metrics()
        session = self.engine.backend.open()
        self.read_ms = session.size / MS
        self.skips = hasattr(session, "settings")  # late streams leave out windows, as Whisper's
        self.step_s: dict[int, float] = {}  # of so many streams, when the server began

    def warm_up(self) -> None:
        """Compile all that streams may need; time a step of 1, 2, 4, ... until one is late."""
        rows = len(self.engine.streams)
        self.engine.backend.compile(rows)
        counts = [1 << power for power in range(rows.bit_length()) if 1 << power < rows]
        for count in (*counts, rows):
            self.step_s[count] = self._step_s(count)
            if self.step_s[count] * 1000 > self.read_ms:
                break

    def _step_s(self, count: int) -> float:
        random = np.random.default_rng(0)
        loud = np.repeat(random.uniform(0, 0.3, 64), int(self.read_ms * MS) // 64 + 1)
        streams = [self.engine.open() for _ in range(count)]
        for stream in streams:
            stream.push((random.normal(size=len(loud)) * loud).clip(-1, 1))
        start = time.perf_counter()
        self.engine.step()
        took = time.perf_counter() - start
        for stream in streams:
            stream.leave()
        return took

    def growth(self, count: int) -> float:
        """Return how much longer a step takes with one more stream than `count`, at most (n+1)/n.

        A streaming encoder computes all rows in any case: 1. It is (n+1)/n beyond what was timed.
        """
        if count == 0 or not self.step_s:
            return 1.0
        if count >= max(self.step_s):
            return (count + 1) / count
        now, then = np.interp([count, count + 1], [*self.step_s], [*self.step_s.values()])
        return float(min(max(then / now, 1.0), (count + 1) / count))


def exposition(series: Iterable[tuple[str, str, str]]) -> str:
    """Return the document that Prometheus reads: series grouped by name, each with its type."""
    groups: dict[str, list[str]] = {}
    for name, kind, line in series:
        groups.setdefault(name, [f"# TYPE {name} {kind}"]).append(line)
    return "".join(line + "\n" for lines in groups.values() for line in lines)
