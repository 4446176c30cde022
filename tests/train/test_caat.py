"""CAAT learns a few utterances by heart, and then writes them as they are spoken."""

import dataclasses

import jax
import numpy as np
import pytest

from simuljax.audio import Features, features_of
from simuljax.config.decoding import Blocks, Decoding
from simuljax.config.model import Monotonic, PreDecision, SpeechConfig
from simuljax.decode.simulate import Listening, simulate_speech
from simuljax.models.joint import JointModel
from tests.train import tones
from tests.train.overfitting import SPEECH_ALONE, compiling_quickly, driver_of, translator

pytestmark = pytest.mark.slow  # compiles much

OBJECTIVE = dataclasses.replace(SPEECH_ALONE, transducer=1.0, transducer_delay=1.0)
CAAT = translator(
    speech=SpeechConfig(
        kind="streaming", layers=1, shared=0, channels=32, chunk=4, left=16, right=2
    ),
    decoder="caat",
    decoder_layers=1,
    joiner_layers=1,
    predecision=PreDecision(step_ms=160),
    monotonic=Monotonic(policy="offline"),
)
BATCH = tones.utterances(4, seed=3, order="straight")


@pytest.fixture(scope="module")
def driver():
    with compiling_quickly():
        yield driver_of(CAAT, OBJECTIVE, BATCH)


def train(driver, updates, **weights):
    """Parameters, and the terms of the last validation."""
    state, given = driver.first(), driver.model.objective.weights() | weights
    for _ in range(updates):
        state, _ = driver.update(state, [BATCH], driver.weights([given]))
    seen = jax.device_get(driver.validate(state, [BATCH]))
    return state.params, {name: s.numerator / s.denominator for name, s in seen.sums.items()}


def test_4_utterances_are_learnt_and_written_while_they_are_spoken(driver):
    params, terms = train(driver, 200)
    assert terms["transducer"] < 0.1 and terms["st_nll"] < 0.1
    features = features_of(BATCH.audio, Features(), tones.heard_in(BATCH).statistics)
    given = (JointModel(CAAT), {"params": jax.device_get(params)}, features, BATCH.audio_length)
    early = 0
    for blocks in (Blocks(inside=1), Blocks()):
        how = {"decoding": Decoding(blocks=blocks), "listening": Listening(read_ms=160)}
        done = simulate_speech(*given, **how)
        for b, n in enumerate(np.asarray(done.lengths)):
            said = BATCH.target[b, : BATCH.target_length[b]].tolist()
            assert done.tokens[b, :n].tolist() == said
            early += int((done.delays[b, :n] < BATCH.audio_length[b] / 16).sum())
    assert early > 8, "most of it had to wait for the end"


def test_who_is_charged_for_delay_writes_sooner(driver):
    free, charged = (train(driver, 60, transducer_delay=w)[1] for w in (1e-9, 30.0))
    assert charged["transducer_delay"] < 0.8 * free["transducer_delay"]
