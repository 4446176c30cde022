"""A small streaming translator whose functions are compiled once, and utterances fed in pieces."""

import jax
import numpy as np

from simuljax.config.model import ModelConfig, SpeechConfig, TextConfig, Width
from simuljax.models.joint import JointModel
from tests.random_parameters import random_parameters

FEATURES = 6


def small(sizes=(4, 6, 2), dtype="float32"):
    """Two layers, of which the upper is the text encoder's; chunk, left and right as given."""
    chunk, left, right = sizes
    speech = SpeechConfig(
        kind="streaming",
        layers=2,
        shared=1,
        channels=12,
        ctc_after=1,
        chunk=chunk,
        left=left,
        right=right,
    )
    return ModelConfig(
        source_vocabulary=9,
        target_vocabulary=9,
        features=FEATURES,
        width=Width(model=16, hidden=24, heads=2, dtype=dtype),
        speech=speech,
        text=TextConfig(layers=1),
        decoder_layers=1,
    )


class Model:
    """The whole pass and the streamed step of one configuration, with the frames of a step fixed.

    What lies beyond a length is never 0, so that whoever looks at it is noticed.
    """

    def __init__(self, translator, frames=16):
        self.translator, self.frames, self.compilations = JointModel(translator), frames, 0
        features, lengths = np.zeros((1, 8, FEATURES), np.float32), np.array([8])
        tokens = np.ones((1, 3), np.int32)

        def everything(model):
            model.encode_text(tokens, np.array([3]), train=False)
            return model.encode_speech(features, lengths, train=False)

        self.parameters = random_parameters(self.translator, method=everything)
        self.whole, self.step = jax.jit(self.encode), jax.jit(self._step)

    def encode(self, parameters, features, lengths):
        return self.translator.apply(
            parameters, features, lengths, train=False, method="encode_speech"
        )

    def start(self, batch):
        return self.translator.init_speech_stream(batch)

    def _step(self, parameters, state, features, length, ended):
        self.compilations += 1  # Python runs this only while JAX traces
        return self.translator.apply(
            parameters, state, features, length, ended=ended, method="stream_speech"
        )

    def stream(self, state, features, lengths, pieces, parameters=None):
        """The state after utterances [B, F, dims], and each one's states.

        `pieces[b]` are the frames of utterance b at each step; the last one ends it.
        """
        states, starts = [[] for _ in features], np.zeros(len(features), int)
        for turn in range(max(map(len, pieces))):
            length = np.array([p[turn] if turn < len(p) else 0 for p in pieces], np.int32)
            ended = np.array([turn == len(p) - 1 for p in pieces])
            given = np.full((len(features), self.frames, FEATURES), 99, np.float32)
            for b, (start, n) in enumerate(zip(starts, length, strict=True)):
                given[b, :n] = features[b, start : start + n]
            starts += length
            state, y, count = self.step(parameters or self.parameters, state, given, length, ended)
            for b, (row, n) in enumerate(zip(np.asarray(y), count, strict=True)):
                states[b].append(row[:n])
                assert not row[n:].any()
        assert starts.tolist() == list(lengths)
        return state, [np.concatenate(rows) for rows in states]


def utterances(random, batch, frames):
    """Features [B, F, dims] with 99 beyond the lengths, which are 0 to `frames`."""
    lengths = random.integers(0, frames + 1, batch)
    lengths[:2] = frames, 1
    features = random.normal(size=(batch, frames, FEATURES)).astype(np.float32)
    features[np.arange(frames) >= lengths[:, None]] = 99
    return features, lengths


def cut(random, length, most):
    """Random pieces of 0 to `most` frames, mostly large or mostly small; the last may be empty."""
    usual, pieces = random.integers(min(3, most), most + 1), []
    while sum(pieces) < length:
        pieces.append(min(random.integers(0, usual + 1), length - sum(pieces)))
    return [*pieces, 0] if not pieces or random.random() < 0.5 else pieces
