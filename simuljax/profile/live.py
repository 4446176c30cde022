"""Time streams in real time: push every READ to an engine when it would have been spoken.

Utterances follow one another on each stream. The latency of a READ has two parts: how late it was
pushed, because the host may fall behind, and the time from the push to the events of its step. A
machine keeps up if the 99th percentiles of both are together shorter than a READ.
"""

import dataclasses
import gc
import itertools
import time
from typing import Any

import numpy as np

from simuljax.decode.stream import StreamingDecoder, StreamParams
from simuljax.profile.measure import percentiles, say
from simuljax.serve.backends import IncrementalBackend
from simuljax.serve.engine import Behind, Engine, EngineStream
from simuljax.serve.session import MS, STATE, ReadSession
from simuljax.serve.stream import Backend
from simuljax.text import Vocabulary, VocabularyConfig, WordStream, learn


def decoder_backend(
    decoder: StreamingDecoder, params: StreamParams, read_ms: int
) -> IncrementalBackend:
    """Return the backend of a decoder without a run: its words are characters."""
    words = WordStream.begin(character_vocabulary(decoder.model.config.target_vocabulary))
    most = decoder.limits.states * STATE

    def session() -> ReadSession:
        return ReadSession(words, read=read_ms * MS, most=most, sentences="one")

    return IncrementalBackend(decoder, params, session)


def profile(
    backend: Backend, streams: int, read_ms: int, utterance_s: float, seconds: float
) -> dict[str, Any]:
    """Time `streams` streams for `seconds`, with READs spread evenly over time."""
    gc.collect()  # an engine before this one may still hold the device's memory
    say(f"compiling the step of {streams}")
    engine = Engine(backend, streams=streams)
    say(f"timing {streams} streams for {seconds:.0f} s")
    with engine:
        speakers = Speakers(engine, streams, read_ms, utterance_s)
        speakers.speak(2.0)  # warms up
        engine.latencies_ms.clear()
        steps, refused, start = engine.steps, speakers.refused, time.perf_counter()
        late = np.array(speakers.speak(seconds))
        took = time.perf_counter() - start
    latencies = np.array(engine.latencies_ms) if engine.latencies_ms else np.array([np.inf])
    return {
        "streams": streams,
        "latency_ms": percentiles(latencies),  # from the push to the events
        "mean_ms": float(latencies.mean()),
        "late_ms": percentiles(late),  # from the due time to the end of the push
        "reads": len(late),
        "reads_per_s": len(late) / took,
        "steps_per_s": (engine.steps - steps) / took,
        "refused": speakers.refused - refused,  # pushes to a full queue
        "keeps_up": bool(np.percentile(latencies, 99) + np.percentile(late, 99) < read_ms),
    }


def character_vocabulary(size: int) -> Vocabulary:
    """Return a vocabulary of `size` characters."""
    text = ["".join(chr(0x4E00 + i) for i in range(size))]
    return learn(text, VocabularyConfig(kind="characters", size=size))


@dataclasses.dataclass
class Speaker:
    """One stream: its place in the engine and the READs of its utterance so far."""

    reads: int
    stream: EngineStream | None = None


class Speakers:
    """All streams in one thread: they take turns, each once per READ."""

    def __init__(self, engine: Engine, streams: int, read_ms: int, utterance_s: float):
        self.engine, self.read_s = engine, read_ms / 1000
        self.reads = int(utterance_s / self.read_s)
        random = np.random.default_rng(0)
        self.sound = random.integers(-9_999, 9_999, read_ms * MS).astype(np.int16)
        # Utterances begin at different READs, so that they do not end together.
        done = random.integers(0, self.reads, streams)
        self.turns = itertools.cycle([Speaker(reads=int(count)) for count in done])
        self.interval_s = self.read_s / streams
        self.refused = 0

    def speak(self, seconds: float) -> list[float]:
        """Push what is due in the next `seconds`; return the lateness of each push in ms."""
        start, late = time.perf_counter(), []
        for count in range(int(seconds / self.interval_s)):
            due = start + count * self.interval_s
            if (early := due - time.perf_counter()) > 0:
                time.sleep(early)
            self._push(next(self.turns))
            late.append((time.perf_counter() - due) * 1e3)
        return late

    def _push(self, speaker: Speaker) -> None:
        if speaker.stream is None:
            speaker.stream = self.engine.open()
        try:
            speaker.stream.push(self.sound)
        except Behind:
            self.refused += 1
        speaker.reads += 1
        if speaker.reads >= self.reads:
            speaker.stream.leave()
            speaker.stream, speaker.reads = None, 0


def line(row: dict[str, Any]) -> str:
    """Format a row as text."""
    times = "  ".join(f"{q} {ms:.0f}" for q, ms in row["latency_ms"].items())
    verdict = "keeps up" if row["keeps_up"] else "does NOT keep up"
    return (
        f"{row['streams']} streams in real time: {verdict}; push to event {times} ms, mean "
        f"{row['mean_ms']:.0f}; pushes late by {row['late_ms']['p50']:.0f} ms, p99 "
        f"{row['late_ms']['p99']:.0f}; {row['reads_per_s']:.0f} READs/s, "
        f"{row['steps_per_s']:.1f} steps/s, {row['refused']} pushes refused"
    )
