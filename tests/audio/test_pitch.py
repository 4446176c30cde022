"""Pitch of tones whose pitch is known, of noise that has none, and in pieces as in one."""

from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.audio import frame_count
from simuljax.audio import pitch as module
from simuljax.audio.filterbank import Filterbank, split, to_int16_scale
from simuljax.audio.pitch import FRAMING, init_stream, track, voicing_probability
from tests.audio.signals import Stream, babble, cut, hiss, tone
from tests.oracles import pitch as oracle

SECONDS = np.arange(24_000) / 16_000
GLIDES = {
    "up": 80 * (300 / 80) ** (SECONDS / 1.5),
    "down": 300 * (80 / 300) ** (SECONDS / 1.5),
    "80 Hz": np.full(24_000, 80.0),
    "300 Hz": np.full(24_000, 300.0),
    "vibrato": 150 * (1 + 0.1 * np.sin(2 * np.pi * 5 * SECONDS)),
}
Found = namedtuple("Found", ["log_hz", "correlation"])
compute = jax.jit(module.pitch)
probability = jax.jit(voicing_probability)


@jax.jit
def follow(samples):
    frames = split(to_int16_scale(samples), FRAMING)
    return Found(*track(init_stream(), frames, jnp.array(len(frames)))[1:])


def true_pitch(hertz, frames):
    """In the middle of what a frame compares: its last 25 ms, and those one period earlier."""
    ends = np.arange(frames) * 160 + 400
    periods = 16_000 / hertz[ends - 1]
    return hertz[np.maximum(0, ends - 200 - periods / 2).astype(int)]


@pytest.mark.parametrize("name", GLIDES)
@pytest.mark.parametrize("loud", [60, 6000])
def test_known_pitches(name, loud):
    found = follow(tone(GLIDES[name], loud=loud, noise=loud / 100))
    voiced = np.asarray(probability(found.correlation)) > 0.5
    voiced[:4] = False  # the longest lag reaches back before the recording
    assert voiced[4:].mean() > 0.98
    expected = true_pitch(GLIDES[name], len(voiced))
    error = np.abs(np.exp(found.log_hz) / expected - 1)
    assert error[voiced].max() < 0.03
    wrong = np.abs(np.exp(found.log_hz) / (expected * 1.05) - 1)
    assert wrong[voiced].max() > 0.03


def test_noise_has_no_voice():
    noise, voice = (compute(x)[10:, 0] for x in (hiss(24_000), tone(GLIDES["up"])))
    assert noise.mean() > -0.2 > -0.8 > voice.mean()
    chances = [probability(follow(x).correlation)[10:] for x in (hiss(24_000), tone(GLIDES["up"]))]
    assert chances[0].mean() < 0.05
    assert chances[1].mean() > 0.95


def test_agrees_with_the_equations():
    samples = babble(24_000)
    found, features = follow(samples), np.asarray(compute(samples))
    expected = oracle.track(samples[:4_000])
    frames = len(expected)
    np.testing.assert_allclose(found.log_hz[:frames], expected[:, 0], atol=1e-3)
    np.testing.assert_allclose(found.correlation[:frames], expected[:, 1], atol=1e-4)
    both = np.stack([found.log_hz, found.correlation], 1).astype(np.float64)
    np.testing.assert_allclose(features, oracle.features(both), atol=2e-3)


def test_no_frame_sees_what_comes_later():
    samples, other = babble(24_000), hiss(24_000, loud=5000)
    other[:9_000] = samples[:9_000]
    same = frame_count(9_000, Filterbank())
    whole, changed = np.asarray(compute(samples)), np.asarray(compute(other))
    np.testing.assert_allclose(changed[:same], whole[:same], atol=1e-5)
    assert np.abs(changed[same:] - whole[same:]).max() > 0.1


def test_padding_and_batch_change_nothing():
    batch = np.stack([babble(24_000, seed=seed) for seed in range(2)])
    together = np.asarray(compute(batch))
    for row, samples in zip(together, batch, strict=True):
        np.testing.assert_allclose(row, compute(samples), atol=1e-3)


def test_a_stream_equals_the_whole_however_it_is_cut(stream):
    samples = babble(24_000, seed=1)
    features, whole = stream.run(cut(samples, 1, 3_000)), np.asarray(compute(samples))
    assert features.shape == whole.shape
    np.testing.assert_allclose(features, whole, atol=1e-3)
    assert stream.compilations == 1


def test_a_stream_that_forgets_is_noticed(stream):
    samples = babble(24_000)
    first = stream.run([samples[:3_000]])
    stream.state = stream.start
    rest = [stream.feed(piece) for piece in cut(samples[len(first) * 160 : 12_000])]
    features = np.concatenate([first, *rest])
    assert np.abs(features - np.asarray(compute(samples))[: len(features)]).max() > 0.1


@pytest.fixture(scope="module")
def stream():
    return Stream(module.init_stream(), module.stream_step, 3_000)


def test_silence_is_finite_and_less_than_a_frame_has_no_features():
    assert compute(hiss(100)).shape == (0, 3)
    silence = np.zeros(24_000, np.int16)
    assert np.isfinite(compute(silence)).all()
    assert probability(follow(silence).correlation).max() < 0.01
