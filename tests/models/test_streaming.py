"""Streaming encoders: pieces of any size give what the whole pass gives, and nothing grows."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.model import ModelConfig, SpeechConfig, TextConfig, Width
from simuljax.models.encoders import SpeechEncoder
from simuljax.models.joint import JointModel
from simuljax.models.streaming import (
    StreamingWhisperEncoder,
    floor_so_far,
    frames_before,
    states_after,
)
from tests.helpers.models import random_parameters
from tests.helpers.streams import cut
from tests.models.conftest import SIZES
from tests.oracles.checks import assert_close

FEATURES = 6
BATCH, FRAMES = 12, 160  # twice round the 20 positions of a small Whisper
CHUNK, LEFT, RIGHT = 4, 6, 2
KINDS = ("streaming", "streaming_whisper")
pytestmark = pytest.mark.usefixtures("quickly", "small_sizes")


def small(
    kind: Any = "streaming", sizes=(CHUNK, LEFT, RIGHT), dtype: Any = "float32", **speech: Any
):
    """Two layers, of which the upper is the text encoder's; chunk, left and right as given."""
    chunk, left, right = sizes
    given: dict[str, Any] = {"layers": 2, "shared": 1, "channels": 12, "ctc_after": 1}
    given |= {"chunk": chunk, "left": left, "right": right}
    return ModelConfig(
        source_vocabulary=9,
        target_vocabulary=9,
        features=FEATURES,
        width=Width(model=16, hidden=24, heads=2, dtype=dtype),
        speech=SpeechConfig(kind=kind, **given | speech),
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

    def stream(self, state, features, lengths, pieces):
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
            state, y, count = self.step(self.parameters, state, given, length, ended)
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


@pytest.fixture(scope="module", params=KINDS)
def model(request, small_sizes):
    return Model(small(request.param))


def differences(model, random, features, lengths, state):
    """The largest difference between a random streaming and the whole pass; the state after."""
    pieces = [cut(random, n, model.frames) for n in lengths]
    state, states = model.stream(state, features, lengths, pieces)
    whole = model.whole(model.parameters, features, lengths)
    for row, n in zip(states, whole.lengths, strict=True):
        assert len(row) == n
    rows = zip(states, np.asarray(whole.states), strict=True)
    return max(np.abs(row - full[: len(row)]).max(initial=0) for row, full in rows), state


def test_random_chunkings_are_the_whole_pass(model):
    """Every round begins with the state that the round before has ended."""
    random, state = np.random.default_rng(0), model.start(BATCH)
    for _ in range(2):
        features, lengths = utterances(random, BATCH, FRAMES)
        difference, state = differences(model, random, features, lengths, state)
        assert difference < 1e-5
    jax.tree.map(np.testing.assert_array_equal, state, model.start(BATCH))
    assert model.compilations == 1


def test_ending_too_early_would_be_noticed(model):
    random = np.random.default_rng(1)
    features, lengths = utterances(random, BATCH, FRAMES)
    whole = model.whole(model.parameters, features, lengths)
    state, given = model.start(BATCH), features[:, : model.frames]
    given_lengths = np.minimum(lengths, model.frames).astype(np.int32)
    ended = np.ones(BATCH, bool)
    _, states, count = model.step(model.parameters, state, given, given_lengths, ended)
    assert count[0] == 4 and np.abs(states[0, :4] - whole.states[0, :4]).max() > 1e-2


def test_neither_company_nor_padding_has_an_influence(model):
    features, lengths = utterances(np.random.default_rng(2), BATCH, FRAMES)
    other = np.where(np.arange(FRAMES)[:, None] < 61, features[:1], -9)
    changed = np.concatenate([features[:3], other, features[:2:-1]])[:BATCH]
    features[3], lengths[3] = np.where(np.arange(FRAMES)[:, None] < 61, features[0], 99), 61
    one = model.whole(model.parameters, features, lengths)
    company = np.append(lengths[:4], lengths[:3:-1])
    two = model.whole(model.parameters, changed, company)
    assert_close(one.states[3, :16], two.states[3, :16], 1e-5)
    assert_close(one.ctc[3, :16], two.ctc[3, :16], 5e-5)
    assert not one.states[3, 16:].any()


def test_a_chunk_hears_no_further_than_its_right_context(model):
    """And gradients, by parameters and features, are finite whatever the length."""
    direction = np.random.default_rng(3).normal(size=16).astype(np.float32)

    @jax.jit
    @functools.partial(jax.grad, argnums=(0, 1))
    def influence(parameters, features, lengths, chunk):
        states = model.encode(parameters, features, lengths).states
        inside = jnp.arange(states.shape[1]) // CHUNK == chunk
        return jnp.where(inside[:, None], states * direction, 0).sum()

    features = np.random.default_rng(4).normal(size=(1, FRAMES, FEATURES)).astype(np.float32)
    for chunk in (0, 3, 7):
        _, gradient = influence(model.parameters, features, np.array([FRAMES]), chunk)
        reach = np.flatnonzero(np.abs(gradient[0]).max(-1))
        speech = model.translator.config.speech
        last = frames_before(speech, (chunk + 1) * CHUNK + RIGHT) - 1
        assert reach[-1] == last and np.abs(gradient[0, last]).max() > 1e-6
        if speech.kind == "streaming":  # the first frame of the last state it sees
            assert last == 4 * ((chunk + 1) * CHUNK + RIGHT - 1)
    for length in (0, 1, 5, 63):
        by_parameter, gradient = influence(model.parameters, features, np.array([length]), 0)
        assert all(np.isfinite(g).all() for g in jax.tree.leaves((by_parameter, gradient)))
        assert np.any(gradient) == (length > 0) and not gradient[0, length:].any()


def test_the_shared_layers_are_the_text_encoders(model):
    random, parameters = np.random.default_rng(6), model.parameters["params"]
    other = {"params": parameters | {"shared": jax.tree.map(lambda a: -a, parameters["shared"])}}
    features, lengths = utterances(random, BATCH, FRAMES)
    before, after = (model.whole(p, features, lengths).states for p in (model.parameters, other))
    assert np.abs(before - after).max() > 1e-2
    given = (np.ones((1, 3), int), np.array([3]))
    read = [
        model.translator.apply(p, *given, train=False, method="encode_text")
        for p in (model.parameters, other)
    ]
    assert np.abs(read[0].states - read[1].states).max() > 1e-2


def row_0(features, frames):
    """Features of the first stream, and its length; the others hear nothing."""
    given, length = np.zeros((BATCH, frames, FEATURES), np.float32), np.zeros(BATCH, np.int32)
    given[0, : len(features)], length[0] = features, len(features)
    return given, length


def test_a_long_stream_costs_the_same_and_sees_the_same(model):
    """Nothing grows; the last states are those of a stream that began a period of positions ago."""
    random, state = np.random.default_rng(7), model.start(BATCH)
    period = 2 * SIZES.audio_positions  # frames
    sound = random.normal(size=(12 * period, FEATURES)).astype(np.float32)
    sound[0], sound[-FRAMES] = 8, 8  # the floor of both streams
    shapes, last = jax.tree.map(jnp.shape, state), []
    for start in range(0, len(sound), 8):
        given, length = row_0(sound[start : start + 8], model.frames)
        ended = np.full(BATCH, start + 8 == len(sound))
        state, states, count = model.step(model.parameters, state, given, length, ended)
        last = [*last[-10:], states[0, : count[0]]]
    assert jax.tree.map(jnp.shape, state) == shapes and model.compilations == 1
    whole = model.whole(model.parameters, *row_0(sound[-FRAMES:], FRAMES)).states[0]
    assert_close(np.concatenate(last)[-8:], whole[-8:], 1e-5)


@pytest.mark.slow
def test_bfloat16_is_near():
    model, random = Model(small(KINDS[1], dtype="bfloat16")), np.random.default_rng(8)
    features, lengths = utterances(random, 2, 40)
    difference, state = differences(model, random, features, lengths, model.start(2))
    assert difference < 0.1
    assert state.left.key.dtype == jnp.bfloat16
    assert state.pretrained.key.dtype == jnp.bfloat16


def test_an_encoder_of_whole_utterances_has_no_stream():
    chunked = small()
    assert chunked.speech is not None
    speech = dataclasses.replace(chunked.speech, kind="transformer")
    with pytest.raises(ValueError, match="kind='streaming'"):
        JointModel(dataclasses.replace(chunked, speech=speech)).init_speech_stream(1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "sizes", "frames"), [(KINDS[0], (1, 0, 0), 50), (KINDS[1], (3, 7, 5), 1)]
)
def test_any_sizes(kind, sizes, frames):
    model, random = Model(small(kind, sizes), frames), np.random.default_rng(9)
    features, lengths = utterances(random, 8, 70)
    difference, _ = differences(model, random, features, lengths, model.start(8))
    assert difference < 1e-5


