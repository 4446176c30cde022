"""Filterbanks and pitch together."""

import json

import jax
import numpy as np
import pytest

from simuljax.audio import (
    FeatureRecord,
    Features,
    Filterbank,
    Moments,
    Statistics,
    extract,
    init_stream,
    load_features,
    normalise,
    pitch,
    save_features,
    stream_step,
)
from simuljax.audio.features import FeatureError
from simuljax.audio.filterbank import FIXED
from simuljax.config.fields import to_json
from tests.audio.signals import babble

PLAIN, FULL = Features(), Features(pitch=True)
SAMPLES = babble(8_000)
whole = jax.jit(extract, static_argnames="config")


def test_filterbanks_first_then_pitch():
    both = np.asarray(whole(SAMPLES, FULL))
    assert both.shape == (48, FULL.dims) == (48, 83)
    tones = jax.jit(pitch.pitch)(SAMPLES)
    np.testing.assert_allclose(both[:, 80:], tones, atol=1e-3)
    np.testing.assert_allclose(both[:, :80], whole(SAMPLES, PLAIN), atol=1e-5)
    assert PLAIN.dims == 80


@pytest.mark.slow
def test_a_batch_of_streams():
    lengths = np.array([[1_500, 700, 0], [20, 1_500, 1_500]])
    voices = np.stack([babble(8_000, seed=seed) for seed in range(3)])
    step = jax.jit(lambda state, x, n: stream_step(state, x, n, config=FULL))
    state, fed, out = init_stream(FULL, (3,)), np.zeros(3, int), [[], [], []]
    for row in lengths:
        chunk = np.stack([v[h : h + 1_500] for v, h in zip(voices, fed, strict=True)])
        state, values, count = step(state, chunk, row)
        values, count = np.asarray(values), np.asarray(count)
        fed += row
        for b in range(3):
            out[b].append(values[b, : count[b]])
    for b in range(3):
        got = np.concatenate(out[b])
        assert len(got) == 1 + (fed[b] - 400) // 160
        np.testing.assert_allclose(got, whole(voices[b], FULL)[: len(got)], atol=1e-3)


# Statistics against NumPy's, and the file that ties them to the features they are of.


CONFIG = Features(filterbank=Filterbank(bins=4))
BANK = to_json(CONFIG)
RANDOM = np.random.default_rng(0)
FRAMES = RANDOM.standard_normal((5_000, 4), np.float32)
FRAMES = FRAMES * np.array([2, 0.1, 30, 1], np.float32) + np.array([10, -5, 0, 3], np.float32)


def moments(frames=FRAMES):
    return Moments.empty(frames.shape[-1]).add(frames)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "features.json"
    save_features(path, FeatureRecord(features=CONFIG, statistics=moments().statistics()))
    return path


def test_mean_and_deviation_in_any_order():
    merged = Moments.empty(4)
    for part in reversed(np.array_split(FRAMES, 7)):
        merged = merged.add(part)
    for statistics in (moments().statistics(), merged.statistics()):
        assert statistics.frames == 5_000
        np.testing.assert_allclose(statistics.mean, FRAMES.astype(np.float64).mean(0), rtol=1e-6)
        np.testing.assert_allclose(statistics.std, FRAMES.astype(np.float64).std(0), rtol=1e-6)
    values = jax.jit(normalise)(FRAMES[None], moments().statistics())
    np.testing.assert_allclose(values[0].mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(values[0].std(0), 1, atol=1e-4)


def test_a_dimension_that_does_not_vary():
    frames = FRAMES.copy()
    frames[:, 1] = -15.942385  # the floor of a filterbank
    statistics = moments(frames).statistics()
    assert statistics.std[1] == 1
    np.testing.assert_allclose(normalise(frames, statistics)[:, 1], 0, atol=1e-5)


def test_senseless_frames_are_refused():
    with pytest.raises(ValueError, match="no frames"):
        Moments.empty(4).statistics()
    with pytest.raises(ValueError):
        Moments.empty(3).add(FRAMES)
    with pytest.raises(ValueError, match="NaN"):
        Moments.empty(4).add(np.full((1, 4), np.nan))
    with pytest.raises(ValueError, match="of 4 dimensions"):
        normalise(np.zeros((2, 3), np.float32), moments().statistics())


def test_saved_and_loaded(saved):
    record, statistics = load_features(saved), moments().statistics()
    assert record.features == CONFIG
    assert record.statistics.frames == 5_000
    np.testing.assert_array_equal(record.statistics.mean, statistics.mean)
    np.testing.assert_array_equal(record.statistics.std, statistics.std)
    assert record.statistics.mean.dtype == np.float32
    assert [file.name for file in saved.parent.iterdir()] == ["features.json"]


def test_a_file_of_an_earlier_version_has_kaldis_filterbanks(saved):
    stored = json.loads(saved.read_text())
    bank = stored["features"]["filterbank"]
    assert bank.pop("kind") == "kaldi"
    bank |= FIXED
    saved.write_text(json.dumps(stored))
    assert load_features(saved).features == CONFIG
    bank["preemphasis"] = 0.5
    saved.write_text(json.dumps(stored))
    with pytest.raises(FeatureError, match="there is no 'preemphasis'"):
        load_features(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"statistics": None}, "damaged"),
        ({"features": {**BANK, "tone": True}}, "there is no 'tone'"),
        ({"features": {**BANK, "filterbank": 80}}, "filterbank is 80"),
        ({"features": {**BANK, "filterbank": {"rate": None}}}, "there is no 'rate'"),
        ({"statistics": {"frames": 1, "mean": [0.0] * 4}}, "no entry 'std'"),
        ({"statistics": {"frames": 1, "mean": [0.0] * 4, "std": [0.0] * 4}}, "std positive"),
        ({"statistics": {"frames": 1, "mean": [0.0] * 3, "std": [1.0] * 3}}, "3 means"),
        ({"statistics": {"frames": 1, "mean": [float("nan")] * 4, "std": [1.0] * 4}}, "finite"),
    ],
)
def test_a_malformed_file_is_refused(saved, change, message):
    saved.write_text(json.dumps({**json.loads(saved.read_text()), **change}))
    with pytest.raises(FeatureError, match=message):
        load_features(saved)
    saved.unlink()
    with pytest.raises(FeatureError, match=r"features\.json is not there"):
        load_features(saved)


def test_statistics_of_another_width_are_not_saved(tmp_path):
    narrow = Statistics(mean=np.zeros(3), std=np.ones(3), frames=1)
    with pytest.raises(FeatureError, match="do not go with features of 4"):
        save_features(tmp_path / "a.json", FeatureRecord(features=CONFIG, statistics=narrow))
