"""A Conformer learns 32 utterances by heart: offline, and waiting for words that it hears."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from simuljax.batch import Batch
from simuljax.config.model import ModelConfig, Monotonic, PreDecision, SpeechConfig, Width
from simuljax.config.training import Objective, Optimiser
from simuljax.models.joint import JointModel
from simuljax.nn.layers import STATISTICS
from simuljax.text import WordBoundaries, Words, ctc_word_counts
from simuljax.train.objective import speech_features
from simuljax.train.step import AXIS, CompiledUpdate, Replicas, TrainState, Update
from tests.train import tones
from tests.train.overfitting import SPEECH_ALONE, compiling_quickly, look, weights_of

CASES = {
    "offline": (Monotonic(policy="offline"), PreDecision()),
    "words": (
        Monotonic(policy="wait_k", wait_k=(2, 2), counts="words"),
        PreDecision(kind="ctc_words"),
    ),
}
MOST = 600


@pytest.fixture(scope="module", autouse=True)
def quickly() -> Iterator[None]:
    with compiling_quickly():
        yield


def boundaries() -> WordBoundaries:
    """Every token of this language is a word."""
    ordinary, no = np.arange(tones.VOCABULARY) >= tones.SPECIALS, np.zeros(tones.VOCABULARY, bool)
    return WordBoundaries(starts_word=ordinary, ends_word=no, has_text=ordinary, joins_next=no)


def driver_of(case: str, batch: Batch) -> CompiledUpdate:
    monotonic, predecision = CASES[case]
    translator = ModelConfig(
        source_vocabulary=tones.VOCABULARY,
        target_vocabulary=tones.VOCABULARY,
        width=Width(model=32, hidden=64, heads=2, dropout=0.0),
        speech=SpeechConfig(
            kind="conformer", layers=2, shared=0, channels=64, ctc_after=2, kernel=5
        ),
        text=None,
        decoder_layers=2,
        monotonic=monotonic,
        predecision=predecision,
    )
    update = Update(
        model=JointModel(translator, axis=AXIS),
        objective=Objective(terms=dataclasses.replace(SPEECH_ALONE, ctc=0.5).terms()),
        optimiser=Optimiser(learning_rate=4e-3, warmup=40, betas=(0.9, 0.98), clip=1.0).build(),
        statistics=tones.heard_in(batch).statistics,
        words=Words(source=boundaries(), target=boundaries()),
    )
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), (AXIS,))
    return CompiledUpdate(update, Replicas(mesh=mesh, parallelism="shard_map"))


def words_in(driver: CompiledUpdate, state: TrainState, batch: Batch) -> np.ndarray:
    """How many words the CTC head hears in each utterance."""
    update = driver.model

    def count(params, statistics):
        features, frames = speech_features(batch, update.statistics, update.objective, None)
        encoded: Any = JointModel(update.model.config).apply(
            {"params": params, STATISTICS: statistics},
            features,
            frames,
            train=False,
            method="encode_speech",
        )
        return ctc_word_counts(encoded.ctc, encoded.lengths, boundaries())[:, -1]

    return np.asarray(jax.jit(count)(state.params, state.statistics))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_32_utterances_are_learnt_by_heart(case):
    batch = tones.utterances(32, seed=1)
    driver = driver_of(case, batch)
    state, weights, updates = driver.first(), weights_of(driver), 0
    known = look(driver, state, batch, ("st",))
    while updates < MOST and not known.is_enough:
        for _ in range(20):
            state, _ = driver.update(state, [batch], weights)
        updates += 20
        known = look(driver, state, batch, ("st",))
    right = words_in(driver, state, batch) == batch.source_length - 1
    print(f"{case}: {known} after {updates} updates, {right.mean():.0%} of the word counts right")
    assert known.is_enough, f"{known} after {updates} updates"
    assert right.mean() >= 0.9
