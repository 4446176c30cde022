"""Whisper's encoder over chunks: streams, floor, positions, weights of files and runs, training."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import simuljax
from data_pipelines.dataset import open_corpus
from simuljax.audio import neutral
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import InitFrom
from simuljax.config.fields import ConfigError
from simuljax.config.model import ModelConfig, Monotonic, PreDecision, SpeechConfig, Width
from simuljax.config.training import Objective, Optimiser, RateFactor
from simuljax.eval import read_records
from simuljax.models.encoders import SpeechEncoder
from simuljax.models.parameters import by_path
from simuljax.models.streaming import (
    StreamingWhisperEncoder,
    floor_so_far,
    frames_before,
    states_after,
)
from simuljax.models.whisper.config import PUBLISHED, Published
from simuljax.runs.evaluate import evaluate
from simuljax.runs.init_from import load_whisper_encoder, open_donor
from simuljax.serve.run import shapes
from tests.helpers.models import random_parameters
from tests.models.conftest import SIZES
from tests.models.test_streaming import CHUNK, RIGHT, Model, differences, utterances
from tests.models.test_streaming import small as small_streaming
from tests.models.test_whisper_encoder import WHISPER_MEL, trained, whisper_experiment
from tests.oracles.checks import assert_close
from tests.runs.test_policies_evaluated import ALONE
from tests.train import small

WIDTH = Width(model=16, hidden=24, heads=2, dropout=0.0)
CONFIG = small_streaming("streaming_whisper")
SPEECH: Any = CONFIG.speech
pytestmark = pytest.mark.usefixtures("small_sizes")


@pytest.fixture(scope="module")
def model(small_sizes):
    return Model(CONFIG)


def test_states_come_as_soon_as_their_frames_are_there(model):
    state, total = model.start(1), 0
    for frame in range(1, 60):
        given = np.zeros((1, model.frames, 6), np.float32)
        state, _, count = model.step(
            model.parameters, state, given, np.ones(1, np.int32), np.zeros(1, bool)
        )
        total += int(count[0])
        ready = max(int(states_after(SPEECH, frame)) - RIGHT, 0) // CHUNK * CHUNK
        assert total == ready
    assert total == 3 * CHUNK
    frames = range(1, 40)
    assert [next(f for f in frames if states_after(SPEECH, f) == s) for s in range(1, 9)] == [
        frames_before(SPEECH, s) for s in range(1, 9)
    ]


def test_the_floor_is_below_the_loudest_so_far():
    features = np.random.default_rng(5).normal(0, 2, (2, 30, 6)).astype(np.float32)
    lengths = jnp.array([30, 17])
    floored, loudest = floor_so_far(jnp.asarray(features), lengths, jnp.full(2, -jnp.inf))
    for row, n in enumerate(lengths):
        for t in range(n):
            least = features[row, : t + 1].max() - 2
            assert_close(floored[row, t], np.maximum(features[row, t], least), 1e-6)
        assert loudest[row] == features[row, :n].max()


def test_one_chunk_is_whispers_own_encoder():
    """With the loudest frame first, both have the same floor; parameters have the same names."""
    whole = SpeechConfig(kind="whisper", layers=0, shared=0)
    chunked = dataclasses.replace(whole, kind="streaming_whisper", chunk=20, left=0, right=0)
    features = np.random.default_rng(8).normal(size=(2, 39, 80)).astype(np.float32)
    features[:, 0, 0], lengths = 9, jnp.array([39, 22])
    one, other = (
        cls(speech, WIDTH, 9)
        for cls, speech in ((SpeechEncoder, whole), (StreamingWhisperEncoder, chunked))
    )
    variables = random_parameters(one, features, lengths, None, train=False)

    @jax.jit
    def both(features):
        return [e.apply(variables, features, lengths, None, train=False) for e in (one, other)]

    wanted, got = both(features)
    assert np.std(wanted.states) > 0.1
    assert_close(got.states, wanted.states, 1e-5)
    features[:, 0, 0], features[:, 20, 0] = 0, 9  # a later one has no influence on the floor before
    wanted, got = both(features)
    assert np.abs(got.states - wanted.states)[:, 0].max() > 1e-3


@pytest.mark.slow
def test_the_published_size_streams(monkeypatch):
    """Tiny, 4 layers of width 384, with the chunks of the defaults."""
    sizes = dataclasses.replace(SIZES, width=384, audio_layers=4, audio_positions=1500)
    monkeypatch.setitem(PUBLISHED, "tiny", Published(sizes, ()))
    config = small_streaming("streaming_whisper", (8, 64, 4), layers=1, shared=0)
    model, random = Model(config, 40), np.random.default_rng(10)
    features, lengths = utterances(random, 3, 110)
    difference, _ = differences(model, random, features, lengths, model.start(3))
    assert difference < 2e-5


@pytest.mark.slow
def test_weights_of_a_file_and_of_a_run_fill_it(file):
    speech = dataclasses.replace(SPEECH, ctc_after=None)
    own = by_path(shapes(small.translator(speech=speech))[0])
    before = by_path(shapes(small.translator(speech=whole_utterances(speech)))[0])
    assert own == before  # names, shapes and types of a run with kind "whisper"
    given = by_path(open_donor(InitFrom(run=Path(f"whisper:{file}")), None, own)())  # pyright: ignore
    assert {f"speech/whisper/{path.partition('/')[2]}" for path in given} == {
        path for path in own if path.startswith("speech/whisper/")
    }


def whole_utterances(speech):
    return dataclasses.replace(speech, kind="whisper")


def test_a_caat_needs_an_encoder_over_chunks():
    offline = Monotonic(policy="offline")
    given: dict[str, Any] = {"text": None, "decoder": "caat", "monotonic": offline}
    speech = dataclasses.replace(SPEECH, shared=0)
    assert ModelConfig(speech=speech, **given).decoder == "caat"
    with pytest.raises(ConfigError, match="streaming_whisper"):
        ModelConfig(speech=whole_utterances(speech), **given)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["whisper", "streaming_whisper"])
def test_a_joint_model_is_updated_and_only_what_is_not_frozen(kind):
    frozen = (RateFactor(part="speech/whisper"),)
    optimiser = Optimiser(learning_rate=0.1, warmup=0, factors=frozen)
    base = small.translator(speech=dataclasses.replace(SPEECH, kind=kind, ctc_after=None))
    config = dataclasses.replace(base, width=dataclasses.replace(base.width, dtype="bfloat16"))
    objective = dataclasses.replace(small.objective(), features=WHISPER_MEL)
    update = small.update(config, optimiser, objective=objective, statistics=neutral(80))
    compiled = small.compiled(update)
    state = compiled.first()
    before = by_path(jax.device_get(state.params))
    state, report = compiled.update(state, [small.batch(4)], small.weights_of(compiled))
    assert report.finite
    after = by_path(jax.device_get(state.params))
    for path, old in before.items():
        if path.startswith("speech"):
            same = np.array_equal(old, after[path])
            assert same == path.startswith("speech/whisper/"), path


@pytest.mark.slow
@pytest.mark.parametrize("translator", ["whisper", "streaming_whisper", "caat"])
def test_an_experiment_trains_evaluates_and_streams(corpus, file, tmp_path, translator):
    """The words and delays of streams, alone or several at once, are those of the evaluation."""
    run, kind = tmp_path / "run", "whisper" if translator == "whisper" else "streaming_whisper"
    shared = int(translator != "caat")
    speech = dataclasses.replace(SPEECH, kind=kind, shared=shared, ctc_after=None)
    given = whisper_experiment(corpus, run, speech=speech, init_from=f"whisper:{file}")
    if translator == "caat":
        model = dataclasses.replace(
            given.model,
            text=None,
            decoder="caat",
            joiner_layers=1,
            predecision=PreDecision(step_ms=640),
            monotonic=Monotonic(policy="offline"),
        )
        training = dataclasses.replace(given.training, objective=Objective(terms=ALONE.terms()))
        given = dataclasses.replace(given, model=model, training=training)
    params = trained(given, learning_rate=0.01)
    before = by_path(load_whisper_encoder(file)["encoder"])
    for path, value in by_path(params["speech"]["whisper"]).items():
        assert np.abs(value - before[path]).max() > 0, path
    chosen = Evaluation(run=run, split="test", frames=8_000)
    assert evaluate(chosen)["n"] == 4
    loaded, records = simuljax.load(run), read_records(chosen.folder)
    sounds = [open_corpus(corpus)["test"].source[at]["audio"] for at in range(4)]
    written = loaded.stream_all(sounds, streams=3)
    assert any(record.prediction for record in records)
    for words, record in zip(written, records, strict=True):
        assert " ".join(word.text for word in words) == record.prediction
    for at, size in ((0, 1_600), (3, 7_000)):
        stream, sound = loaded.stream(), sounds[at]
        words = [w for i in range(0, len(sound), size) for w in stream.push(sound[i : i + size])]
        assert [w.text for w in words + stream.finish()] == [w.text for w in written[at]]
