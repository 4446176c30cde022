"""Audio with times, as every synthesiser makes it."""

import functools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int16
from scipy.signal import resample_poly

from data_pipelines.utterance import Span
from simuljax.audio import RATE


@dataclass(frozen=True, kw_only=True, eq=False)
class Speech:
    """16 kHz audio, with the times of each word of the transcript and of each phoneme.

    Every whitespace-separated word has one span, in order and without overlap; a word without
    sound (a lone dash) has an empty one.
    """

    samples: Int16[np.ndarray, "samples"]
    words: tuple[Span, ...]
    phonemes: tuple[Span, ...]

    @property
    def duration_ms(self) -> float:
        return len(self.samples) * 1000 / RATE


def to_16_khz(
    samples: Float[np.ndarray, "from"] | Int16[np.ndarray, "from"], up: int, down: int
) -> Int16[np.ndarray, "to"]:
    """Resample audio on the scale of int16 by up / down; it saturates."""
    resampled = resample_poly(samples.astype(np.float64), up, down, window=_low_pass(up, down))
    return np.clip(np.rint(resampled), -32768, 32767).astype(np.int16)


@functools.cache
def _low_pass(up: int, down: int) -> Float[np.ndarray, "taps"]:
    """Return the windowed sinc that resample_poly would design again for each call."""
    rate = max(up, down)
    at = np.arange(-10 * rate, 10 * rate + 1)
    taps = np.sinc(at / rate) * np.kaiser(len(at), 5.0)
    return taps / taps.sum()
