"""Sound that is unusual, wrong or missing: what a stream and a seat of an engine do with it.

A push that cannot be used is refused whole, and the stream goes on as if it had not been made.
"""

import itertools
from typing import Protocol

import numpy as np
import pytest

from simuljax.audio import AudioError
from simuljax.config.model import Monotonic
from simuljax.serve.engine import Engine
from simuljax.serve.run_translator import RunTranslator
from simuljax.serve.stream import Word
from tests.helpers import models, streams
from tests.helpers.streams import DECODING, SPEECH

TALKATIVE = models.changed(DECODING, avoid_eos_while_reading=True)
LIMITS = {"states": 60, "tokens": 30, "events": 4, "decoding": TALKATIVE}


class Ear(Protocol):
    """A stream or a seat, to be used alike."""

    def push(self, samples) -> list[Word]: ...
    def finish(self) -> list[Word]: ...


class Seated:
    """A seat that is stepped after every push."""

    def __init__(self, engine: Engine):
        self.engine, self.seat = engine, engine.open()

    def push(self, samples) -> list[Word]:
        self.seat.push(samples)
        return self._words()

    def finish(self) -> list[Word]:
        self.seat.finish()
        return self._words()

    def _words(self) -> list[Word]:
        while self.engine.step():
            pass
        return self.seat.words()


@pytest.fixture(scope="module")
def incremental() -> RunTranslator:
    """Something comes at every READ."""
    waiting = Monotonic(policy="wait_k", wait_k=(2, 2))
    return streams.translator(seed=13, speech=SPEECH, monotonic=waiting)


@pytest.fixture(scope="module")
def rereading() -> RunTranslator:
    waiting = Monotonic(policy="wait_k", wait_k=(2, 2))
    return streams.translator(seed=13, speech=streams.WHOLE, monotonic=waiting)


@pytest.fixture(scope="module")
def engine(incremental) -> Engine:
    return incremental.engine(streams=2, **LIMITS)


@pytest.fixture(
    params=["stream", *(pytest.param(way, marks=pytest.mark.slow) for way in ("seat", "rereading"))]
)
def begin(request):
    """Gives a new stream, by one of the ways there are."""
    name = "incremental" if request.param == "stream" else request.param
    if request.param == "seat":
        engine, seats = request.getfixturevalue("engine"), []

        def seat() -> Seated:
            seats.append(Seated(engine))
            return seats[-1]

        yield seat
        for one in seats:
            one.seat.leave()
        assert len(engine.free) == len(engine.streams)
    else:
        translator = request.getfixturevalue(name)
        yield lambda: translator.stream(**LIMITS)


def noise(seed: int, seconds: float, loud: float = 0.3) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.normal(size=int(seconds * 16_000)) * loud).clip(-1, 1).astype(np.float32)


def said(ear: Ear, *pieces) -> list[tuple[str, float]]:
    words = [word for piece in pieces for word in ear.push(piece)] + ear.finish()
    assert all(np.isfinite(word.delay_ms) and word.text for word in words)
    return [(word.text, word.delay_ms) for word in words]


QUIET = np.zeros(16_000, np.float32)
SOUNDS = {
    "digital silence": QUIET,
    "silence with a hum": 1e-4 * np.sin(np.arange(16_000) / 50, dtype=np.float32),
    "silence, then speech": np.concatenate([QUIET, noise(1, 0.8)]),
    "clipped": np.sign(noise(2, 1.0)),
    "all at 1": np.ones(16_000, np.float32),
    "all at -1": -np.ones(16_000, np.float32),
    "white noise": noise(3, 1.0),
    "stops in a word": noise(4, 0.731),
    "less than a frame": noise(5, 0.02),
    "one sample": noise(6, 1 / 16_000),
}


