"""Every kind of translator can learn 32 utterances by heart, and every head has a part in it."""

import dataclasses
from collections.abc import Iterator
from typing import Any, get_args

import jax
import numpy as np
import pytest

from simuljax.batch import Batch
from simuljax.config.model import (
    Attention,
    DecisionKind,
    ModelConfig,
    Monotonic,
    PreDecision,
    SpeechConfig,
    TextConfig,
    Width,
)
from simuljax.losses import JointObjective
from simuljax.models.joint import JointModel
from simuljax.nn.layers import STATISTICS
from simuljax.text import WordBoundaries, Words, ctc_word_counts
from simuljax.train.forward import speech_features
from simuljax.train.step import CompiledUpdate, TrainState
from tests.train import tones
from tests.train.overfitting import SPEECH_ALONE, compiling_quickly, driver_of, overfit, translator

pytestmark = pytest.mark.slow

# Token i is the word i + 1 (or i - 1), and wait-k writes it after i + k decision points. So that it
# has been heard by then, k is 2 words; with 2 phonemes to a word, target i falls behind, and k
# makes up for that at the end of 5 words: 2 * 5 = 4 + 6. Windows of 120 ms are as long as
# words, but not in step with them: one more. None: the heads decide.
WAIT: dict[DecisionKind, int | None] = {
    "every_state": None, "fixed": 3, "words": None, "phonemes": 6, "learnable": None
}  # fmt: skip
ATTENTIONS = get_args(Attention)


def case(attention: Attention, kind: DecisionKind, k: int | None) -> ModelConfig:
    waits: Any = {} if k is None else {"policy": "wait_k", "wait_k": (k, k)}
    monotonic = Monotonic(attention=attention, chunk=4, **waits)
    return translator(monotonic=monotonic, predecision=PreDecision(kind=kind, step_ms=120))


GRID: dict[str, tuple[ModelConfig, JointObjective]] = {}
for n, (kind, k) in enumerate(WAIT.items()):
    attention = ATTENTIONS[n % 3]
    GRID[f"{attention}-{kind}{'-wait' if k else ''}"] = case(attention, kind, k), SPEECH_ALONE
JOINT = translator(speech=SpeechConfig(layers=2, shared=1, channels=64), text=TextConfig(layers=1))
GRID["joint"] = JOINT, JointObjective(smoothing=0.0, latency=0.05)  # and KD, CAR, DAR
RECURRENT = translator(
    width=Width(model=32, hidden=32, heads=1, dropout=0.0),
    speech=SpeechConfig(kind="vgg_blstm", layers=2, shared=0, channels=8),
    decoder="lstm",
    monotonic=Monotonic(policy="offline"),
    output="own",
)


@pytest.fixture(scope="module", autouse=True)
def quickly() -> Iterator[None]:
    with compiling_quickly():
        yield


@pytest.fixture(scope="module")
def batch() -> Batch:
    return tones.utterances(32, seed=1)


@pytest.mark.parametrize("name", GRID)
def test_32_utterances_are_learnt_by_heart(name, batch):
    """Unsmoothed NLL below .05 per token, 99 % of the tokens right, without noise."""
    known, _ = overfit(driver_of(*GRID[name], batch), batch)
    assert known.is_enough


def test_without_what_is_said_they_are_not(batch):
    """The audio of one for all: what is left are tokens whose words were drawn at random."""
    one = {name: np.repeat(getattr(batch, name)[:1], 32, 0) for name in ("audio", "audio_length")}
    deaf = dataclasses.replace(batch, **one)
    known, _ = overfit(driver_of(case("hard", "fixed", None), SPEECH_ALONE, deaf), deaf, most=120)
    assert known.nll["st"] > 0.5 and known.accuracy["st"] < 0.8


def test_a_recurrent_translator_learns_4():
    four = tones.utterances(4, seed=1)
    known, _ = overfit(driver_of(RECURRENT, SPEECH_ALONE, four), four)
    assert known.is_enough


def boundaries() -> WordBoundaries:
    """Every token of this language is a word."""
    ordinary, no = np.arange(tones.VOCABULARY) >= tones.SPECIALS, np.zeros(tones.VOCABULARY, bool)
    return WordBoundaries(starts_word=ordinary, ends_word=no, has_text=ordinary, joins_next=no)


def words_in(driver: CompiledUpdate, state: TrainState, batch: Batch) -> np.ndarray:
    """How many words the CTC head hears in each utterance."""
    update = driver.per_replica

    def count(params, statistics):
        features, frames = speech_features(batch, update.statistics, update.objective, None)
        variables = {"params": params, STATISTICS: statistics}
        bound = JointModel(update.model.config).bind(variables)
        encoded: Any = bound.encode_speech(features, frames, train=False)
        return ctc_word_counts(encoded.ctc, encoded.lengths, boundaries())[:, -1]

    return np.asarray(jax.jit(count)(state.params, state.statistics))


@pytest.mark.parametrize("waits", [False, True], ids=["offline", "words"])
def test_a_conformer_learns_them_offline_and_waiting_for_words_that_it_hears(batch, waits):
    by_words = Monotonic(policy="wait_k", wait_k=(2, 2), counts="words")
    model = translator(
        speech=SpeechConfig(
            kind="conformer", layers=2, shared=0, channels=64, ctc_after=2, kernel=5
        ),
        monotonic=by_words if waits else Monotonic(policy="offline"),
        predecision=PreDecision(kind="ctc_words") if waits else PreDecision(),
    )
    objective = dataclasses.replace(SPEECH_ALONE, ctc=0.5)
    words = Words(source=boundaries(), target=boundaries())
    driver = driver_of(model, objective, batch, words=words)
    known, state = overfit(driver, batch, most=600)
    assert known.is_enough
    assert (words_in(driver, state, batch) == batch.source_length - 1).mean() >= 0.9
