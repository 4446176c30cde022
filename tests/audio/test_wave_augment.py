"""Every effect does what its numbers say, to real samples only; what is off changes no bit."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.audio import RATE, Features, WaveAugment
from simuljax.audio.features import features_of
from simuljax.audio.wave_augment import (
    EFFECTS,
    coloured_noise,
    convolve,
    mu_law,
    room_responses,
    wave_augment,
)
from simuljax.config.training import Objective
from simuljax.train.forward import speech_features
from tests.train import small

augment = jax.jit(wave_augment, static_argnames="config")
KEY = jax.random.key(0)
LENGTHS = np.array([8000, 6001, 4000, 0], np.int32)
REAL = np.arange(8000) < LENGTHS[:, None]
AUDIO = np.where(REAL, np.random.default_rng(0).normal(0, 0.05, REAL.shape), 0).astype(np.float32)
PCM = np.round(AUDIO * 32768).astype(np.int16)
ALL = dataclasses.replace(WaveAugment(), **dict.fromkeys(EFFECTS, 1.0))


def power(x: np.ndarray) -> np.ndarray:
    """The mean square of the real samples of the three rows that have any."""
    rows = [row[:n] for row, n in zip(np.asarray(x, np.float64), LENGTHS[:3], strict=False)]
    return np.array([np.mean(row**2) for row in rows])


@pytest.mark.parametrize("kind", ["noise", "babble"])
def test_the_ratio_asked_for_is_the_ratio_obtained(kind):
    config = WaveAugment(**{kind: 1.0, f"{kind}_db": (7.0, 7.0)})
    added = np.asarray(augment(KEY, AUDIO, LENGTHS, config)) - AUDIO
    np.testing.assert_allclose(10 * np.log10(power(AUDIO) / power(added)), 7, atol=0.01)
    assert not added[3].any()


def test_babble_is_of_the_other_rows_and_fills_the_example():
    tones = np.array([500.0, 1000.0, 2000.0])
    speech = 0.1 * np.sin(2 * np.pi * tones[:, None] * np.arange(8000) / RATE)
    speech = np.where(REAL[:3], speech, 0).astype(np.float32)
    config = WaveAugment(babble=1.0, talkers=1, babble_db=(0.0, 0.0))
    added = np.asarray(augment(KEY, speech, LENGTHS[:3], config)) - speech
    for row, (sound, n) in enumerate(zip(added, LENGTHS[:3], strict=True)):
        found = np.abs(np.fft.rfft(sound[:n])).argmax() * RATE / n
        assert min(abs(found - tone) for k, tone in enumerate(tones) if k != row) < 5
        assert (sound[n - 400 : n] ** 2).mean() > 0.5 * (sound[:n] ** 2).mean()
    alone = augment(KEY, speech[:1], LENGTHS[:1], config)
    np.testing.assert_array_equal(alone, speech[:1])


@pytest.mark.parametrize("rt60", [0.15, 0.6])
def test_rooms_decay_and_mix_as_asked(rt60):
    """Schroeder's backward integral falls by 60 dB in RT60: measured from -5 to -35 dB."""
    config = WaveAugment(rt60_s=(rt60, rt60), direct_db=(6.0, 6.0))
    for response in np.asarray(room_responses(KEY, 4, config), np.float64):
        tail = response[1:]
        np.testing.assert_allclose(10 * np.log10(response[0] ** 2 / (tail**2).sum()), 6, atol=0.01)
        decay = 10 * np.log10(np.cumsum(tail[::-1] ** 2)[::-1] / (tail**2).sum())
        part = (decay < -5) & (decay > -35)
        slope = np.polyfit(np.flatnonzero(part) / RATE, decay[part], 1)[0]
        np.testing.assert_allclose(-60 / slope, rt60, rtol=0.1)


def test_reverberation_is_convolution_at_the_same_power():
    config = WaveAugment(reverb=1.0, rt60_s=(0.05, 0.05))
    wet = np.asarray(augment(KEY, AUDIO, LENGTHS, config))
    np.testing.assert_allclose(power(wet), power(AUDIO), rtol=1e-4)
    assert np.abs(wet - AUDIO).max() > 0.01
    taps = np.random.default_rng(1).normal(size=(3, 100))
    wanted = [np.convolve(x, h)[:8000] for x, h in zip(AUDIO[:3], taps, strict=True)]
    np.testing.assert_allclose(convolve(jnp.asarray(AUDIO[:3]), taps), wanted, atol=1e-5)


def test_noise_has_its_colour():
    for colour in (0.0, 2.0):
        sound = coloured_noise(KEY, 8, WaveAugment(colour=(colour, colour)))
        spectrum = (np.abs(np.fft.rfft(np.asarray(sound, np.float64))) ** 2).mean(0)
        hertz = np.fft.rfftfreq(sound.shape[1], 1 / RATE)
        low, high = (spectrum[(hertz > f) & (hertz < 1.1 * f)].mean() for f in (500, 5000))
        np.testing.assert_allclose(np.log10(low / high), colour, atol=0.05)


def test_a_telephone_passes_its_band_alone():
    sound = AUDIO[:1]
    line = np.asarray(augment(KEY, sound, LENGTHS[:1], WaveAugment(telephone=1.0)))
    hertz = np.fft.rfftfreq(8000, 1 / RATE)
    before, after = (np.abs(np.fft.rfft(x[0].astype(np.float64))) ** 2 for x in (sound, line))
    inside, outside = (hertz > 400) & (hertz < 3300), (hertz < 200) | (hertz > 3500)
    assert abs(10 * np.log10(after[inside].sum() / before[inside].sum())) < 0.2
    assert after[outside].sum() < 1e-3 * after[inside].sum()  # cut ends of the example included
    correlation = np.correlate(line[0], sound[0], "full")
    assert correlation.argmax() == 7999  # no delay


