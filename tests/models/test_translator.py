"""The joint translator: padding has no influence, and no target sees a later one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.model import Monotonic, PreDecision, SpeechConfig
from simuljax.models.joint import JointModel, source_of
from simuljax.models.parameters import initialise
from tests.helpers.models import fast
from tests.train import small

FRAMES = 36


def built(**changes):
    model = JointModel(small.translator(**changes))
    return model, initialise(model, jax.random.key(0, impl="rbg"))[0]


def speech_logits(model: JointModel, params, features, frames, prefix, labels):
    bound = model.bind({"params": params})
    encoded = bound.encode_speech(features, frames, train=False)
    decisions = bound.speech_decisions(encoded, labels)
    decoded = bound.decode(prefix, encoded, decisions, jnp.int32(2), train=False)
    return decoded.logits, decoded.reading.delays


@pytest.fixture(scope="module")
def inputs():
    random = np.random.default_rng(0)
    features = jnp.asarray(random.normal(size=(2, FRAMES, 80)), jnp.float32)
    labels = jnp.asarray(np.repeat(np.arange(1, 7), 6)[None].repeat(2, 0))
    prefix = jnp.asarray(random.integers(4, small.TARGET, (2, 5)))
    return features, prefix, labels


KINDS = {
    "learnt, fixed": {},
    "hard, words": {
        "monotonic": Monotonic(attention="hard"),
        "predecision": PreDecision(kind="words"),
    },
    "chunkwise, learnable": {
        "monotonic": Monotonic(attention="chunkwise", chunk=2),
        "predecision": PreDecision(kind="learnable"),
    },
    "wait-k, phonemes": {
        "monotonic": Monotonic(policy="wait_k"),
        "predecision": PreDecision(kind="phonemes", pooling="last"),
    },
    "offline": {"monotonic": Monotonic(policy="offline")},
}


@pytest.mark.parametrize(
    "kind", [*list(KINDS)[:1], *(pytest.param(k, marks=pytest.mark.slow) for k in list(KINDS)[1:])]
)
def test_padding_company_and_later_targets_have_no_influence(kind, inputs):
    features, prefix, labels = inputs
    model, params = built(**KINDS[kind])
    frames = jnp.array([FRAMES, 21])

    @fast
    def run(features, frames, prefix, labels):
        return speech_logits(model, params, features, frames, prefix, labels)

    together = run(features, frames, prefix, labels)
    rubbish = features.at[1, 21:].set(1e3)
    for one, other in zip(run(rubbish, frames, prefix, labels), together, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    swapped = run(features[::-1], frames[::-1], prefix[::-1], labels[::-1])
    np.testing.assert_allclose(swapped[0][0], together[0][1], atol=1e-5)
    before, after = together[0], run(features, frames, prefix.at[:, 3].set(4), labels)[0]
    np.testing.assert_allclose(before[:, :3], after[:, :3], atol=1e-6)  # no later target is seen
    assert np.abs(before[:, 3:] - after[:, 3:]).max() > 1e-3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"speech": None, "text": None}, "speech"),
        ({"speech": SpeechConfig(layers=8, shared=7)}, "shared is 7"),
    ],
)
def test_what_cannot_be_built_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        small.translator(**changes)


def test_a_step_that_is_no_multiple_of_a_state_is_refused():
    with pytest.raises(ValueError, match="a multiple of 40 ms"):
        PreDecision(step_ms=100)


@pytest.mark.slow
def test_two_sources_in_one_pass_are_as_each_alone(inputs):
    model, params = built()
    features, prefix, _ = inputs

    def both(params):
        bound = model.bind({"params": params})
        spoken = bound.encode_speech(features, jnp.array([FRAMES, 20]), train=False)
        written = bound.encode_text(prefix, jnp.array([5, 3]), train=False)
        speech = source_of(spoken, bound.speech_decisions(spoken), jnp.int32(2))
        text = source_of(written, bound.text_decisions(written), jnp.int32(2))
        together = bound.decode_each(prefix, [speech, text], train=False)
        alone = [bound.decode_each(prefix, [one], train=False)[0] for one in (speech, text)]
        return together, alone

    together, alone = fast(both)(params)
    for one, other in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-5, atol=1e-5)
    assert float(jnp.abs(together[0].logits - together[1].logits).max()) > 1e-3
