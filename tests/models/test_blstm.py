"""The VGG-BLSTM encoder: what is padded and who else is there has no influence."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.model import SpeechConfig, Width
from simuljax.models.encoders import VGGBLSTMEncoder
from simuljax.nn.subsampling import state_count
from tests.helpers import models
from tests.helpers.models import random_parameters

LENGTHS, FRAMES, FEATURES = [21, 9, 2, 0], 21, 7
WIDTH = Width(model=6, hidden=5, heads=1, dropout=0.3)
SPEECH = SpeechConfig(kind="vgg_blstm", layers=3, shared=0, channels=2, ctc_after=2)
MODEL = VGGBLSTMEncoder(SPEECH, WIDTH, ctc_classes=4)


@pytest.fixture(scope="module")
def features():
    random = np.random.default_rng(0)
    return random.normal(size=(len(LENGTHS), FRAMES, FEATURES)).astype(np.float32)


@pytest.fixture(scope="module")
def variables(features):
    return random_parameters(MODEL, features, jnp.array(LENGTHS), train=False)


@pytest.fixture(scope="module")
def run(variables):
    return models.fast(lambda x, lengths: MODEL.apply(variables, x, lengths, train=False))


def test_padding_and_company_have_no_influence(features, run):
    together = run(features, jnp.array(LENGTHS))
    assert together.states.shape == (4, 6, 6) and together.ctc.shape == (4, 6, 4)
    assert together.lengths.tolist() == [state_count(length) for length in LENGTHS]
    real = np.arange(FRAMES)[:, None] < np.array(LENGTHS)[:, None, None]
    rubbish = run(np.where(real, features, 1e3), jnp.array(LENGTHS))
    np.testing.assert_array_equal(rubbish.states, together.states)
    alone = run(features[1:2, :9], jnp.array([9]))
    np.testing.assert_allclose(alone.states[0], together.states[1, :3], atol=1e-5)
    np.testing.assert_allclose(alone.ctc[0], together.ctc[1, :3], atol=1e-5)
    assert not together.states[1, 3:].any() and not together.states[3].any()


def test_dropout_stands_between_lstms(features, variables):
    def states(layers):
        speech = dataclasses.replace(SPEECH, layers=layers, ctc_after=None)
        model = VGGBLSTMEncoder(speech, WIDTH, ctc_classes=4)
        some = {"params": {k: v for k, v in variables["params"].items() if k != "ctc"}}

        def run(key):
            given = (features, jnp.array(LENGTHS))
            encoded: Any = model.apply(some, *given, train=True, rngs={"dropout": key})
            return encoded.states

        return models.fast(jax.vmap(run))(jax.random.split(jax.random.key(0), 2))

    one, other = states(layers=2)
    assert np.abs(one - other).max() > 1e-3
    one, other = states(layers=1)
    np.testing.assert_array_equal(one, other)


def test_layers_that_cannot_be_shared_are_refused():
    with pytest.raises(ValueError, match="shared"):
        SpeechConfig(kind="vgg_blstm", layers=5, shared=3)
