"""A heavier latency weight makes a translator quicker.

Its encoder streams: no state knows what is said later, so a translator that writes early has heard
little, in training as in a stream. The latency term is DAL in states, summed over sentences and
divided by tokens: with 5 tokens to a sentence, a state (40 ms) less for every token is worth
lambda / 5 of a nat per token. That is little beside what it costs to guess one of 12 words, so a
translator gets quicker as far as it still hears the word it writes, and no further. One look at a
training may differ from the next by .1 states, 4 ms: hence the mean of several.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.batch import Batch
from simuljax.config.decoding import Decoding, LengthLimit
from simuljax.config.model import PreDecision, SpeechConfig, Width
from simuljax.decode.simulate import Listening, simulate_speech
from simuljax.train.forward import speech_features
from simuljax.train.step import CompiledUpdate, TrainState
from tests.train import small, tones
from tests.train.overfitting import SPEECH_ALONE, driver_of, translator

pytestmark = pytest.mark.slow
TRANSLATOR = translator(
    width=Width(model=48, hidden=96, heads=2, dropout=0.1),
    speech=SpeechConfig(
        kind="streaming", layers=2, shared=0, channels=64, chunk=2, left=24, right=0
    ),
    predecision=PreDecision(step_ms=80),
)
DECODING = Decoding(limit=LengthLimit(ratio=0.0, constant=tones.MOST_WORDS + 3))
PLAIN, LOOKS, BETWEEN = 500, 3, 100  # updates before, looks at the delays, updates between them


@functools.cache
def batches() -> list[Batch]:
    """For training."""
    return [tones.utterances(32, seed=1000 + number, order="straight") for number in range(32)]


@functools.cache
def held_out() -> Batch:
    return tones.utterances(256, seed=5, order="straight")


@dataclass(frozen=True, kw_only=True)
class Delay:
    """Means over held-out utterances, and whether what streams write is right."""

    expected: float  # DAL of the expected alignment, in states of 40 ms
    decided: float  # ms heard before a token is written
    accuracy: float  # of the stream's tokens


@pytest.fixture(scope="module")
def driver() -> CompiledUpdate:
    """Compiled once, for all weights of latency."""
    return driver_of(TRANSLATOR, SPEECH_ALONE, batches()[0])


@pytest.fixture(scope="module")
def trained(driver) -> TrainState:
    """Without a latency term, as the first of two phases."""
    return train(driver, driver.first(), PLAIN)


def train(
    driver: CompiledUpdate, state: TrainState, updates: int, *, latency: float = 0.0, seed: int = 0
) -> TrainState:
    """The state after so many updates more; the one given is left as it is."""
    state, order = jax.tree.map(jnp.copy, state), np.random.default_rng(seed)
    on_host = small.weights(driver.per_replica.objective) | {"st_latency": jnp.float32(latency)}
    weights: Any = driver.replicas.replicate(on_host)
    for place in order.integers(len(batches()), size=updates):
        state, _ = driver.update(state, [batches()[place]], weights)
    return state


def features_of(driver: CompiledUpdate) -> Any:
    return speech_features(
        held_out(), driver.per_replica.statistics, driver.per_replica.objective, None
    )


def delay(driver: CompiledUpdate, state: TrainState) -> Delay:
    """As training expects it, and as a stream has it."""
    latency = jax.device_get(driver.validate(state, [held_out()])).sums["st_latency"]
    given = (driver.per_replica.model, {"params": state.params}, features_of(driver)[0])
    how: Any = {"decoding": DECODING, "listening": Listening(read_ms=80)}
    found = jax.device_get(simulate_speech(*given, held_out().audio_length, **how))
    written = np.arange(found.tokens.shape[1]) < found.lengths[:, None]
    return Delay(
        expected=float(latency.numerator) / len(held_out().index),
        decided=float(found.delays[written].mean()),
        accuracy=accuracy(found.tokens, held_out()),
    )


def accuracy(tokens: np.ndarray, batch: Batch) -> float:
    """The share of target places that hold the right token; what is missing is wrong."""
    size = batch.target.shape[1]
    counted = np.arange(size) < batch.target_length[:, None]
    return float((np.asarray(tokens)[:, :size] == batch.target)[counted].mean())


def lagging(driver: CompiledUpdate, state: TrainState, weight: float) -> Delay:
    """The mean of several looks at a training that is the same but for the weight."""
    looks = []
    for number in range(LOOKS):
        state = train(driver, state, BETWEEN, latency=weight, seed=10 + number)
        looks.append(delay(driver, state))
    names = ("expected", "decided", "accuracy")
    return Delay(**{n: float(np.mean([getattr(look, n) for look in looks])) for n in names})


def test_delays_fall_as_lambda_grows(driver, trained):
    """The mean delay that training expects, and that of the decisions of streams."""
    slower, quicker = (lagging(driver, trained, weight) for weight in (0.0, 0.1))
    print(slower, quicker)
    assert quicker.expected < 0.9 * slower.expected
    assert quicker.decided < 0.95 * slower.decided
    assert quicker.accuracy > 0.9  # not by guessing