def test_states_come_as_soon_as_their_frames_are_there(model):
    speech = model.translator.config.speech
    state, total = model.start(BATCH), 0
    for frame in range(1, 60):
        given = row_0(np.zeros((1, FEATURES)), model.frames)
        state, _, count = model.step(model.parameters, state, *given, np.zeros(BATCH, bool))
        total += int(count[0])
        ready = max(int(states_after(speech, frame)) - RIGHT, 0) // CHUNK * CHUNK
        assert total == ready
    assert total == 3 * CHUNK
    frames = range(1, 40)
    assert [next(f for f in frames if states_after(speech, f) == s) for s in range(1, 9)] == [
        frames_before(speech, s) for s in range(1, 9)
    ]


def test_the_floor_is_below_the_loudest_so_far():
    features = np.random.default_rng(5).normal(0, 2, (2, 30, 6)).astype(np.float32)
    lengths = jnp.array([30, 17])
    floored, loudest = floor_so_far(jnp.asarray(features), lengths, jnp.full(2, -jnp.inf))
    for row, n in enumerate(lengths):
        for t in range(n):
            least = features[row, : t + 1].max() - 2
            assert_close(floored[row, t], np.maximum(features[row, t], least), 1e-6)
        assert loudest[row] == features[row, :n].max()


def test_one_chunk_is_whispers_own_encoder():
    """With the loudest frame first, both have the same floor; parameters have the same names."""
    whole = SpeechConfig(kind="whisper", layers=0, shared=0)
    chunked = dataclasses.replace(whole, kind="streaming_whisper", chunk=20, left=0, right=0)
    features = np.random.default_rng(8).normal(size=(2, 39, 80)).astype(np.float32)
    features[:, 0, 0], lengths = 9, jnp.array([39, 22])
    one, other = (
        cls(speech, Width(model=16, hidden=24, heads=2, dropout=0.0), 9)
        for cls, speech in ((SpeechEncoder, whole), (StreamingWhisperEncoder, chunked))
    )
    variables = random_parameters(one, features, lengths, None, train=False)

    @jax.jit
    def both(features):
        return [e.apply(variables, features, lengths, None, train=False) for e in (one, other)]

    wanted, got = both(features)
    assert np.std(wanted.states) > 0.1
    assert_close(got.states, wanted.states, 1e-5)
    features[:, 0, 0], features[:, 20, 0] = 0, 9  # a later one has no influence on the floor before
    wanted, got = both(features)
    assert np.abs(got.states - wanted.states)[:, 0].max() > 1e-3
