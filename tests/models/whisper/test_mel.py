"""The front end against a slow reading of its equations, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.models.whisper.model import log_mel, mel_filters


def slow_log_mel(x, mels):
    """Frame by frame, with the Fourier sum written out."""
    x = np.concatenate([x[200:0:-1], x, x[-2:-202:-1]])
    n, k = np.arange(400), np.arange(201)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * n / 400)
    fourier = np.exp(-2j * np.pi * np.outer(k, n) / 400)
    frames = [fourier @ (window * x[f : f + 400]) for f in range(0, len(x) - 400, 160)]
    decades = np.log10(np.maximum(np.abs(frames) ** 2 @ slow_filters(mels).T, 1e-10))
    return (np.maximum(decades, decades.max() - 8) + 4) / 4


def slow_filters(mels):
    """Triangles over frequencies; 15 mel are 1 kHz, and 27 more a factor of 6.4."""
    top = 15 + 27 * np.log(8) / np.log(6.4)
    scale = np.linspace(0, top, mels + 2)
    corners = [m * 200 / 3 if m < 15 else 1000 * 6.4 ** ((m - 15) / 27) for m in scale]
    weights = np.zeros((mels, 201))
    for b in range(mels):
        left, centre, right = corners[b : b + 3]
        for k in range(201):
            hertz = k * 40
            up, down = (hertz - left) / (centre - left), (right - hertz) / (right - centre)
            weights[b, k] = max(0, min(up, down)) * 2 / (right - left)
    return weights


compute = jax.jit(log_mel, static_argnums=1)
SOUND = 0.1 * np.random.default_rng(0).normal(size=16_000) * np.linspace(0, 1, 16_000)


@pytest.mark.parametrize("mels", [80, 128])
def test_agrees_with_the_equations(mels):
    np.testing.assert_allclose(mel_filters(mels), slow_filters(mels), atol=1e-7)
    mel = compute(jnp.asarray(SOUND[None], jnp.float32), mels)
    assert mel.shape == (1, 100, mels)
    np.testing.assert_allclose(mel[0], slow_log_mel(SOUND, mels), atol=1e-4)


def test_silence_after_it_changes_nothing_before():
    padded = jnp.asarray(np.pad(SOUND, (0, 16_000))[None], jnp.float32)
    alone = compute(jnp.asarray(SOUND[None], jnp.float32), 80)
    both = compute(padded, 80)
    np.testing.assert_allclose(both[:, :98], alone[:, :98], atol=1e-5)
    assert np.ptp(both[0, 110:]) == 0


def test_integers_and_floats_are_the_same_sound():
    whole = np.round(SOUND * 32768).astype(np.int16)[None]
    halves = compute(jnp.asarray(whole / 32768, jnp.float32), 80)
    np.testing.assert_array_equal(compute(jnp.asarray(whole), 80), halves)


def test_a_length_between_frames_is_refused():
    with pytest.raises(ValueError, match="multiple of 160"):
        log_mel(jnp.zeros((1, 16_001)), 80)
