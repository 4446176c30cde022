"""A simultaneous translator of the language of tones, trained on speech and tested on other speech.

Its encoder streams: no state knows what is said later, so a translator that writes early has heard
little, in training as in a stream.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.batch import Batch
from simuljax.config.decoding import Decoding, LengthLimit
from simuljax.config.model import ModelConfig, Monotonic, PreDecision, SpeechConfig, Width
from simuljax.decode.beam import translate_speech
from simuljax.decode.simulate import Listening, simulate_speech
from simuljax.models.parameters import initialise
from simuljax.train.objective import speech_features
from simuljax.train.step import CompiledUpdate, TrainState
from tests.train import small, tones
from tests.train.overfitting import SPEECH_ALONE, driver_of

TRANSLATOR = ModelConfig(
    source_vocabulary=tones.VOCABULARY,
    target_vocabulary=tones.VOCABULARY,
    width=Width(model=48, hidden=96, heads=2, dropout=0.1),
    speech=SpeechConfig(
        kind="streaming", layers=2, shared=0, channels=64, chunk=2, left=24, right=0
    ),
    text=None,
    decoder_layers=2,
    monotonic=Monotonic(attention="lookback"),
    predecision=PreDecision(step_ms=80),
)
DECODING = Decoding(limit=LengthLimit(ratio=0.0, constant=tones.MOST_WORDS + 3))
LISTENING = Listening(read_ms=80)
BATCHES = 32


@functools.cache
def train_batch(number: int) -> Batch:
    return tones.utterances(32, seed=1000 + number, order="straight")


@functools.cache
def held_out() -> Batch:
    return tones.utterances(256, seed=5, order="straight")


@dataclass(frozen=True, kw_only=True)
class Delay:
    """Means over held-out utterances, and whether what streams write is right."""

    expected: float  # DAL of the expected alignment, in states of 40 ms
    decided: float  # ms heard before a token is written
    accuracy: float  # of the stream's tokens

    def __str__(self) -> str:
        return f"DAL {self.expected:.2f} states  {self.decided:.0f} ms  {self.accuracy:.1%} right"


def driver() -> CompiledUpdate:
    """Compiled once, for all parameters and all weights of latency."""
    return driver_of(TRANSLATOR, SPEECH_ALONE, train_batch(0))


def first(driver: CompiledUpdate, seed: int) -> TrainState:
    """Other parameters for the same compiled functions."""
    key = jax.random.key(seed, impl="rbg")
    return driver.first([lambda _: initialise(driver.model.model, key)[0]])


def train(
    driver: CompiledUpdate, state: TrainState, updates: int, *, latency: float = 0.0, seed: int = 0
) -> TrainState:
    """The state after so many updates more; the one given is left as it is."""
    state, order = jax.tree.map(jnp.copy, state), np.random.default_rng(seed)
    on_host = small.weights(driver.model.objective) | {"st_latency": jnp.float32(latency)}
    weights: Mapping[str, Any] = driver.replicas.replicate(on_host)
    for place in order.integers(BATCHES, size=updates):
        state, _ = driver.update(state, [train_batch(int(place))], weights)
    return state


def delay(driver: CompiledUpdate, state: TrainState) -> Delay:
    """As training expects it, and as a stream has it."""
    latency = jax.device_get(driver.validate(state, [held_out()])).sums["st_latency"]
    features, _ = speech_features(held_out(), driver.model.statistics, driver.model.objective, None)
    found = jax.device_get(
        simulate_speech(
            driver.model.model,
            variables(state),
            features,
            held_out().audio_length,
            decoding=DECODING,
            listening=LISTENING,
        )
    )
    written = np.arange(found.tokens.shape[1]) < found.lengths[:, None]
    return Delay(
        expected=float(latency.numerator) / len(held_out().index),
        decided=float(found.delays[written].mean()),
        accuracy=accuracy(found.tokens, held_out()),
    )


def mean(delays: Sequence[Delay]) -> Delay:
    return Delay(
        expected=float(np.mean([delay.expected for delay in delays])),
        decided=float(np.mean([delay.decided for delay in delays])),
        accuracy=float(np.mean([delay.accuracy for delay in delays])),
    )


def translated(driver: CompiledUpdate, state: TrainState, audio_of: np.ndarray) -> np.ndarray:
    """Greedy tokens for held-out utterances, each of which hears the audio of another."""
    features, frames = speech_features(
        held_out(), driver.model.statistics, driver.model.objective, None
    )
    features, frames = np.asarray(features)[audio_of], np.asarray(frames)[audio_of]
    model = driver.model.model
    found = translate_speech(model, variables(state), features, frames, decoding=DECODING)
    return np.asarray(found.tokens)


def accuracy(tokens: np.ndarray, batch: Batch) -> float:
    """The share of target places that hold the right token; what is missing is wrong."""
    size = batch.target.shape[1]
    counted = np.arange(size) < batch.target_length[:, None]
    return float((np.asarray(tokens)[:, :size] == batch.target)[counted].mean())


def variables(state: TrainState) -> dict[str, Any]:
    return {"params": jax.device_get(state.params)}