@pytest.mark.parametrize("name", SOUNDS)
def test_any_sound_is_translated_to_the_end(begin, name):
    """The same whether it comes as floats or int16, whole or in pieces."""
    samples = SOUNDS[name]
    whole = said(begin(), samples)
    as_int16 = np.clip(np.rint(samples * 32768), -32768, 32767).astype(np.int16)
    pieces = np.array_split(as_int16, 7)
    again = said(begin(), *pieces)
    assert [text for text, _ in whole] == [text for text, _ in again]
    end = len(samples) / 16
    assert {at for _, at in whole} <= {end} and all(at <= end for _, at in again)
    assert whole or len(samples) < 400, "nothing at all was said"


def test_nothing_at_all(begin):
    assert said(begin()) == []
    assert said(begin(), np.zeros(0, np.float32), np.zeros(0, np.int16), []) == []


def test_what_is_no_sound_is_refused_and_nothing_of_it_taken(begin):
    """Whatever is refused at a time, the words and their delays are those of the rest."""
    good = np.array_split(noise(7, 1.0), 5)
    bad = [
        (np.array([0.1, np.nan], np.float32), "not finite"),
        (np.append(noise(8, 0.3), np.inf), "not finite"),
        (np.append(noise(8, 0.3), -np.inf), "not finite"),
        (np.zeros(100, np.int32), "int32"),
        (np.zeros(100, np.uint8), "uint8"),
        ([1, 2, 3], "int64"),
        (np.zeros((2, 100), np.float32), "one channel"),
        (np.zeros((100, 1), np.int16), "one channel"),
        (np.float32(0.5), "one channel"),
        (32767 * noise(8, 0.3), "scale them"),
    ]
    expected, ear, words = said(begin(), *good), begin(), []
    refusals = itertools.cycle(bad)
    for piece in good:
        for samples, reason in itertools.islice(refusals, 4):
            with pytest.raises(AudioError, match=reason):
                ear.push(samples)
        words += ear.push(piece)
    words += ear.finish()
    assert [(word.text, word.delay_ms) for word in words] == expected != []


def test_all_that_is_mono_and_in_scale_is_taken(begin):
    """As int16 to which all of these are rounded, so exactly alike."""
    samples = np.rint(noise(9, 0.9) * 32768).clip(-32768, 32767) / 32768
    wide, frozen = np.repeat(samples, 3).astype(np.float32), samples.astype(np.float32)
    frozen.flags.writeable = False
    ways = {
        "float64": samples.astype(np.float64),
        "float32": samples.astype(np.float32),
        "int16": (samples * 32768).astype(np.int16),
        "a list": samples.tolist(),
        "every third of an array": wide[::3],
        "backwards in memory": samples[::-1].copy()[::-1],
        "read-only": frozen,
        "a column": np.stack([samples, samples], 1).astype(np.float32)[:, 0],
        "big-endian": (samples * 32768).astype(">i2").astype(np.int16),
    }
    found = {name: said(begin(), given) for name, given in ways.items()}
    assert all(words == found["float64"] != [] for words in found.values()), found


def test_what_was_pushed_may_be_overwritten(begin):
    """A microphone fills the same array again and again."""
    pieces, ear, words = np.array_split(noise(10, 0.9), 11), begin(), []
    expected, buffer = said(begin(), *pieces), np.zeros(2_000, np.float32)
    for piece in pieces:
        buffer[: len(piece)] = piece
        words += ear.push(buffer[: len(piece)])
        buffer[:] = np.nan
    words += ear.finish()
    assert [(word.text, word.delay_ms) for word in words] == expected != []


@pytest.mark.parametrize("seconds", [0.6, 0.0])
def test_after_the_end(begin, seconds):
    ear = begin()
    assert bool(said(ear, noise(11, seconds))) == bool(seconds)
    assert ear.finish() == [] and ear.finish() == []
    with pytest.raises(ValueError, match="begin another"):
        ear.push(noise(11, 0.1))


@pytest.mark.slow
def test_a_seat_takes_no_more_than_the_engine_holds(engine):
    """And goes on after the refusal."""
    ear = Seated(engine)
    with pytest.raises(ValueError, match="push less at a time"):
        ear.seat.push(np.zeros(11 * 16_000, np.int16))
    expected = said(Seated(engine), noise(12, 0.5))
    assert said(ear, noise(12, 0.5)) == expected != []
