"""Resampling of whole recordings and of streams.

A polyphase low-pass filter at the exact ratio of the rates. A sample of the output depends on a
few samples of the input around it, so a stream needs those alone; what comes out of it is what
comes out of the whole recording.
"""

import math

import numpy as np
from jaxtyping import Float
from scipy import signal


def resample(samples: Float[np.ndarray, " N"], source: int, rate: int) -> Float[np.ndarray, " M"]:
    """Resample a whole recording."""
    if source == rate:
        return samples
    common = math.gcd(source, rate)
    return signal.resample_poly(samples, rate // common, source // common)


class Resampler:
    """A resampling stream: `push` returns the output that is final, `finish` the rest."""

    def __init__(self, source: int, rate: int):
        self.source, self.rate = source, rate
        common = math.gcd(source, rate)
        self.up, self.down = rate // common, source // common
        # The filter reaches 10 of the slower rate's samples to either side, in the input's.
        self.reach = 0 if source == rate else -(-10 * max(self.up, self.down) // self.up) + 1
        self.held = np.zeros(0, np.float32)  # input that may still be needed
        self.given = 0  # samples of the output that `held` would give again

    def push(self, samples: Float[np.ndarray, " N"]) -> Float[np.ndarray, " M"]:
        """Return the samples that no later input can change."""
        self.held = np.concatenate([self.held, samples])
        return self._give(len(self.held) - self.reach)

    def finish(self) -> Float[np.ndarray, " M"]:
        """Return the remaining samples."""
        return self._give(len(self.held))

    def _give(self, known: int) -> Float[np.ndarray, " M"]:
        """Return the output up to `known` samples of `held`, without earlier output."""
        end = max(-(-known * self.up // self.down), self.given)
        out = resample(self.held, self.source, self.rate)[self.given : end]
        # Whole periods of the filter, of which the output needs nothing any more, are forgotten.
        periods = max(0, end * self.down // self.up - self.reach) // self.down
        self.held = self.held[periods * self.down :]
        self.given = end - periods * self.up
        return out
