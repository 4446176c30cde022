"""Sound that is unusual, wrong or missing: what a stream does with it.

A push that cannot be used is refused whole, and the stream goes on as if it had not been made.
"""

import functools
import itertools

import numpy as np
import pytest

from simuljax.audio import AudioError
from simuljax.config.model import Monotonic
from tests.helpers import models, streams
from tests.helpers.streams import DECODING

TALKATIVE = models.changed(DECODING, avoid_eos_while_reading=True)
LIMITS = {"states": 60, "tokens": 30, "events": 4, "decoding": TALKATIVE}


@pytest.fixture(
    scope="module", params=["incremental", pytest.param("rereading", marks=pytest.mark.slow)]
)
def begin(request):
    """Gives a new stream, in which something comes at every READ."""
    speech, waiting = streams.ENCODERS[request.param], Monotonic(policy="wait_k", wait_k=(2, 2))
    made = streams.translator(seed=13, speech=speech, monotonic=waiting)
    return functools.partial(made.stream, **LIMITS)


def noise(seed: int, seconds: float, loud: float = 0.3) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.normal(size=int(seconds * 16_000)) * loud).clip(-1, 1).astype(np.float32)


def said(ear, *pieces) -> list[tuple[str, float]]:
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
    wide = np.repeat(samples, 3).astype(np.float32)
    ways = [samples, (samples * 32768).astype(np.int16), samples.tolist(), wide[::3]]
    found = [said(begin(), given) for given in (*ways, samples[::-1].copy()[::-1])]
    assert all(words == found[0] != [] for words in found), found


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
