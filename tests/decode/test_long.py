"""Long speech in one stream: one compilation, no memory that grows, no READ that gets slower."""

import gc
import time
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest

from simuljax.config.decoding import Decoding, LengthLimit, Repetition
from simuljax.config.model import Monotonic
from simuljax.serve.run_translator import IncrementalBackend
from simuljax.serve.session import STATE, Stream
from tests.helpers import streams
from tests.helpers.models import compilations
from tests.helpers.streams import SPEECH, sound

MINUTE, STATES = 60 * streams.RATE, 300
DECODING = Decoding(
    avoid_eos_while_reading=True,  # sentences of 12 s, and not of a word or two
    limit=LengthLimit(ratio=0.34, constant=4),
    repetition=Repetition(longest=2, times=1),
)


def minute(random: np.random.Generator) -> np.ndarray:
    """Noise with pauses, some of them digital silence."""
    talk = (32767 * sound(random, MINUTE)).astype(np.int16)
    for start in random.integers(0, MINUTE, 12):
        quiet = slice(start, start + int(random.uniform(0.2, 2) * streams.RATE))
        talk[quiet] = 0 if random.random() < 0.5 else talk[quiet] // 300
    return talk


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a stream, and the process, hold at one time."""

    arrays: int
    device_bytes: int
    objects: int  # of Python

    @classmethod
    def now(cls) -> "Held":
        gc.collect()
        arrays = jax.live_arrays()
        device_bytes = sum(array.nbytes for array in arrays)
        return cls(arrays=len(arrays), device_bytes=device_bytes, objects=len(gc.get_objects()))


def talk(stream: Stream, minute: np.ndarray, random: np.random.Generator) -> tuple[int, float]:
    """Words of a minute that is pushed in random pieces; and seconds of computing."""
    words, start, cuts = 0, time.process_time(), []
    while sum(cuts) < MINUTE:
        cuts.append(int(np.exp(random.uniform(np.log(800), np.log(20 * streams.RATE)))))
    for piece in np.split(minute, np.cumsum(cuts)[:-1]):
        words += len(stream.push(piece))
    return words, time.process_time() - start


def assert_same(before: Held, stream: Any) -> None:
    after, books = Held.now(), stream.session
    assert (before.arrays, before.device_bytes) == (after.arrays, after.device_bytes)
    assert after.objects < before.objects + 1_000
    kept = (books.sentence, books.waiting, books.incoming.held)
    assert sum(len(samples) for samples in kept) <= STATES * STATE + books.read
    assert len(books.pushes) <= 1 + books.read  # one for every sample that waits, at worst
    assert isinstance(stream.backend, IncrementalBackend) and compilations(stream.backend.step) == 1


@pytest.mark.slow
def test_five_minutes():
    """In small pieces; then two minutes at a time, as a file is read that fits no memory."""
    waiting = Monotonic(policy="wait_k", wait_k=(3, 3))  # a token every 120 ms, whatever it hears
    talker = streams.translator(seed=13, speech=SPEECH, monotonic=waiting)
    limits = {"states": STATES, "tokens": 120, "events": 16, "decoding": DECODING}
    stream: Any = talker.stream(sentences="many", read_ms=480, **limits)
    random = np.random.default_rng(7)
    minutes = [minute(random) for _ in range(2)]
    parts, before = [talk(stream, minutes[0], random)], Held.now()
    parts += [talk(stream, each, random) for each in minutes]
    assert_same(before, stream)
    assert min(words for words, _ in parts) > 5, "it fell silent"
    assert parts[-1][1] < 2 * parts[0][1], parts
    assert stream.session.pushed == 3 * MINUTE
    words = stream.push(np.concatenate(minutes))
    assert {word.delay_ms for word in words} == {300_000} and len(words) > 10
    del words  # not the stream's
    assert_same(before, stream)
    assert {word.delay_ms for word in stream.finish()} <= {300_000}
    assert stream.session.finished
