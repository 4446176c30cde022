"""Offline greedy decoding writes what a from-scratch pass finds best, token by token."""

import jax
import numpy as np
import pytest

from simuljax.config.decoding import Decoding, LengthLimit, Repetition
from simuljax.config.model import Monotonic
from simuljax.decode import beam
from simuljax.nn.monotonic import fixed_windows
from tests.decode import small
from tests.oracles import simultaneous

LENGTHS, SIZE = [24, 0, 13, 1, 17, 22, 9, 20], 24
DECODING = Decoding(
    limit=LengthLimit(ratio=0.25, constant=4), repetition=Repetition(longest=2, times=1)
)
CASES = {
    "lookback": (Monotonic(), 0.5),
    "hard": (Monotonic(attention="hard"), 0.3),
    "wait-k": (Monotonic(policy="wait_k", attention="chunkwise", chunk=3), 0.5),
    "offline": (Monotonic(policy="offline"), 0.5),
}


def rows(found):
    """Tokens and delays of each row, without padding, which is 0."""
    real = np.arange(found.tokens.shape[1]) < found.lengths[:, None]
    assert not np.any(found.tokens * ~real) and not np.any(found.delays * ~real)
    for n, *row in zip(found.lengths, *map(np.asarray, (found.tokens, found.delays)), strict=True):
        yield [values[:n].tolist() for values in row]


@pytest.mark.parametrize(
    "name", ["lookback", *(pytest.param(n, marks=pytest.mark.slow) for n in list(CASES)[1:])]
)
def test_greedy_is_the_argmax_of_from_scratch_passes(name):
    monotonic, threshold = CASES[name]
    model, decoding = small.translator(monotonic), small.changed(DECODING, threshold=threshold)
    variables, encoded = small.parameters(model), small.states(LENGTHS, SIZE)
    decisions = fixed_windows(encoded.states, encoded.lengths, small.STEP, "average")

    @small.fast
    def translated(*given):
        return beam.translate_states(model, *given, decoding=decoding)

    found = translated(variables, encoded, decisions)
    decoder, ends = small.oracle(model, variables, threshold=threshold), 0
    for row, (tokens, delays) in enumerate(rows(found)):
        states = np.asarray(encoded.states[row, : LENGTHS[row]])
        heard = simultaneous.fixed_windows(states, small.STEP, True)
        expected = simultaneous.translate(decoder, heard, decoding)
        assert tokens == expected.tokens and delays == expected.reach
        ends += 2 in tokens
    assert name != "lookback" or 0 < ends < len(LENGTHS), "some end by themselves, some do not"


@pytest.fixture(scope="module")
def model():
    model = small.translator()
    return model, small.parameters(model)


def test_speech_is_encoded_and_another_threshold_compiles_nothing(model):
    model, variables = model
    random, frames = np.random.default_rng(3), np.array([64, 37, 3, 0], np.int32)
    features = random.normal(size=(4, 64, small.FEATURES)).astype(np.float32)

    def encode(model):
        encoded = model.encode_speech(features, frames, train=False)
        return encoded, model.speech_decisions(encoded)

    encoded, decisions = jax.jit(lambda v: model.apply(v, method=encode))(variables)
    before, found = small.compilations(beam._speech), []
    for threshold in (0.5, 0.2):
        decoding = small.changed(DECODING, threshold=threshold)
        given = (model, variables, encoded, decisions)
        expected = beam.translate_states(*given, decoding=decoding)
        speech = beam.translate_speech(model, variables, features, frames, decoding=decoding)
        jax.tree.map(np.testing.assert_array_equal, speech, expected)
        found.append(list(rows(speech)))
    assert found[0] != found[1] and found[0][3] == [[], []]
    assert small.compilations(beam._speech) == before + 1


@pytest.mark.slow
def test_text_is_the_same_in_other_company(model):
    model, variables = model
    random, lengths = np.random.default_rng(4), np.array([6, 4, 1], np.int32)
    tokens = random.integers(4, small.VOCABULARY, (3, 6)).astype(np.int32)

    @small.fast
    def translated(*given):
        return beam.translate_text(model, *given, decoding=DECODING)

    found = list(rows(translated(variables, tokens, lengths)))
    tokens[[0, 2]], lengths[[0, 2]], tokens[1, 4:] = 9, 5, 8
    other = list(rows(translated(variables, tokens, lengths)))
    assert found[1] == other[1] and found[0] != other[0]
    assert max(found[0][1]) <= 6
