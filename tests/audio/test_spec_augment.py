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


def test_the_papers_policies():
    """Park et al. 2019, table 1: F, number of frequency masks, T, p, number of time masks."""
    for policy, masks in ((SpecAugment(frequency_masks=1, time_masks=1), 1), (DOUBLE, 2)):
        assert (policy.frequency_width, policy.frequency_masks) == (27, masks)
        assert (policy.time_width, policy.time_fraction, policy.time_masks) == (100, 1.0, masks)


def test_time_masks_are_stripes_of_every_width():
    widths = set()
    for seed in range(4):
        rows = changed(ONLY_TIME, jax.random.key(seed))
        assert (rows.all(-1) == rows.any(-1)).all()  # all dimensions or none
        for row, length in zip(rows[..., 0], LENGTHS.tolist(), strict=True):
            masked = np.flatnonzero(row)
            assert len(masked) <= min(30, length)
            assert len(masked) == 0 or masked[-1] - masked[0] + 1 == len(masked)
            assert not row[length:].any()
            widths.add(len(masked))
    assert len(widths) > 26  # of the 31 from 0 to 30


def test_frequency_masks_are_stripes_of_every_width():
    widths, touched = [], np.zeros(20, int)
    for seed in range(8):
        rows = changed(ONLY_FREQUENCY, jax.random.key(seed))
        for row, length in zip(rows, LENGTHS.tolist(), strict=True):
            assert (row[:length].all(0) == row[:length].any(0)).all()
            masked = np.flatnonzero(row[0])
            assert len(masked) == 0 or masked[-1] - masked[0] + 1 == len(masked)
            widths.append(len(masked))
            touched[masked] += 1
    assert sorted(set(widths)) == list(range(8))
    assert abs(np.mean(widths) - 3.5) < 0.4  # uniform on 0..7; standard error .1
    assert touched.min() > 0.1 * touched.max()


def test_masks_start_anywhere():
    lengths = jnp.full(64, 50)
    starts = [
        np.flatnonzero(row)[0]
        for seed in range(4)
        for row in changed(ONLY_TIME, jax.random.key(seed), lengths=lengths)[..., 0]
        if row.any()
    ]
    assert min(starts) < 5
    assert max(starts) > 35


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


def test_one_key_one_outcome():
    again = changed(DOUBLE)
    np.testing.assert_array_equal(changed(DOUBLE), again)
    assert (changed(DOUBLE, jax.random.key(1)) != again).any()


def test_examples_differ_and_do_not_depend_on_the_batch():
    same, lengths = jnp.tile(FEATURES[:1], (64, 1, 1)), jnp.full(64, 120)
    rows = changed(ONLY_TIME, features=same, lengths=lengths)[..., 0]
    assert len({row.tobytes() for row in rows}) > 40
    few = changed(ONLY_TIME, features=same[:5], lengths=lengths[:5])[..., 0]
    np.testing.assert_array_equal(few, rows[:5])


def test_vmap_and_old_keys():
    keys = jax.random.split(KEY, 2)
    stacked, lengths = jnp.stack([FEATURES, FEATURES]), jnp.stack([LENGTHS, LENGTHS])
    vmapped = jax.vmap(lambda k, x, n: spec_augment(k, x, n, ONLY_TIME))
    many = jax.jit(vmapped)(keys, stacked, lengths)
    np.testing.assert_allclose(many[1], augment(keys[1], FEATURES, LENGTHS, ONLY_TIME), atol=1e-6)
    old = augment(jax.random.PRNGKey(0), FEATURES, LENGTHS, ONLY_TIME)
    np.testing.assert_array_equal(old, augment(KEY, FEATURES, LENGTHS, ONLY_TIME))


def test_low_precision_and_empty_examples():
    half = FEATURES.astype(jnp.bfloat16)
    assert augment(KEY, half, LENGTHS, DOUBLE).dtype == jnp.bfloat16
    nothing = jnp.zeros(64, int)
    np.testing.assert_array_equal(augment(KEY, FEATURES, nothing, DOUBLE), FEATURES)


def test_no_masks_change_nothing():
    config = SpecAugment(frequency_masks=0, time_masks=0)
    assert not changed(config).any()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"time_masks": -1}, "time_masks is -1"),
        ({"time_fraction": 2.0}, "time_fraction is 2.0"),
        ({"fill": "max"}, "fill"),
    ],
)
def test_senseless_configs_are_refused(wrong, message):
    with pytest.raises((ValueError, TypeError), match=message):
        SpecAugment(**wrong)
