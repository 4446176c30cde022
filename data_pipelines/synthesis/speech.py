"""What every synthesiser returns, and the rate that everything behind it works at."""

import functools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int16
from scipy.signal import resample_poly

from data_pipelines.utterance import Span

SAMPLE_RATE = 16_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Speech:
    """16 kHz audio, and when each word of the transcript and each phoneme is heard.

    There is one span for every whitespace-separated word, in order and without overlap; a word
    that makes no sound (a lone dash) has an empty one.
    """

    samples: Int16[np.ndarray, "samples"]
    words: tuple[Span, ...]
    phonemes: tuple[Span, ...]

    @property
    def duration_ms(self) -> float:
        """Length of the audio."""
        return len(self.samples) * 1000 / SAMPLE_RATE


def to_16_khz(
    samples: Float[np.ndarray, "from"] | Int16[np.ndarray, "from"], up: int, down: int
) -> Int16[np.ndarray, "to"]:
    """Audio on the scale of int16, resampled by up / down; what overshoots is held at the limit."""
    resampled = resample_poly(samples.astype(np.float64), up, down, window=_low_pass(up, down))
    return np.clip(np.rint(resampled), -32768, 32767).astype(np.int16)


@functools.cache
def _low_pass(up: int, down: int) -> Float[np.ndarray, "taps"]:
    """The windowed sinc that resample_poly would design anew for each call."""
    rate = max(up, down)
    at = np.arange(-10 * rate, 10 * rate + 1)
    taps = np.sinc(at / rate) * np.kaiser(len(at), 5.0)
    return taps / taps.sum()
