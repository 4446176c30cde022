"""Waveform effects that word times survive: tempo, pitch and echo, those of SoX.

An utterance with augmented audio has `Augmented(source, effects)` as its audio: the effects are
applied when the source has been read or synthesised.
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from scipy.signal import resample_poly

from data_pipelines.synthesis.speech import Speech
from data_pipelines.utterance import Clip, Span, Voice
from simuljax.audio import RATE

HOP = 320  # 20 ms: the windows of `tempo` are twice as long and hold two periods of a deep voice
SEARCH = 160  # 10 ms: more than half a period down to 50 Hz
TEMPO, PITCH_CENTS, ECHO_MS, ECHO_DECAY = (0.85, 1.3), (-300, 300), (20, 200), (0.05, 0.2)


def speed(samples: np.ndarray, factor: float) -> np.ndarray:
    """Play faster: shorter and higher in pitch by the factor (Kaldi: .9, 1, 1.1)."""
    ratio = Fraction(factor).limit_denominator(200)
    if ratio == 1 or not len(samples):
        return samples.copy()
    faster = resample_poly(samples.astype(np.float64), ratio.denominator, ratio.numerator)
    return _like(samples, faster)


def tempo(samples: np.ndarray, factor: float) -> np.ndarray:
    """Speak faster: shorter by the factor at the same pitch (WSOLA, Verhelst & Roelands 1993).

    Windows of the input, `HOP * factor` apart, are overlapped and added `HOP` apart. Each is
    moved by up to `SEARCH` to where it continues the one before it best.
    """
    if factor == 1 or not len(samples):
        return samples.copy()
    length = round(len(samples) / factor)
    margin = HOP + SEARCH
    padded = np.pad(samples.astype(np.float64), (margin, margin + 2 * HOP))
    window = 0.5 - 0.5 * np.cos(np.pi * np.arange(2 * HOP) / HOP)
    frames = length // HOP + 2
    out = np.zeros((frames + 1) * HOP)
    start = SEARCH  # of the window around sample 0
    for frame in range(frames):
        if frame:
            nominal = min(round(frame * HOP * factor), len(samples)) + SEARCH
            start = nominal + _best_shift(padded, nominal, padded[start + HOP : start + 3 * HOP])
        out[frame * HOP : (frame + 2) * HOP] += window * padded[start : start + 2 * HOP]
    return _like(samples, out[HOP : HOP + length])


def echo(samples: np.ndarray, delay_ms: float, decay: float) -> np.ndarray:
    """Return x[n] + decay x[n - delay], cut off at the end of x."""
    delay = round(delay_ms * RATE / 1000)
    late = np.pad(samples.astype(np.float64), (delay, 0))[: len(samples)]
    return _like(samples, samples + decay * late)


@dataclass(frozen=True, kw_only=True)
class Effects:
    """A chain of tempo, pitch and echo; an utterance stores its `str` as the origin."""

    tempo: float = 1.0
    pitch_cents: float = 0.0
    echo_ms: float = 0.0
    echo_decay: float = 0.0

    def apply(self, samples: np.ndarray) -> np.ndarray:
        """Apply the chain; the result has `1 / tempo` times as many samples."""
        length = round(len(samples) / self.tempo)
        raised = 2 ** (self.pitch_cents / 1200)
        stretched = speed(tempo(samples, round(self.tempo / raised, 9)), raised)
        fitted = np.pad(stretched, (0, max(length - len(stretched), 0)))[:length]
        return echo(fitted, self.echo_ms, self.echo_decay)

    def __str__(self) -> str:
        echo = f"echo {self.echo_ms:g}/{self.echo_decay:g}"
        return f"tempo {self.tempo:g} pitch {self.pitch_cents:g} {echo}"


@dataclass(frozen=True, kw_only=True)
class Augmented:
    """A source of audio: another source with effects."""

    source: "Clip | Voice | Augmented"
    effects: Effects


def random_effects(utterance_id: str) -> Effects:
    """Draw a chain, uniform over the ranges at the top of this file; `str` keeps all digits."""
    digest = hashlib.sha256(f"0/{utterance_id}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest))
    return Effects(
        tempo=round(rng.uniform(*TEMPO), 3),
        pitch_cents=round(rng.uniform(*PITCH_CENTS)),
        echo_ms=round(rng.uniform(*ECHO_MS)),
        echo_decay=round(rng.uniform(*ECHO_DECAY), 3),
    )


def at_speed(factor: float) -> Effects:
    """Return speed as a chain: tempo and pitch change by one factor, by resampling alone."""
    return Effects(tempo=factor, pitch_cents=1200 * math.log2(factor))


def augment_speech(speech: Speech, effects: Effects) -> Speech:
    """Apply effects to the audio and to the times of words and phonemes."""
    changed = effects.apply(speech.samples)
    return timed(changed, speech.words, speech.phonemes, tempo=effects.tempo)


def timed(
    samples: np.ndarray, words: Iterable[Span], phonemes: Iterable[Span], *, tempo: float = 1.0
) -> Speech:
    """Return audio with times divided by the tempo; those beyond its end are moved to it."""
    end_ms = len(samples) * 1000 / RATE

    def moved(span: Span) -> Span:
        start, end = (min(at / tempo, end_ms) for at in (span.start_ms, span.end_ms))
        return replace(span, start_ms=start, end_ms=end)

    return Speech(
        samples=samples, words=tuple(map(moved, words)), phonemes=tuple(map(moved, phonemes))
    )


def _best_shift(padded: np.ndarray, nominal: int, wanted: np.ndarray) -> int:
    """Return the smallest shift that makes the window at `nominal` most like `wanted`."""
    region = padded[nominal - SEARCH : nominal + SEARCH + 2 * HOP]
    correlation = np.correlate(region, wanted)
    squares = np.concatenate([[0.0], np.cumsum(region * region)])
    energy = squares[2 * HOP :] - squares[: -2 * HOP]
    score = correlation / np.sqrt(np.maximum(energy, 1e-12 * max(squares[-1], 1e-30)))
    shifts = np.arange(-SEARCH, SEARCH + 1)
    nearest_first = np.argsort(np.abs(shifts), kind="stable")
    return int(shifts[nearest_first[np.argmax(score[nearest_first])]])


def _like(samples: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """Convert to the type of the samples; int16 saturates."""
    if samples.dtype == np.int16:
        changed = np.clip(np.rint(changed), -32768, 32767)
    return changed.astype(samples.dtype)
