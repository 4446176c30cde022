"""Statistics against NumPy's, and the file that ties them to the features they are of."""

import json

import jax
import numpy as np
import pytest

from simuljax.audio import (
    FeatureError,
    FeatureRecord,
    Features,
    Filterbank,
    Moments,
    Statistics,
    load_features,
    normalise,
    save_features,
)
from simuljax.config.json import to_json

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


def test_mean_and_deviation():
    statistics = moments().statistics()
    assert statistics.frames == 5_000
    np.testing.assert_allclose(statistics.mean, FRAMES.astype(np.float64).mean(0), rtol=1e-6)
    np.testing.assert_allclose(statistics.std, FRAMES.astype(np.float64).std(0), rtol=1e-6)


def test_the_order_does_not_matter():
    merged = Moments.empty(4)
    for part in reversed(np.array_split(FRAMES, 7)):
        merged = merged.add(part)
    assert merged.count == 5_000
    np.testing.assert_allclose(merged.statistics().mean, moments().statistics().mean, rtol=1e-6)
    np.testing.assert_allclose(merged.statistics().std, moments().statistics().std, rtol=1e-6)


def test_normalised_features_are_standard():
    values = jax.jit(normalise)(FRAMES[None], moments().statistics())
    np.testing.assert_allclose(values[0].mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(values[0].std(0), 1, atol=1e-4)
    assert values.dtype == np.float32


def test_a_dimension_that_does_not_vary():
    frames = FRAMES.copy()
    frames[:, 1] = -15.942385  # the floor of a filterbank
    statistics = moments(frames).statistics()
    assert statistics.std[1] == 1
    np.testing.assert_allclose(normalise(frames, statistics)[:, 1], 0, atol=1e-5)


def test_senseless_frames_are_refused():
    with pytest.raises(ValueError, match="no frames"):
        Moments.empty(4).statistics()
    with pytest.raises(ValueError, match=r"needs \[..., 3\]"):
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


def test_a_truncated_file_is_refused(saved):
    text = saved.read_text()
    for kept in (0, 1, len(text) // 2, len(text) - 3):
        saved.write_text(text[:kept])
        with pytest.raises(FeatureError, match=r"features\.json is damaged"):
            load_features(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"statistics": None}, "damaged"),
        ({"features": None}, "damaged"),
        ({"features": {**BANK, "tone": True}}, "there is no 'tone'"),
        ({"features": {**BANK, "pitch": "yes"}}, "pitch is 'yes'"),
        ({"features": {**BANK, "filterbank": {"bins": 4}}}, "not all of"),
        ({"features": {**BANK, "filterbank": 80}}, "filterbank is 80"),
        ({"features": {**BANK, "filterbank": {"rate": None}}}, "rate is None"),
        ({"statistics": {"frames": 1, "mean": [0.0] * 4}}, "no entry 'std'"),
        ({"statistics": {"frames": 1, "mean": [0.0] * 4, "std": [0.0] * 4}}, "std positive"),
        ({"statistics": {"frames": 1, "mean": [0.0] * 3, "std": [1.0] * 3}}, "3 means"),
        ({"statistics": {"frames": 1, "mean": ["a"] * 4, "std": [1.0] * 4}}, "damaged"),
        ({"statistics": {"frames": 1, "mean": [float("nan")] * 4, "std": [1.0] * 4}}, "finite"),
    ],
)
def test_a_malformed_file_is_refused(saved, change, message):
    saved.write_text(json.dumps({**json.loads(saved.read_text()), **change}))
    with pytest.raises(FeatureError, match=message):
        load_features(saved)


def test_no_record_and_a_missing_file_are_refused(saved):
    saved.write_text("[]")
    with pytest.raises(FeatureError, match="damaged"):
        load_features(saved)
    saved.unlink()
    with pytest.raises(FeatureError, match=r"features\.json is not there"):
        load_features(saved)


def test_statistics_of_another_width_are_not_saved(tmp_path):
    narrow = Statistics(mean=np.zeros(3), std=np.ones(3), frames=1)
    with pytest.raises(FeatureError, match="do not go with features of 4"):
        save_features(tmp_path / "a.json", FeatureRecord(features=CONFIG, statistics=narrow))
