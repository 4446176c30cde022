"""Translators learn 16 utterances by heart, and a latency term makes one of them quicker."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from simuljax.audio import Features, features_of
from simuljax.batch import Batch
from simuljax.config.decoding import Blocks, Decoding
from simuljax.config.model import (
    Attention,
    DecisionKind,
    ModelConfig,
    Monotonic,
    PreDecision,
    SpeechConfig,
    TextConfig,
)
from simuljax.decode.reencoding import simulate_speech
from simuljax.losses import JointObjective
from simuljax.models.joint import JointModel
from simuljax.nn.layers import STATISTICS
from simuljax.text import WordBoundaries, Words, ctc_word_counts
from simuljax.train.forward import speech_features
from simuljax.train.step import CompiledUpdate, TrainState
from tests.train import tones
from tests.train.overfitting import (
    CAAT,
    SPEECH_ALONE,
    Known,
    compiling_quickly,
    driver_of,
    overfit,
    translator,
)

pytestmark = pytest.mark.slow
COUNT = 16


def case(attention: Attention, kind: DecisionKind, **waits: Any) -> ModelConfig:
    monotonic = Monotonic(attention=attention, chunk=4, **waits)
    return translator(monotonic=monotonic, predecision=PreDecision(kind=kind, step_ms=120))


# Token i is the word i + 1 (or i - 1), and wait-k writes it after i + k decision points. So that it
# has been heard by then, k is 2 words, with 2 phonemes to a word: target i falls behind, and k
# makes up for that at the end of 5 words: 2 * 5 = 4 + 6.
GRID = {
    "hard-phonemes-wait": case("hard", "phonemes", policy="wait_k", wait_k=(6, 6)),
    "chunkwise-learnable": case("chunkwise", "learnable"),
}
JOINT = translator(speech=SpeechConfig(layers=2, shared=1, channels=64), text=TextConfig(layers=1))
STRAIGHT = tones.utterances(4, seed=3, order="straight")
EVERY_TERM = JointObjective(smoothing=0.0, latency=0.05)  # with KD, CAR and DAR


@pytest.fixture(scope="module", autouse=True)
def quickly() -> Iterator[None]:
    with compiling_quickly():
        yield


@pytest.fixture(scope="module")
def batch() -> Batch:
    return tones.utterances(COUNT, seed=1)


@pytest.fixture(scope="module")
def joint(batch) -> CompiledUpdate:
    return driver_of(JOINT, EVERY_TERM, batch)


@pytest.fixture(scope="module")
def learnt(joint, batch) -> tuple[Known, TrainState]:
    return overfit(joint, batch)


@pytest.mark.parametrize("name", GRID)
def test_utterances_are_learnt_by_heart(name, batch):
    """Unsmoothed NLL below .05 per token, 99 % of the tokens right, without noise."""
    known, _ = overfit(driver_of(GRID[name], SPEECH_ALONE, batch), batch)
    assert known.is_enough


def test_all_terms_together_teach_both_branches_by_heart(learnt):
    assert learnt[0].is_enough and set(learnt[0].nll) == {"st", "mt"}


def test_without_what_is_said_they_are_not(joint, batch):
    """The audio of one for all: what is left are tokens whose words were drawn at random."""
    one = {n: np.repeat(getattr(batch, n)[:1], COUNT, 0) for n in ("audio", "audio_length")}
    known, _ = overfit(joint, dataclasses.replace(batch, **one), most=80)
    assert known.nll["st"] > 0.5 and known.accuracy["st"] < 0.8


def test_a_heavier_latency_term_lowers_expected_delays(joint, batch):
    """In states, summed over a sentence. Around 7 is the least, where both end later."""

    def delay(weight: float) -> float:
        state, given = joint.first(), joint.per_replica.objective.weights() | {"st_latency": weight}
        for _ in range(40):
            state, _ = joint.update(state, [batch], joint.weights([given]))
        lag = jax.device_get(joint.validate(state, [batch])).sums["st_latency"]
        return float(lag.numerator) / COUNT

    slower, quicker = delay(0.05), delay(1.0)
    print(slower, quicker)
    assert quicker < 0.8 * slower


def boundaries() -> WordBoundaries:
    """Every token of this language is a word."""
    ordinary, no = np.arange(tones.VOCABULARY) >= tones.SPECIALS, np.zeros(tones.VOCABULARY, bool)
    return WordBoundaries(starts_word=ordinary, ends_word=no, has_text=ordinary, joins_next=no)


def words_in(driver: CompiledUpdate, state: TrainState, batch: Batch) -> np.ndarray:
    """Count the words that the CTC head hears in each utterance."""
    update = driver.per_replica

    def count(params, statistics):
        features, frames = speech_features(batch, update.front_end, update.objective, None)
        variables = {"params": params, STATISTICS: statistics}
        bound = JointModel(update.model.config).bind(variables)
        encoded: Any = bound.encode_speech(features, frames, train=False)
        return ctc_word_counts(encoded.ctc, encoded.lengths, boundaries())[:, -1]

    return np.asarray(jax.jit(count)(state.params, state.statistics))


def test_a_conformer_learns_them_waiting_for_words_that_it_hears(batch):
    encoder = SpeechConfig(kind="conformer", layers=2, shared=0, channels=64, ctc_after=2, kernel=5)
    by_words = Monotonic(policy="wait_k", wait_k=(2, 2), counts="words")
    model = translator(
        speech=encoder, monotonic=by_words, predecision=PreDecision(kind="ctc_words")
    )
    objective = dataclasses.replace(SPEECH_ALONE, ctc=0.5)
    words = Words(source=boundaries(), target=boundaries())
    driver = driver_of(model, objective, batch, words=words)
    known, state = overfit(driver, batch, most=600)
    assert known.is_enough
    assert (words_in(driver, state, batch) == batch.source_length - 1).mean() >= 0.9


@pytest.fixture(scope="module")
def caat() -> CompiledUpdate:
    objective = dataclasses.replace(SPEECH_ALONE, transducer=1.0, transducer_delay=1.0)
    return driver_of(CAAT, objective, STRAIGHT)


def trained(driver: CompiledUpdate, updates: int, **weights: float) -> tuple[Any, dict[str, float]]:
    """Parameters, and the terms of the last validation."""
    state, given = driver.first(), {**driver.per_replica.objective.weights(), **weights}
    for _ in range(updates):
        state, _ = driver.update(state, [STRAIGHT], driver.weights([given]))
    seen = jax.device_get(driver.validate(state, [STRAIGHT]))
    return state.params, {name: s.numerator / s.denominator for name, s in seen.sums.items()}


def test_caat_learns_4_and_writes_them_while_they_are_spoken(caat):
    params, terms = trained(caat, 200)
    assert terms["transducer"] < 0.1 and terms["st_nll"] < 0.1
    features = features_of(STRAIGHT.audio, Features(), tones.heard_in(STRAIGHT).statistics)
    given = (JointModel(CAAT), {"params": jax.device_get(params)}, features, STRAIGHT.audio_length)
    early = 0
    for blocks in (Blocks(inside=1), Blocks()):
        done = simulate_speech(*given, decoding=Decoding(blocks=blocks, read_ms=160))
        for b, n in enumerate(np.asarray(done.lengths)):
            said = STRAIGHT.target[b, : STRAIGHT.target_length[b]].tolist()
            assert done.tokens[b, :n].tolist() == said
            early += int((done.delays[b, :n] < STRAIGHT.audio_length[b] / 16).sum())
    assert early > 8, "most of it had to wait for the end"


def test_a_caat_that_is_charged_for_delay_writes_sooner(caat):
    free, charged = (trained(caat, 60, transducer_delay=w)[1] for w in (1e-9, 30.0))
    assert charged["transducer_delay"] < 0.8 * free["transducer_delay"]
