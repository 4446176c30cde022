"""Streams in real time: every READ is pushed to an engine at the moment it would have been spoken.

Utterances follow one another on each stream. What counts is the time from when a READ was due to
the events of the step that heard it. It has two parts: how late the push was done, since the host,
too, may fall behind, and the time from there to the events. A machine keeps up while their 99th
percentiles together are shorter than a READ.
"""

import dataclasses
import gc
import itertools
import time
from typing import Any

import numpy as np

from simuljax.decode.stream import StreamingDecoder, StreamParams
from simuljax.profile.measure import say
from simuljax.serve.backends import IncrementalBackend
from simuljax.serve.engine import Behind, Engine, EngineStream
from simuljax.serve.session import MS, STATE, ReadSession
from simuljax.text import Vocabulary, VocabularyConfig, WordStream, learn


def profile(
    decoder: StreamingDecoder,
    learnt: StreamParams,
    streams: int,
    read_ms: int,
    utterance_s: float,
    seconds: float,
) -> dict[str, Any]:
    """So many streams for so long, their READs spread evenly over time."""
    words = WordStream.begin(meaningless(decoder.model.config.target_vocabulary))
    most = decoder.limits.states * STATE

    def session() -> ReadSession:
        return ReadSession(words, read=read_ms * MS, most=most, sentences="one")

    gc.collect()  # an engine before this one may still hold the device's memory
    say(f"compiling the step of {streams}")
    engine = Engine(IncrementalBackend(decoder, learnt, session), streams=streams)
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
        "latency_ms": percentiles(latencies),  # from push to events
        "mean_ms": float(latencies.mean()),
        "late_ms": percentiles(late),  # from when a push was due until it was done
        "reads": len(late),
        "reads_per_s": len(late) / took,
        "steps_per_s": (engine.steps - steps) / took,
        "refused": speakers.refused - refused,  # pushes, because too much waited
        "keeps_up": bool(np.percentile(latencies, 99) + np.percentile(late, 99) < read_ms),
    }


def percentiles(values: np.ndarray) -> dict[str, float]:
    """The usual ones."""
    return {f"p{q}": float(np.percentile(values, q)) for q in (50, 90, 99)}


def meaningless(size: int) -> Vocabulary:
    """A vocabulary of so many characters."""
    text = ["".join(chr(0x4E00 + i) for i in range(size))]
    return learn(text, VocabularyConfig(kind="characters", size=size))


@dataclasses.dataclass
class Speaker:
    """One stream: where its utterance is heard, and how many of its READs were said."""

    said: int
    seat: EngineStream | None = None


class Speakers:
    """All of them, in one thread: they take turns, and a READ later all over again."""

    def __init__(self, engine: Engine, streams: int, read_ms: int, utterance_s: float):
        self.engine, self.read_s = engine, read_ms / 1000
        self.reads = int(utterance_s / self.read_s)
        random = np.random.default_rng(0)
        self.sound = random.integers(-9_999, 9_999, read_ms * MS).astype(np.int16)
        # Utterances begin at all times, so that not all of them end at once.
        said = random.integers(0, self.reads, streams)
        self.turns = itertools.cycle([Speaker(said=int(count)) for count in said])
        self.apart_s = self.read_s / streams
        self.refused = 0

    def speak(self, seconds: float) -> list[float]:
        """What is due in so long, from now on; gives by how much each push was done late, in ms."""
        start, late = time.perf_counter(), []
        for count in range(int(seconds / self.apart_s)):
            due = start + count * self.apart_s
            if (early := due - time.perf_counter()) > 0:
                time.sleep(early)
            self._push(next(self.turns))
            late.append((time.perf_counter() - due) * 1e3)
        return late

    def _push(self, speaker: Speaker) -> None:
        if speaker.seat is None:
            speaker.seat = self.engine.open()
        try:
            speaker.seat.push(self.sound)
        except Behind:
            self.refused += 1
        speaker.said += 1
        if speaker.said >= self.reads:
            speaker.seat.leave()
            speaker.seat, speaker.said = None, 0


def line(row: dict[str, Any]) -> str:
    """One measurement for people."""
    times = "  ".join(f"{q} {ms:.0f}" for q, ms in row["latency_ms"].items())
    verdict = "keeps up" if row["keeps_up"] else "does NOT keep up"
    return (
        f"{row['streams']} streams in real time: {verdict}; push to event {times} ms, mean "
        f"{row['mean_ms']:.0f}; pushes late by {row['late_ms']['p50']:.0f} ms, p99 "
        f"{row['late_ms']['p99']:.0f}; {row['reads_per_s']:.0f} READs/s, "
        f"{row['steps_per_s']:.1f} steps/s, {row['refused']} pushes refused"
    )
