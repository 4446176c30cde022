"""Whisper's encoder as the speech encoder of a translator: states, weights, training, streams."""

import dataclasses
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import simuljax
from data_pipelines.dataset import open_corpus
from simuljax.audio import Features, Filterbank, extract, frame_count
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import InitFrom
from simuljax.config.fields import ConfigError
from simuljax.config.model import ModelConfig, Monotonic, SpeechConfig, Width
from simuljax.config.training import Objective, Optimiser, RateFactor
from simuljax.eval import read_records
from simuljax.models.encoders import SpeechEncoder, whisper_floor
from simuljax.models.parameters import by_path, shapes
from simuljax.models.tensor_file import WeightsError
from simuljax.models.whisper.config import Config
from simuljax.models.whisper.model import Encoder
from simuljax.models.whisper.spectrogram import log_mel
from simuljax.runs.evaluate import evaluate
from simuljax.runs.init_from import load_whisper_encoder, open_donor
from simuljax.runs.train import check_factors, train
from tests.helpers.experiments import experiment
from tests.helpers.models import random_parameters
from tests.models.conftest import SIZES, tensors
from tests.models.whisper.small import ggml_bytes
from tests.train import small

WIDTH = Width(model=16, hidden=32, heads=2, dropout=0.0)
SPEECH = SpeechConfig(kind="whisper", layers=1, shared=0)
CHUNKED = SpeechConfig(
    kind="streaming_whisper", layers=2, shared=1, channels=12, chunk=4, left=6, right=2
)
POSITIONS = SIZES.audio_positions
WHISPER_MEL = Features(filterbank=Filterbank(kind="whisper"))
pytestmark = pytest.mark.usefixtures("quickly", "small_sizes")


def spoken(seconds: float, seed: int = 0) -> np.ndarray:
    """Noise of changing loudness, and a silence that the floor matters for."""
    random = np.random.default_rng(seed)
    sound = random.normal(0, 3_000, int(seconds * 16_000))
    sound[len(sound) // 3 : len(sound) // 2] *= 1e-4
    return sound.astype(np.int16)


def test_the_states_are_whispers_own():
    """As many frames as Whisper has positions for, all real."""
    encoder, frames = Encoder(Config(dimensions=SIZES, alignment_heads=())), 2 * POSITIONS
    mel = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (1, frames, 80)), jnp.float32)
    variables = random_parameters(encoder, mel)
    own = SpeechEncoder(SPEECH, WIDTH, 5)
    params = {"whisper": variables["params"]}

    @jax.jit
    def both(params):
        lengths = jnp.array([frames])
        inside = own.apply(
            {"params": params}, method=lambda m: m.whisper(whisper_floor(mel, lengths), lengths)
        )
        return inside, encoder.apply({"params": params["whisper"]}, mel)

    inside, wanted = both(params)
    assert inside.shape == (1, POSITIONS, SIZES.width) and np.std(wanted) > 0.1
    np.testing.assert_allclose(inside, wanted, atol=1e-5)


def test_padding_has_no_influence():
    """The longer row has more states than Whisper has positions."""
    encoder = SpeechEncoder(SPEECH, WIDTH, 5)
    lengths = jnp.array([37, 50])
    features = jnp.asarray(np.random.default_rng(1).uniform(-3, 1, (2, 61, 80)), jnp.float32)
    variables = random_parameters(encoder, features, lengths, None, train=False)

    @jax.jit
    def encode(features, lengths):
        return encoder.apply(variables, features, lengths, None, train=False)

    together = encode(features.at[:, 50:].set(9.0).at[0, 37:].set(-7.0), lengths)
    assert together.lengths.tolist() == [10, 13]
    assert together.states.shape == (2, 16, 16)
    alone = encode(features[:1, :37], lengths[:1]).states[0]
    np.testing.assert_allclose(together.states[0, : len(alone)], alone, rtol=1e-5, atol=2e-5)
    for row, count in enumerate(together.lengths):
        assert not np.any(together.states[row, count:])
    changed = encode(features.at[1, 49].add(1.0), lengths).states
    assert np.abs(changed - together.states)[1, :13].max() > 1e-3  # a real frame has


def test_the_features_are_whispers_log_mel():
    """All frames within the recording; a prefix has the same ones, so that streams agree."""
    sound = spoken(1.0)
    compute = jax.jit(extract, static_argnums=1)
    features = compute(sound[None], WHISPER_MEL)
    frames = frame_count(len(sound), WHISPER_MEL.filterbank)
    assert features.shape == (1, frames, 80) and frames == 99
    wanted = jax.jit(log_mel, static_argnums=1)(sound[None], 80)[:, :frames]
    floored = whisper_floor(features, jnp.array([frames]))
    assert np.any(floored != features)
    np.testing.assert_allclose(floored, wanted, atol=1e-5)
    for size in (5_000, 199):
        early = compute(sound[None, :size], WHISPER_MEL)
        assert early.shape[1] == frame_count(size, WHISPER_MEL.filterbank)
        np.testing.assert_allclose(early, features[:, : early.shape[1]], atol=1e-5)


