"""Counters of the server in Prometheus' text format, and times over the last seconds."""

import bisect
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping

import numpy as np

WINDOW_S = 10.0  # that "recent" times are of
BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)


class Recent:
    """Durations of the last seconds. One thread adds, any thread reads."""

    def __init__(self, window_s: float = WINDOW_S):
        self.window_s = window_s
        self.values: deque[tuple[float, float]] = deque(maxlen=2000)

    def add(self, seconds: float) -> None:
        """Note a duration that ends now."""
        self.values.append((time.monotonic(), seconds))

    def percentile(self, q: float, least: int = 5) -> float:
        """Return a percentile in seconds; 0 if there are fewer than `least` durations."""
        since = time.monotonic() - self.window_s
        recent = [seconds for at, seconds in self.values.copy() if at >= since]
        return float(np.percentile(recent, q)) if len(recent) >= least else 0.0


class Histogram:
    """Durations in cumulative buckets, as Prometheus has them."""

    def __init__(self) -> None:
        self.counts, self.sum_s = [0] * (len(BUCKETS_S) + 1), 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect.bisect_left(BUCKETS_S, seconds)] += 1
        self.sum_s += seconds

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """Yield the series of one histogram."""
        total = 0
        for bound, count in zip((*BUCKETS_S, "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
        yield f"{name}_sum{{{labels}}} {self.sum_s:.6f}"
        yield f"{name}_count{{{labels}}} {total}"


class ModelMetrics:
    """The counters of one model."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()  # opened, words, steps, failures
        self.refused: Counter[str] = Counter()  # by reason
        self.cut: Counter[str] = Counter()  # sessions the server ended, by reason
        self.audio_s = self.step_s = 0.0  # sound that came; time that the device was stepped
        self.word_latency = Histogram()

    def lines(self, model: str, gauges: Mapping[str, float]) -> Iterator[tuple[str, str, str]]:
        """Yield (name, type, line) of every series."""
        label = f'model="{_escaped(model)}"'
        for name, value in gauges.items():
            yield name, "gauge", f"{name}{{{label}}} {value:g}"
        for key in ("opened", "words", "steps", "failures"):
            name = f"simuljax_{'sessions_opened' if key == 'opened' else key}_total"
            yield name, "counter", f"{name}{{{label}}} {self.counters[key]}"
        for name, seconds in (
            ("simuljax_audio_seconds_total", self.audio_s),
            ("simuljax_step_seconds_total", self.step_s),
        ):
            yield name, "counter", f"{name}{{{label}}} {seconds:.3f}"
        for name, reasons in (
            ("simuljax_refused_total", self.refused),
            ("simuljax_sessions_cut_total", self.cut),
        ):
            for reason, count in sorted(reasons.items()):
                yield name, "counter", f'{name}{{{label},reason="{reason}"}} {count}'
        name = "simuljax_push_to_word_seconds"
        for line in self.word_latency.lines(name, label):
            yield name, "histogram", line


def exposition(series: Iterator[tuple[str, str, str]]) -> str:
    """Return the document that Prometheus reads: series grouped by name, each with its type."""
    groups: dict[str, tuple[str, list[str]]] = {}
    for name, kind, line in series:
        groups.setdefault(name, (kind, []))[1].append(line)
    parts = [f"# TYPE {name} {kind}\n" + "\n".join(ls) for name, (kind, ls) in groups.items()]
    return "\n".join(parts) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
