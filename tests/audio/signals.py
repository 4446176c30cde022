"""Sounds to test with, and a driver of any `stream_step` that counts compilations."""

from pathlib import Path

import jax
import numpy as np
import pytest

SPEECH = Path(__file__).parents[2] / ".." / "shared" / "data" / "speech"
TALK = SPEECH / "iwslt2020_nonnative" / "dev_antrecorp-01_teddy.opus"


def tone(hertz, *, seed=0, noise=20.0, loud=3000.0):
    """A voice without words: harmonics of a pitch given for every sample, falling off as 1/h."""
    rng = np.random.default_rng(seed)
    phase = 2 * np.pi * np.cumsum(hertz) / 16_000
    harmonics = [
        np.sin(h * phase + rng.uniform(0, 6)) / h * (h * hertz < 7500) for h in range(1, 12)
    ]
    return np.rint(sum(harmonics) * loud + rng.normal(size=len(hertz)) * noise).astype(np.int16)


def hiss(samples, *, seed=0, loud=1000.0):
    return np.rint(np.random.default_rng(seed).normal(size=samples) * loud).astype(np.int16)


def babble(samples, *, seed=0):
    """Syllables: a wandering pitch that swells and fades, with hiss in between."""
    time = np.arange(samples) / 16_000
    pitch = 160 * np.exp(0.3 * np.sin(2 * np.pi * 0.8 * time + seed))
    swell = np.clip(np.sin(2 * np.pi * 3 * time + seed) + 0.3, 0, 1)
    voice = tone(pitch, seed=seed) * swell + hiss(samples, seed=seed, loud=150) * (1 - swell)
    return np.rint(voice).astype(np.int16)


def real_talk() -> Path:
    """A recording of a person speaking; the test is skipped where it is not at hand."""
    if not TALK.exists():
        pytest.skip(f"no recording at {TALK}")
    return TALK


def cut(samples, seed=0, largest=2000):
    """The samples in pieces of random sizes, empty ones among them."""
    rng = np.random.default_rng(seed)
    pieces = []
    while len(samples):
        size = int(rng.choice([0, 1, 79, 160, 400, int(rng.integers(1, largest))]))
        pieces.append(samples[:size])
        samples = samples[size:]
    return pieces


class Stream:
    """One compiled step for chunks of a fixed size, fed pieces of any size up to that."""

    def __init__(self, start, stream_step, chunk):
        self.compilations = 0
        self.chunk = chunk
        self.start = self.state = start

        def step(state, samples, length):
            self.compilations += 1  # Python runs this only while JAX traces
            return stream_step(state, samples, length)

        self.step = jax.jit(step)

    def feed(self, piece):
        """The real features that one piece completes; what is not real must be zero."""
        padded = np.full(self.chunk, 9999, np.int16)  # what lies beyond the length is no sample
        padded[: len(piece)] = piece
        self.state, features, count = self.step(self.state, padded, np.int32(len(piece)))
        features, count = np.asarray(features), int(count)
        assert not np.any(features[count:])
        return features[:count]

    def run(self, pieces):
        """The features of a recording from its start."""
        self.state = self.start
        return np.concatenate([self.feed(piece) for piece in pieces])
