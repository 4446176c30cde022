"""A decoder step is the training-time forward pass where its probabilities are 0 or 1."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.decoding import Decoding
from simuljax.config.model import Monotonic
from simuljax.decode.state import Context, Known, attempt, commit, control_of, init_prefix
from simuljax.models.joint import Attempt
from simuljax.nn.attention import Past
from simuljax.nn.monotonic import Look, progress_of
from simuljax.nn.transformer import LayerState, LayerStep
from tests.helpers import models

TARGETS, SIZE, LENGTHS = 6, 26, [26, 16, 1]
PREFIX = jnp.asarray(np.random.default_rng(1).integers(0, models.VOCABULARY, (3, TARGETS)))

POLICIES = {
    "learned": {"policy": "learned"},
    "wait-2": {"policy": "wait_k", "wait_k": (2, 2)},
    "wait-1 papi": {"policy": "wait_k", "wait_k": (1, 1), "convention": "papi"},
}
QUICK = ("lookback, learned, fixed",)


def case(monotonic: Monotonic, kind: str, name: str):
    """Compiling is slow: what is not among the quick ones is run on request."""
    return pytest.param(monotonic, kind, id=name, marks=[] if name in QUICK else pytest.mark.slow)


CASES = [
    case(
        Monotonic(attention=attention, chunk=4, noise=0.0, **given),
        kind,
        f"{attention}, {name}, {kind}",
    )
    for attention in ("hard", "lookback", "chunkwise")
    for name, given in POLICIES.items()
    for kind in ("fixed", "every_state")
] + [
    case(Monotonic(policy="offline"), "fixed", "offline"),
    case(Monotonic(noise=0.0), "learnable", "lookback, learned, learnable"),
]


def decisions_of(model, variables, encoded):
    return model.apply(variables, encoded, method="speech_decisions")


def trained(model, k, variables, prefix, encoded):
    decisions = decisions_of(model, variables, encoded)
    decoded = model.apply(variables, prefix, encoded, decisions, k, train=False, method="decode")
    return decoded.logits, decoded.reading


def known_of(model, variables, encoded, ended=True):
    decisions = decisions_of(model, variables, encoded)
    progress = progress_of(decisions, encoded.lengths, jnp.full(encoded.lengths.shape, ended))
    memory = model.apply(variables, encoded.states, decisions.keys, method="remember")
    return Known(memory=memory, progress=progress)


def stepwise(model, rule, variables, prefix, encoded):
    """Logits and reach of every target, one forced token after the other."""
    context = Context(model=model, variables=variables, control=rule, decoding=Decoding())
    known = known_of(model, variables, encoded)
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
    known, state = (
        known_of(model, variables, encoded),
        init_prefix(model, len(prefix), 1, Decoding()),
    )
    layers = LayerState(past=state.past, memory=known.memory, pointer=state.pointer)
    given = (prefix, state.position, layers, known.progress, rule.selection)
    tried = model.apply(variables, *given, method="attempt")
    return tried.logits, tried.layers.look.reach


@pytest.mark.parametrize(("monotonic", "kind"), CASES)
def test_steps_are_the_training_time_pass(monotonic, kind):
    model = models.translator(monotonic, kind)
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


def test_a_layer_above_one_that_waits_keeps_its_pointers():
    """It will see more of the source then; below, what was rejected stays so."""
    model = models.translator()
    prefix = init_prefix(model, 3, 4, Decoding())  # rows: waits in the upper layer, lower, none
    heads, added = (2, 3, 2, 1), jnp.ones((2, 3, 1, 2, 8))
    waits = jnp.zeros(heads, bool).at[1, 0, 1].set(True).at[0, 1, 0].set(True)
    fives = jnp.full(heads, 5)
    look = Look(pointer=fives, reach=fives, waits=waits, p=jnp.zeros(heads))
    layers = LayerStep(added=Past(key=added, value=added), look=look)
    tried = Attempt(logits=jnp.zeros((3, 1, models.VOCABULARY)), layers=layers)
    token, every, never = jnp.full(3, 7), jnp.ones(3, bool), jnp.zeros(3, bool)
    read = commit(prefix, tried, token, never, every)
    assert read.pointer[:, :, 0].tolist() == [[5, 5, 5], [5, 0, 5]]
    jax.tree.map(
        np.testing.assert_array_equal, dataclasses.replace(read, pointer=prefix.pointer), prefix
    )
    wrote = commit(prefix, tried, token, every, every)
    assert wrote.pointer.min() == 5 and wrote.token.tolist() == [7] * 3
    assert wrote.past.key[:, :, 0].all() and not wrote.past.key[:, :, 1:].any()
    idle = commit(prefix, tried, token, never, never)
    jax.tree.map(np.testing.assert_array_equal, idle, prefix)
