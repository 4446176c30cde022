"""Drives any `stream_step` over a recording in pieces, and counts how often it was compiled."""

import jax
import numpy as np


class Stream:
    """One compiled step for chunks of a fixed size, fed pieces of any size up to that."""

    def __init__(self, module, config, chunk):
        self.compilations = 0
        self.chunk = chunk
        self.start = self.state = module.init_stream(config)

        def step(state, samples, length):
            self.compilations += 1  # Python runs this only while JAX traces
            return module.stream_step(state, samples, length, config=config)

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
