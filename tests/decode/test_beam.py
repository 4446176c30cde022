"""Whole sources: greedily or with a beam, what slow lists and passes from scratch find."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.decoding import Beam, Decoding, LengthLimit, Repetition
from simuljax.config.model import Monotonic
from simuljax.decode import beam
from simuljax.decode.context import context_of, known_of
from simuljax.nn.monotonic import fixed_windows
from simuljax.text import EOS
from tests.helpers import models
from tests.oracles import beam as oracle
from tests.oracles import simultaneous

LENGTHS, SIZE = [24, 0, 13, 1, 17, 22, 9, 20], 24
DECODING = Decoding(
    limit=LengthLimit(ratio=0.3, constant=4), repetition=Repetition(longest=2, times=1)
)
SEED = 4  # of parameters with which some hypotheses end by themselves, and some do not


def searching(model, how: Beam, decoding: Decoding = DECODING):
    """variables, states -> hypotheses; compiled in little time."""

    @models.fast
    def search(variables, encoded):
        decisions = fixed_windows(encoded.states, encoded.lengths, models.STEP, "average")
        context = context_of(model, variables, decoding)
        ended = jnp.ones(encoded.lengths.shape, bool)
        return beam.beam_search(context, known_of(context, encoded, decisions, ended), how)

    return search


def sources(encoded):
    """What the oracle hears of each row."""
    for states, length in zip(np.asarray(encoded.states), encoded.lengths, strict=True):
        yield simultaneous.fixed_windows(states[: int(length)], models.STEP, True)


def hypotheses(found, row):
    """Tokens and log-probabilities, without those that are not there."""
    tokens, lengths, log_prob = found.tokens[row], found.lengths[row], found.log_prob[row]
    padding = np.arange(tokens.shape[1]) >= lengths[:, None]
    assert not np.any(tokens * padding) and not np.any(found.notes[row] * padding)
    real = log_prob > -np.inf
    assert not lengths[~real].any()
    rows = zip(tokens[real], lengths[real], strict=True)
    return [some[:n].tolist() for some, n in rows], log_prob[real].tolist()


def compare(model, variables, encoded, found, how, decoding=DECODING):
    """Against the oracle; gives the number of hypotheses that ended, and of those that did not."""
    decoder, ended = models.oracle(model, variables), []
    for row, heard in enumerate(sources(encoded)):
        limit = oracle.limit_of(len(heard.states), decoding)
        following = oracle.scorer(decoder, heard)
        given = (following, limit, how.size, how.length_penalty)
        best = oracle.search(*given, guard=decoding.repetition)
        tokens, log_prob = hypotheses(found, row)
        assert tokens == [one.tokens for one in best]
        np.testing.assert_allclose(log_prob, [one.log_prob for one in best], rtol=1e-4, atol=1e-4)
        ended += [one.ended for one in best]
    return sum(ended), len(ended) - sum(ended)


@pytest.fixture(scope="module")
def model():
    return models.translator()


@pytest.fixture(scope="module")
def variables(model):
    return models.parameters(model, seed=SEED)


@pytest.fixture(scope="module")
def four(model):
    return searching(model, Beam(size=4))


def with_noise(encoded):
    """Encoder states with noise in their padding, which nobody may look at."""
    padding = np.arange(SIZE) >= np.asarray(encoded.lengths)[:, None]
    return dataclasses.replace(encoded, states=encoded.states + padding[..., None])


ENCODED = with_noise(models.states(LENGTHS, SIZE))


def test_four_are_those_of_the_oracle_for_any_model(model, four):
    for seed in (SEED, 2):
        variables = models.parameters(model, seed=seed)
        found = jax.device_get(four(variables, ENCODED))
        ended, cut = compare(model, variables, ENCODED, found, Beam(size=4))
        assert ended > 5 and cut > 5
    assert models.compilations(four) == 1


def test_ties_go_to_the_better_hypothesis_and_the_lower_id(model, variables, four):
    same = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf * ("output" not in [p.key for p in path]), variables
    )
    found = jax.device_get(four(same, ENCODED))
    # Tokens 0 to 10 are alike, 2 ends, and neither 0 0 nor 0 1 0 1 may be written.
    ends = [[2], [0, 2], [0, 1, 2], [0, 1, 0, 2]]
    for row in (0, 4, 5, 7):
        tokens, log_prob = hypotheses(found, row)
        assert sorted(tokens, key=len) == ends
        expected = [-np.log(models.VOCABULARY) * len(one) for one in tokens]
        np.testing.assert_allclose(log_prob, expected, rtol=1e-6)


CASES = {
    "hard": (Monotonic(attention="hard"), Beam(size=4, length_penalty=0.0)),
    "chunk": (Monotonic(policy="wait_k", attention="chunkwise", chunk=3), Beam(size=2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_kind_is_that_of_the_oracle(name):
    monotonic, how = CASES[name]
    model = models.translator(monotonic)
    variables = models.parameters(model, seed=SEED)
    found = jax.device_get(searching(model, how)(variables, ENCODED))
    compare(model, variables, ENCODED, found, how)


@pytest.mark.slow
def test_heads_that_do_not_follow_their_hypothesis_are_noticed(model, variables, monkeypatch):
    follow = beam._follow

    def stay(prefix, tried, parent, live):
        own = jnp.broadcast_to(jnp.arange(parent.shape[1]), parent.shape)
        wrong = follow(prefix, tried, own, live)
        return dataclasses.replace(follow(prefix, tried, parent, live), pointer=wrong.pointer)

    monkeypatch.setattr(beam, "_follow", stay)
    how = Beam(size=4)
    found = jax.device_get(searching(model, how)(variables, ENCODED))
    with pytest.raises(AssertionError):
        compare(model, variables, ENCODED, found, how)


@pytest.mark.slow
def test_a_beam_that_is_wide_enough_finds_the_best_of_all():
    vocabulary, limit, missed = 5, 3, 0
    model, encoded = models.translator(target_vocabulary=vocabulary), models.states([24, 9], 24)
    decoding = Decoding(limit=LengthLimit(ratio=0, constant=limit))
    every = vocabulary * (vocabulary - 1) ** (limit - 1)
    search = searching(model, Beam(size=every), decoding)
    for seed in range(3):
        variables = models.parameters(model, seed=seed)
        found, decoder = jax.device_get(search(variables, encoded)), models.oracle(model, variables)
        for row, heard in enumerate(sources(encoded)):
            following = oracle.scorer(decoder, heard)
            best = oracle.everything(following, vocabulary, limit, 1.0)
            assert hypotheses(found, row)[0][0] == best.tokens
            np.testing.assert_allclose(found.log_prob[row, 0], best.log_prob, rtol=1e-4)
            missed += oracle.search(following, limit, 1, 1.0)[0].tokens != best.tokens
    assert missed, "or a narrow beam would do"


def rows(found):
    """Tokens and reach of each row, without padding, which is 0."""
    found = jax.device_get(found)
    real = np.arange(found.tokens.shape[1]) < found.lengths[:, None]
    assert not np.any(found.tokens * ~real) and not np.any(found.reach * ~real)
    for n, *row in zip(found.lengths, found.tokens, found.reach, strict=True):
        yield [values[:n].tolist() for values in row]


def test_greedy_is_the_argmax_of_from_scratch_passes(model, variables):
    """And a beam of one is that."""
    found = models.translate_states(model, variables, ENCODED, DECODING)
    one = models.translate_states(model, variables, ENCODED, DECODING, Beam(size=1))
    jax.tree.map(np.testing.assert_array_equal, one, found)
    ends = (np.asarray(found.tokens) == EOS).any(1)
    assert 0 < ends.sum() < len(LENGTHS) - 1, "some end by themselves, some do not"
    decoder = models.oracle(model, variables)
    for (tokens, reach), heard in zip(rows(found), sources(ENCODED), strict=True):
        expected = simultaneous.translate(decoder, heard, DECODING)
        assert tokens == expected.tokens and reach == expected.reach


@pytest.mark.slow
def test_speech_is_encoded_and_another_threshold_compiles_nothing(model):
    variables = models.parameters(model)
    random, frames = np.random.default_rng(3), np.array([64, 37, 3, 0], np.int32)
    features = random.normal(size=(4, 64, models.FEATURES)).astype(np.float32)
    encode = models.fast(functools.partial(model.apply, train=False, method="encode_speech"))
    encoded = encode(variables, features, frames)
    before, found = models.compilations(beam._speech), []
    for threshold in (0.5, 0.2):
        decoding = models.changed(DECODING, threshold=threshold)
        speech = beam.translate_speech(model, variables, features, frames, decoding=decoding)
        found.append(list(rows(speech)))
    expected = models.translate_states(model, variables, encoded, decoding)
    jax.tree.map(np.testing.assert_array_equal, speech, expected)
    assert found[0] != found[1] and found[0][3] == [[], []]
    assert models.compilations(beam._speech) == before + 1
