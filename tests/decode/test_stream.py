"""A decoder step is the forward pass; pieces of any size give what a pass from scratch gives."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.audio import Features
from simuljax.config.decoding import Decoding
from simuljax.config.model import DecoderWidth, Monotonic
from simuljax.decode.context import Context, StreamLimits, control_of, known_of
from simuljax.decode.greedy import attempt, commit, init_prefix
from simuljax.decode.stream import StreamingDecoder
from tests.decode.test_caat import MOST, utterances
from tests.helpers import models
from tests.helpers.streams import Streams, moved

TARGETS, SIZE, LENGTHS = 6, 26, [26, 16, 1]
PREFIX = jnp.asarray(np.random.default_rng(1).integers(0, models.VOCABULARY, (3, TARGETS)))
CASES: dict[str, dict[str, Any]] = {
    "learned": {"monotonic": Monotonic(noise=0.0)},
    "learnable": {"monotonic": Monotonic(noise=0.0), "kind": "learnable"},
    "hard": {"monotonic": Monotonic(attention="hard", policy="wait_k", wait_k=(2, 2))},
    "chunkwise": {
        "monotonic": Monotonic(
            attention="chunkwise", chunk=4, policy="wait_k", wait_k=(1, 1), convention="papi"
        ),
        "kind": "every_state",
    },
    "offline": {
        "monotonic": Monotonic(policy="offline"),
        "decoder_width": DecoderWidth(hidden=48, heads=4),
    },
}


def decisions_of(model, variables, encoded):
    return model.apply(variables, encoded, method="speech_decisions")


def trained(model, k, variables, prefix, encoded):
    decisions = decisions_of(model, variables, encoded)
    decoded = model.apply(variables, prefix, encoded, decisions, k, train=False, method="decode")
    return decoded.logits, decoded.reading


def all_known(context, encoded):
    decisions = decisions_of(context.model, context.variables, encoded)
    return known_of(context, encoded, decisions, jnp.ones(encoded.lengths.shape, bool))


def stepwise(model, rule, variables, prefix, encoded):
    """Logits and reach of every target, one forced token after the other."""
    context = Context(model=model, variables=variables, control=rule, decoding=Decoding())
    known = all_known(context, encoded)
    state, everywhere = init_prefix(model, len(prefix), TARGETS, Decoding()), jnp.ones(3, bool)

    def step(state, token):
        state = state.replace(token=token)
        tried = attempt(context, state, known)
        state = commit(state, tried, token, everywhere, everywhere)
        return state, (tried.logits[:, 0], tried.layers.look.reach[..., 0])

    _, (logits, reach) = jax.lax.scan(step, state, prefix.T)
    return logits.swapaxes(0, 1), jnp.moveaxis(reach, 0, -1)


def at_once(model, rule, variables, prefix, encoded):
    """The same of all targets in one block."""
    context = Context(model=model, variables=variables, control=rule, decoding=Decoding())
    state = init_prefix(model, len(prefix), 1, Decoding())
    tried = attempt(context, state, all_known(context, encoded), prefix)
    return tried.logits, tried.layers.look.reach


@pytest.mark.parametrize(
    "name", [n if n == "learned" else pytest.param(n, marks=pytest.mark.slow) for n in CASES]
)
def test_steps_are_the_training_time_pass(name):
    model, monotonic = models.translator(**CASES[name]), CASES[name]["monotonic"]
    variables, encoded = models.parameters(model, decide=3e4), models.states(LENGTHS, SIZE)
    rule = control_of(Decoding(), monotonic)
    given = (variables, PREFIX, encoded)

    def run(*given):
        ways = [way(model, rule, *given) for way in (stepwise, at_once)]
        return trained(model, rule.selection.k, *given), ways

    (logits, reading), ways = models.compiled(run, *given)(*given)
    for ours, reach in ways:
        np.testing.assert_allclose(ours, logits, atol=1e-5)
        np.testing.assert_allclose(reach + 1, reading.delays, atol=1e-3)
    if monotonic.policy == "learned":
        assert np.unique(np.round(reading.delays[:, 0])).size >= 3, "heads do not differ"


@pytest.fixture(scope="module")
def streams():
    return Streams()


@pytest.fixture(scope="module")
def example(streams):
    """Recordings, how they are cut, what is written, and the states of all steps."""
    sounds, pieces = utterances(streams, 1)
    return sounds, pieces, *streams.run(sounds, pieces)


def test_a_stream_can_move_to_another_row(streams, example):
    sounds, pieces, found, _ = example
    rows, old, new = moved(streams, sounds, pieces)
    assert [a + b for a, b in zip(rows[0], rows[5], strict=True)] == found[0]
    assert rows[0][0] and rows[5][0]
    for one, other in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True):
        np.testing.assert_array_equal(one, other)


def test_random_pieces_decide_as_a_pass_from_scratch(streams, example):
    """Among these is one where an upper layer must judge anew what it rejected before a READ."""
    sounds, pieces, found, _ = example
    assert found == streams.expected(sounds, pieces, history="recomputed", size=MOST)
    reads = {(b, n) for b, row in enumerate(found) for n in row[1]}
    assert len(reads) >= 15, "too few READs"
    assert streams.compilations == 1


def test_company_has_no_influence(streams, example):
    sounds, pieces, found, _ = example
    for row in (0, 5):
        alone = [s if b == row else s[:0] for b, s in enumerate(sounds)]
        silent = [p if b == row else [0] * len(p) for b, p in enumerate(pieces)]
        assert streams.run(alone, silent)[0][row] == found[row]
    assert streams.compilations == 1


def test_what_is_no_number_is_silence(streams, example):
    sounds, pieces, *_ = example
    holes = [np.arange(len(s)) % 7_000 < 900 for s in sounds]
    broken, silent = (
        [np.where(hole, x, s) for hole, s in zip(holes, sounds, strict=True)] for x in (np.nan, 0)
    )
    assert streams.run(broken, pieces)[0] == streams.run(silent, pieces)[0]


def test_nothing_is_heard_after_the_end_or_without_room(streams):
    random = np.random.default_rng(9)
    sounds = [random.normal(size=64_000).astype(np.float32) for _ in range(streams.batch)]
    states, rows = [streams.start()], [([], [], []) for _ in sounds]
    for turn in range(40):  # row 0 ends by itself, row 1 has no more room after 60 states
        starts = np.full(streams.batch, turn * streams.size)
        length = np.where(np.arange(streams.batch) < 2, streams.size, 0)
        ended = (np.arange(streams.batch) == 0) & (turn == 12)
        streams.turn(states, rows, streams.chunk(sounds, starts, length, ended))
    heard = states[-1].source.known.progress
    assert heard.lengths.tolist() == [32, 60] + [0] * 6 and heard.ended.tolist()[:2] == [True] * 2
    assert states[-1].prefix.finished.tolist() == [True, True] + [False] * 6
    assert states[-1].samples[0] == 13 * streams.size and rows[0][0]
    jax.tree.map(np.testing.assert_array_equal, states[-1].prefix, states[-2].prefix)


def test_mistakes_are_named(streams):
    with pytest.raises(ValueError, match="takes 6 features and these are 80"):
        StreamingDecoder(model=streams.decoder.model, features=Features())
    with pytest.raises(ValueError, match="events is 0"):
        StreamLimits(events=0)
    with pytest.raises(ValueError, match="decides at words"):
        Streams(kind="words").start()
