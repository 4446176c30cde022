"""Long speech in one stream: one compilation, no memory that grows, no READ that gets slower.

A quick version is `test_speech_may_go_on_for_many_sentences` of `tests/serve/test_live.py`.
"""

import gc
import time
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest

from simuljax.config.decoding import Decoding, LengthLimit, Repetition
from simuljax.config.model import Monotonic
from simuljax.serve.run_translator import IncrementalBackend, RunTranslator
from simuljax.serve.session import STATE
from simuljax.serve.translator import Stream
from tests.helpers import streams
from tests.helpers.models import compilations
from tests.helpers.streams import SPEECH, sound

MINUTE, STATES = 60 * streams.RATE, 300
DECODING = Decoding(
    avoid_eos_while_reading=True,  # sentences of 12 s, and not of a word or two
    limit=LengthLimit(ratio=0.34, constant=4),
    repetition=Repetition(longest=2, times=1),
)


@pytest.fixture(scope="module")
def talker() -> RunTranslator:
    """Writes a token every 120 ms, whatever it hears."""
    waiting = Monotonic(policy="wait_k", wait_k=(3, 3))
    return streams.translator(seed=13, speech=SPEECH, monotonic=waiting)


@pytest.fixture(scope="module")
def minutes() -> list[np.ndarray]:
    """Noise with pauses, some of them digital silence; any may follow any."""
    random, found = np.random.default_rng(7), []
    for _ in range(2):
        talk = (32767 * sound(random, MINUTE)).astype(np.int16)
        for start in random.integers(0, MINUTE, 12):
            quiet = slice(start, start + int(random.uniform(0.2, 2) * streams.RATE))
            talk[quiet] = 0 if random.random() < 0.5 else talk[quiet] // 300
        found.append(talk)
    return found


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a stream, and the process, hold at one time."""

    arrays: int
    device_bytes: int
    objects: int  # of Python
    pushes: int
    samples: int

    @classmethod
    def by(cls, stream: Any) -> "Held":
        gc.collect()
        arrays, books = jax.live_arrays(), stream.session
        kept = (books.sentence, books.waiting, books.incoming.held)
        return cls(
            arrays=len(arrays),
            device_bytes=sum(array.nbytes for array in arrays),
            objects=len(gc.get_objects()),
            pushes=len(books.pushes),
            samples=sum(len(a) for a in kept),
        )


def talk(stream: Stream, minutes: list[np.ndarray], count: int, longest: int) -> tuple[int, float]:
    """Words of so many minutes, pushed in random pieces; and seconds of computing."""
    random, words, start = np.random.default_rng(count), 0, time.process_time()
    for place in random.integers(len(minutes), size=count):
        cuts = []
        while sum(cuts) < MINUTE:
            cuts.append(int(np.exp(random.uniform(np.log(800), np.log(longest)))))
        for piece in np.split(minutes[place], np.cumsum(cuts)[:-1]):
            words += len(stream.push(piece))
    return words, time.process_time() - start


def begun(talker: RunTranslator, read_ms: int) -> Stream:
    given = {"states": STATES, "tokens": 120, "events": 16, "decoding": DECODING}
    return talker.stream(sentences="many", read_ms=read_ms, **given)


def same(before: Held, after: Held, stream: Any) -> None:
    assert (before.arrays, before.device_bytes) == (after.arrays, after.device_bytes)
    assert after.objects < before.objects + 1_000
    assert after.samples <= STATES * STATE + stream.session.read
    assert after.pushes <= 1 + stream.session.read  # one for every sample that waits, at worst
    assert isinstance(stream.backend, IncrementalBackend) and compilations(stream.backend.step) == 1


@pytest.mark.slow
def test_five_minutes(talker, minutes):
    """In small pieces; then two minutes at a time, as a file is read that fits no memory."""
    stream = begun(talker, 480)
    parts = [talk(stream, minutes, 1, 20 * streams.RATE)]
    before = Held.by(stream)
    for _ in range(2):
        parts.append(talk(stream, minutes, 1, 20 * streams.RATE))
    same(before, Held.by(stream), stream)
    assert min(words for words, _ in parts) > 5, "it fell silent"
    assert parts[-1][1] < 2 * parts[0][1], parts
    assert stream.session.pushed == 3 * MINUTE
    words = stream.push(np.concatenate(minutes[:2]))
    assert {word.delay_ms for word in words} == {300_000} and len(words) > 10
    del words  # not the stream's
    same(before, Held.by(stream), stream)
    assert {word.delay_ms for word in stream.finish()} <= {300_000}
    assert stream.session.finished
