"""The LSTM decoder: a pass, steps, and loops in NumPy agree; what is taken back leaves no trace."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.decoding import Beam, Decoding, LengthLimit
from simuljax.config.model import Monotonic, SpeechConfig, Width
from simuljax.decode import beam
from simuljax.decode.context import context_of, encode_speech, known_of
from simuljax.decode.greedy import attempt, commit, init_prefix, replay
from simuljax.decode.policies import FixedSteps
from simuljax.decode.reencoding import no_targets, write_targets
from simuljax.models.joint import source_of
from simuljax.nn.subsampling import state_count
from simuljax.text import BOS, EOS
from tests.helpers import models
from tests.oracles import beam as beam_oracle
from tests.oracles import recurrent as oracle

pytestmark = pytest.mark.usefixtures("quickly")

LENGTHS, STATES, TARGETS = [9, 4, 1], 9, 6
DECODING = Decoding(limit=LengthLimit(ratio=0.4, constant=4))


@pytest.fixture(scope="module")
def model():
    return models.translator(
        Monotonic(policy="offline"),
        width=Width(model=16, hidden=12, heads=1, dropout=0.2),
        speech=SpeechConfig(kind="vgg_blstm", layers=2, shared=0, channels=2),
        text=None,
        decoder="lstm",
    )


@pytest.fixture(scope="module")
def variables(model):
    drawn = models.parameters(model, seed=5)
    louder = jax.tree.map(lambda a: 2 * a, drawn["params"]["decoder"])
    return {"params": drawn["params"] | {"decoder": louder}}


def test_a_pass_is_what_loops_give_and_steps_are_as_it(model, variables):
    """An end that is tried and dropped leaves no trace; `replay` rebuilds what steps have kept."""
    encoded, every = models.states(LENGTHS, STATES), np.ones(len(LENGTHS), bool)
    prefix = np.random.default_rng(1).integers(3, models.VOCABULARY, (len(LENGTHS), TARGETS))
    prefix[:, 0] = BOS
    context, points = context_of(model, variables, DECODING), model.text_decisions(encoded)
    known = known_of(context, encoded, points, jnp.asarray(every))

    @models.fast
    def trained(variables):
        def run(model):
            source = source_of(encoded, model.text_decisions(encoded), jnp.int32(1))
            return model.decoder(prefix, [source], train=False)[0]

        return model.apply(variables, method=run)

    whole = trained(variables)
    for row, length in enumerate(LENGTHS):
        states = np.asarray(encoded.states[row, :length], np.float64)
        expected = oracle.decode(prefix[row], states, variables["params"]["decoder"])
        np.testing.assert_allclose(whole.logits[row], expected, atol=1e-5)
    assert whole.reading.delays[0, :, 0].tolist() == [[length] * TARGETS for length in LENGTHS]

    @models.fast
    def step(prefix, token, write):
        tried = attempt(context, prefix, known)
        return tried, commit(prefix, tried, token, write, jnp.ones_like(write))

    begun = dataclasses.replace(init_prefix(model, len(prefix), 8, DECODING), token=prefix[:, 0])
    state, logits = begun, []
    for place in range(TARGETS):
        _, dropped = step(state, jnp.full(len(prefix), EOS), ~every)
        following = prefix[:, min(place + 1, TARGETS - 1)]
        tried, state = step(dropped, jnp.asarray(following), every)
        logits.append(tried.logits[:, 0])
    np.testing.assert_allclose(jnp.stack(logits, 1), whole.logits, atol=1e-5)
    assert state.position.tolist() == [TARGETS] * len(LENGTHS)
    assert not state.past.key[:, :, TARGETS:].any()

    tokens = jnp.asarray(np.pad(prefix[:, 1:], [(0, 0), (0, 3)]))
    again = models.fast(lambda state: replay(context, state, tokens, known))(state)
    for kept, rebuilt in ((state.past.key, again.past.key), (state.past.value, again.past.value)):
        np.testing.assert_allclose(rebuilt[:, :, :TARGETS], kept[:, :, :TARGETS], atol=1e-5)
        assert rebuilt.shape == kept.shape


@pytest.fixture(scope="module")
def speech():
    frames = np.array([33, 18, 5], np.int32)
    features = np.random.default_rng(2).normal(size=(3, 33, models.FEATURES)).astype(np.float32)
    return features, frames


def sources(model, variables, speech):
    """The states of each row alone, as loops take them, and the most tokens it may have."""

    @models.fast
    def encode(features, frames):
        return model.apply(variables, features, frames, train=False, method="encode_speech")

    encoded = encode(*speech)
    for states, length in zip(encoded.states, encoded.lengths, strict=True):
        yield np.asarray(states[:length], np.float64), DECODING.limit.of(int(length))


def following(states, params):
    """tokens -> log-probabilities of what comes next, from scratch."""
    return lambda tokens: beam_oracle.log_softmax(oracle.decode([BOS, *tokens], states, params)[-1])


@pytest.mark.parametrize("size", [None, 3])
def test_greedy_and_beam_find_what_loops_find(model, variables, speech, size):
    how = None if size is None else Beam(size=size, length_penalty=0.5)

    @models.fast
    def translated(features, frames):
        given = (model, variables, features, frames)
        return beam.translate_speech(*given, decoding=DECODING, beam=how)

    found = translated(*speech)
    for row, (states, limit) in enumerate(sources(model, variables, speech)):
        next_of = following(states, variables["params"]["decoder"])
        best = beam_oracle.search(next_of, limit, size or 1, 0.5)[0]
        assert found.tokens[row, : found.lengths[row]].tolist() == best.tokens
        assert found.reach[row, : found.lengths[row]].tolist() == [len(states)] * len(best.tokens)
    assert len({tuple(row) for row in np.asarray(found.tokens).tolist()}) > 1


POLICY = FixedSteps(first_ms=80, step_ms=40, tokens=2)  # 8 and 4 frames
STEPS = range(8, 34, 4)


def test_fixed_steps_go_on_from_what_is_known(model, variables, speech):
    """(k, s, N) of Nguyen et al.: re-encodes, keeps h and c, and drops an early end."""
    decoding, (features, lengths) = dataclasses.replace(DECODING, policy=POLICY), speech
    variables = fond_of_ending(variables)

    @models.fast
    def read(told, frames, ended):
        context = context_of(model, variables, decoding)
        known = encode_speech(context, features, frames, ended)
        written = write_targets(context, told, known, delay=frames, history="kept")
        return written, known.memory.value[0, :, :, 0]

    told = no_targets(context_of(model, variables, decoding), 3, 20)
    rows = [Row(variables) for _ in range(3)]
    for heard in STEPS:
        frames = np.minimum(heard, lengths)
        told, states = read(told, frames, frames == lengths)
        for row, some, count in zip(rows, np.asarray(states), frames, strict=True):
            row.hear(some[: state_count(count)], ended=count == lengths[rows.index(row)])
    past = told.prefix.past
    for number, row in enumerate(rows):
        count = int(told.written.lengths[number])
        assert told.written.tokens[number, :count].tolist() == row.tokens
        for kept, known in zip((past.key, past.value), row.known, strict=True):
            np.testing.assert_allclose(kept[:, number, count - 1, 0], known, atol=1e-5)
    assert sum(row.dropped for row in rows) > 1 and len(rows[0].tokens) > 4


def fond_of_ending(variables):
    decoder = variables["params"]["decoder"]
    output = decoder["output"] | {"bias": decoder["output"]["bias"].copy()}
    output["bias"][EOS] += 2.0
    return {"params": variables["params"] | {"decoder": decoder | {"output": output}}}


class Row:
    """What one recording is told, step by step."""

    def __init__(self, variables):
        self.params = variables["params"]["decoder"]
        self.known, self.tokens, self.dropped = oracle.nothing_known(self.params), [], 0

    def hear(self, states, *, ended):
        new, limit = 0, DECODING.limit.of(len(states))
        while self.tokens[-1:] != [EOS] and len(self.tokens) < limit and (ended or new < 2):
            before = self.tokens[-1] if self.tokens else BOS
            logits, known = oracle.decode_step(before, self.known, states, self.params)
            if logits.argmax() == EOS and not ended:
                self.dropped += 1
                return
            self.known, new = known, new + 1
            self.tokens.append(int(logits.argmax()))