@pytest.mark.parametrize("kind", ["whisper", "streaming_whisper"])
def test_settings_that_do_not_go_together_are_refused(tmp_path, kind):
    with pytest.raises(ConfigError, match="pitch"):
        Features(filterbank=Filterbank(kind="whisper"), pitch=True)
    with pytest.raises(ConfigError, match="layers is 0"):
        SpeechConfig(layers=0, shared=0)
    base, speech = experiment(tmp_path, tmp_path), dataclasses.replace(SPEECH, kind=kind)
    with pytest.raises(ConfigError, match=r"filterbank\.kind 'kaldi'.*'whisper'"):
        dataclasses.replace(base, model=dataclasses.replace(base.model, speech=speech))
    with pytest.raises(ConfigError, match="streaming_whisper"):
        ModelConfig(
            speech=dataclasses.replace(SPEECH, kind="whisper"),
            text=None,
            decoder="caat",
            monotonic=Monotonic(policy="offline"),
        )


def test_files_of_other_models_are_refused(file):
    def donor(path: Path, **changes):
        own = by_path(shapes(small.translator(speech=SPEECH, text=None, **changes))[0])
        return open_donor(InitFrom(run=Path(f"whisper:{path}")), None, own)  # pyright: ignore

    given = donor(file)()
    assert len(by_path(given)) == 22  # 4 of convolutions, positions, 15 of layers, 2 of a norm
    whole = file.read_bytes()
    lacking = {n: t for n, t in tensors().items() if n != "encoder.blocks.1.attn.out.bias"}
    file.write_bytes(ggml_bytes(lacking))
    with pytest.raises(WeightsError, match=r"missing.*attn\.out\.bias"):
        donor(file)
    file.write_bytes(ggml_bytes(tensors(audio_layers=3)))
    with pytest.raises(ConfigError, match=r"speech\.size"):
        donor(file)
    file.write_bytes(whole)
    with pytest.raises(ConfigError, match="speech/whisper"):
        own = by_path(shapes(small.translator())[0])
        open_donor(InitFrom(run=Path(f"whisper:{file}")), None, own)  # pyright: ignore
    with pytest.raises(ConfigError, match="teacher"):
        InitFrom(run=Path(f"whisper:{file}"), fills="teacher")


def test_a_factor_scales_the_update():
    params = {"speech": {"whisper": {"a": jnp.ones(3)}, "norm": jnp.ones(3)}, "text": jnp.ones(3)}
    gradient = jax.tree.map(lambda x: 0.3 * x, params)
    factors = (RateFactor(part="speech/whisper", factor=0.03), RateFactor(part="speech"))
    for method in ("adam", "sgd"):
        decay = 0.01 if method == "adam" else 0.0
        plain = Optimiser(learning_rate=0.1, warmup=0, method=method, weight_decay=decay)
        slower = dataclasses.replace(plain, factors=factors)
        updates = [
            one.build().update(gradient, one.build().init(params), params)[0]
            for one in (plain, slower)
        ]
        full, scaled = (by_path(cast(Any, each)) for each in updates)
        exact = np.asarray(full["speech/whisper/a"]) * np.float32(0.03)
        np.testing.assert_array_equal(scaled["speech/whisper/a"], exact)
        assert not np.any(scaled["speech/norm"]) and np.all(full["speech/norm"])
        np.testing.assert_array_equal(scaled["text"], full["text"])


def whisper_experiment(corpus, run, *, speech=SPEECH, **changes):
    """The joint translator of the other tests on another encoder."""
    base = experiment(corpus, run)
    given = {"data": dataclasses.replace(base.data, features=WHISPER_MEL)} | changes
    model = dataclasses.replace(base.model, speech=speech)
    return dataclasses.replace(base, model=model, **given)


def test_a_factor_of_an_unknown_part_is_refused(tmp_path):
    given = whisper_experiment(tmp_path, tmp_path)
    optimiser = Optimiser(factors=(RateFactor(part="speech/wisper"),))
    training = dataclasses.replace(given.training, optimiser=optimiser)
    model = dataclasses.replace(given.model, source_vocabulary=9, target_vocabulary=9)
    with pytest.raises(ConfigError, match="speech/wisper"):
        check_factors(dataclasses.replace(given, training=training, model=model))


@pytest.mark.slow
def test_an_experiment_trains_evaluates_and_streams(corpus, file, tmp_path):
    """It begins with a file, and words of streams are those of the evaluation."""
    run = tmp_path / "run"
    speech = dataclasses.replace(CHUNKED, shared=0)
    given = whisper_experiment(corpus, run, speech=speech, init_from=f"whisper:{file}")
    factors = (RateFactor(part="speech/whisper", factor=0.1),)
    optimiser = dataclasses.replace(given.training.optimiser, factors=factors)
    objective = Objective(terms=small.ALONE.terms())
    changes = {"optimiser": optimiser, "objective": objective, "updates": 2}
    training = dataclasses.replace(given.training, **changes)
    model = dataclasses.replace(given.model, text=None)
    params = train(dataclasses.replace(given, model=model, training=training)).params
    before = by_path(load_whisper_encoder(file)["encoder"])
    for path, value in by_path(jax.device_get(params)["speech"]["whisper"]).items():
        assert 0 < np.abs(value - before[path]).max() < 2e-4, path
    chosen = Evaluation(run=run, split="test", frames=8_000)
    evaluate(chosen)
    loaded, records = simuljax.load(run), read_records(chosen.folder)
    assert len(records) > 3 and any(record.prediction for record in records)
    sounds = [open_corpus(corpus)["test"].source[at]["audio"] for at in range(len(records))]
    written = loaded.stream_all(sounds, streams=3)
    for words, record in zip(written, records, strict=True):
        assert " ".join(word.text for word in words) == record.prediction
