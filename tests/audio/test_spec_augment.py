"""Where masks lie, how wide they get, and what they leave alone."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.audio import SpecAugment
from simuljax.audio.spec_augment import spec_augment

DOUBLE = SpecAugment()
augment = jax.jit(spec_augment, static_argnames="config")
FEATURES = jnp.asarray(np.random.default_rng(0).normal(3, 1, (64, 120, 20)), jnp.float32)
LENGTHS = jnp.asarray(np.random.default_rng(1).integers(1, 121, 64))
KEY = jax.random.key(0)
ONLY_TIME = SpecAugment(frequency_masks=0, time_masks=1, time_width=30)
ONLY_FREQUENCY = SpecAugment(frequency_masks=1, frequency_width=7, time_masks=0)


def changed(config, key=KEY, features=FEATURES, lengths=LENGTHS) -> np.ndarray:
    return np.asarray(augment(key, features, lengths, config) != features)


@pytest.mark.parametrize(
    ("config", "widest", "axis"), [(ONLY_TIME, 30, 0), (ONLY_FREQUENCY, 7, 1)], ids=["time", "freq"]
)
def test_masks_are_stripes_of_every_width_anywhere(config, widest, axis):
    widths, touched = [], np.zeros(FEATURES.shape[1 + axis], int)
    for seed in range(8):
        rows = changed(config, jax.random.key(seed))
        for row, length in zip(rows, LENGTHS.tolist(), strict=True):
            assert not row[length:].any()
            real = row[:length]
            stripe = real.any(1 - axis)
            assert (stripe == real.all(1 - axis)).all()  # the other axis is masked whole
            masked = np.flatnonzero(stripe)
            assert len(masked) <= min(widest, len(stripe))
            assert len(masked) == 0 or masked[-1] - masked[0] + 1 == len(masked)
            if len(stripe) > widest:
                widths.append(len(masked))
            touched[masked] += 1
    assert len(set(widths)) > 0.85 * widest
    assert abs(np.mean(widths) - widest / 2) < 0.06 * widest  # uniform from 0
    assert touched[: len(touched) * 5 // 6].all()  # few examples are as long as the batch


def test_a_time_mask_is_at_most_a_fraction_of_the_example():
    config = dataclasses.replace(ONLY_TIME, time_fraction=0.2, time_width=100)
    widths = changed(config).any(-1).sum(-1)
    assert (widths <= 0.2 * LENGTHS).all()
    assert widths.max() > 10


def test_padding_is_untouched_and_uncounted():
    real = (np.arange(120) < np.asarray(LENGTHS)[:, None])[..., None]
    loud = jnp.where(real, FEATURES, 1e6)
    quiet, louder = (augment(KEY, x, LENGTHS, DOUBLE) for x in (FEATURES, loud))
    np.testing.assert_array_equal(np.where(real, louder, 0), np.where(real, quiet, 0))
    assert (np.where(real, 1e6, louder) == 1e6).all()
    shorter = augment(KEY, FEATURES[:, :60], jnp.minimum(LENGTHS, 60), ONLY_TIME)
    longer = augment(KEY, FEATURES, jnp.minimum(LENGTHS, 60), ONLY_TIME)
    np.testing.assert_allclose(shorter, longer[:, :60], atol=1e-6)


def test_what_fills_a_mask():
    rows = changed(DOUBLE)
    zero = dataclasses.replace(DOUBLE, fill="zero")
    assert not np.asarray(augment(KEY, FEATURES, LENGTHS, zero))[rows].any()
    filled = np.asarray(augment(KEY, FEATURES, LENGTHS, DOUBLE))
    for b, length in enumerate(LENGTHS.tolist()):
        mean = np.broadcast_to(np.asarray(FEATURES)[b, :length].mean(0), filled[b].shape)
        np.testing.assert_allclose(filled[b][rows[b]], mean[rows[b]], atol=1e-5)


def test_examples_differ_and_depend_on_the_key_alone():
    assert (changed(DOUBLE, jax.random.key(1)) != changed(DOUBLE)).any()
    same, lengths = jnp.tile(FEATURES[:1], (64, 1, 1)), jnp.full(64, 120)
    rows = changed(ONLY_TIME, features=same, lengths=lengths)[..., 0]
    assert len({row.tobytes() for row in rows}) > 40
    few = changed(ONLY_TIME, features=same[:5], lengths=lengths[:5])[..., 0]
    np.testing.assert_array_equal(few, rows[:5])


def test_low_precision_and_empty_examples():
    half = FEATURES.astype(jnp.bfloat16)
    assert augment(KEY, half, LENGTHS, DOUBLE).dtype == jnp.bfloat16
    nothing = jnp.zeros(64, int)
    np.testing.assert_array_equal(augment(KEY, FEATURES, nothing, DOUBLE), FEATURES)