def test_mu_law_has_255_levels_and_38_db():
    x = np.linspace(-1, 1, 20_001, dtype=np.float32)
    y = np.asarray(mu_law(jnp.asarray(x)))
    assert len(np.unique(y)) == 255 and y[10_000] == 0
    np.testing.assert_allclose(y, -y[::-1])
    assert 36 < 10 * np.log10((x**2).mean() / ((y - x) ** 2).mean()) < 40


def test_clipping_and_level():
    config = WaveAugment(clipping=1.0, clip_at=(0.5, 0.5), level=1.0, level_db=(-6.0, -6.0))
    wanted = np.clip(AUDIO, *(s * 0.5 * np.abs(AUDIO).max(1, keepdims=True) for s in (-1, 1)))
    np.testing.assert_allclose(
        augment(KEY, AUDIO, LENGTHS, config), wanted * 10 ** (-6 / 20), rtol=1e-5
    )


@pytest.mark.parametrize("floor", [-70.0, -35.0])
def test_silence_has_the_floor_of_the_recorder(floor):
    config = WaveAugment(floor=1.0, floor_db=(floor, floor))
    for sound in (np.zeros_like(AUDIO), AUDIO):
        added = np.asarray(augment(KEY, sound, LENGTHS, config)) - sound
        np.testing.assert_allclose(10 * np.log10(power(added)), floor, atol=0.05)
        assert not added[~REAL].any()
    silent = []
    for seed in range(8):
        sound = np.asarray(augment(jax.random.key(seed), PCM * 0, LENGTHS, WaveAugment.typical()))
        levels = 10 * np.log10(np.maximum(power(sound / 32768), 1e-20))
        silent += [*(levels < -190)]
        heard = levels[levels >= -190]
        assert (heard > -71).all() and (heard < -34).all()
    assert 0.3 < np.mean(silent) < 0.7


def test_the_floor_leaves_the_draws_of_other_effects():
    """Runs of earlier versions had six effects: their keys must stay what they were."""
    for make in (KEY, jax.random.key(3, impl="rbg")):
        six, now = (jax.random.key_data(jax.random.split(make, n)) for n in (6, len(EFFECTS)))
        np.testing.assert_array_equal(now[:6], six)


def test_louder_than_full_scale_is_scaled_and_not_clipped():
    config = WaveAugment(level=1.0, level_db=(40.0, 40.0))
    loud = np.asarray(augment(KEY, AUDIO, LENGTHS, config))[:3]
    np.testing.assert_allclose(np.abs(loud).max(1), 1, rtol=1e-6)
    wanted = AUDIO[:3] / np.abs(AUDIO[:3]).max(1, keepdims=True)
    np.testing.assert_allclose(loud, wanted, rtol=1e-5)


@pytest.mark.slow
def test_padding_stays_zero_and_has_no_influence():
    changed = np.asarray(augment(KEY, PCM, LENGTHS, ALL))
    assert changed.dtype == np.int16 and (changed[:3] != PCM[:3]).mean() > 0.5
    assert not changed[~REAL].any()
    longer = np.asarray(augment(KEY, np.pad(PCM, [(0, 0), (0, 9000)]), LENGTHS, ALL))
    assert not longer[:, 8000:].any()
    difference = np.abs(longer[:, :8000].astype(int) - changed)
    assert difference.max() <= 0.01 * np.abs(changed.astype(int)).max()  # a step of mu-law's
    assert (difference > 1).mean() < 1e-3
    loud = np.where(REAL, PCM, 30_000).astype(np.int16)
    np.testing.assert_array_equal(augment(KEY, loud, LENGTHS, ALL), changed)


def test_one_key_one_outcome_and_clean_examples_keep_their_bits():
    rows, lengths = np.tile(PCM[:1, :1000], (64, 1)), np.full(64, 1000)
    half = WaveAugment(noise=0.5)
    first = np.asarray(augment(KEY, rows, lengths, half))
    np.testing.assert_array_equal(augment(KEY, rows, lengths, half), first)
    changed = (first != rows).any(1)
    assert changed.sum() == 32
    assert len({row.tobytes() for row in first[changed]}) == changed.sum()
    assert (np.asarray(augment(jax.random.key(1), rows, lengths, half)) != first).any()


def test_every_row_has_an_effect_with_its_probability():
    rows, lengths, config = PCM[:1].repeat(5, 0)[:, :50], np.full(5, 50), WaveAugment(level=0.3)
    seen = [np.asarray(augment(jax.random.key(s), rows, lengths, config)) for s in range(300)]
    often = (np.array(seen) != rows).any(-1).mean(0)
    assert (np.abs(often - 0.3) < 0.09).all(), often  # standard error .026


def test_only_training_with_an_effect_has_other_features():
    batch = jax.tree.map(jnp.asarray, small.batch())
    features = jax.jit(speech_features, static_argnames="objective")
    plain, noisy = Objective(), Objective(wave_augment=WaveAugment(noise=1.0))

    @jax.jit
    def clean(audio):
        return features_of(audio, Features(), small.HEARD.statistics)

    wanted = np.asarray(clean(batch.audio))
    for objective, key in ((plain, KEY), (plain, None), (noisy, None)):
        found, _ = features(batch, small.HEARD, objective=objective, key=key)
        np.testing.assert_array_equal(found, wanted)
    found, _ = features(batch, small.HEARD, objective=noisy, key=KEY)
    assert np.abs(np.asarray(found) - wanted).max() > 0.01


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"noise_db": (30.0, 0.0)}, "noise_db"), ({"band_hz": (300.0, 300.0)}, "nothing passes")],
)
def test_senseless_configs_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        WaveAugment(**wrong)
