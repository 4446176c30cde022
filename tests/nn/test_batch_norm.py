from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.errors import FlaxError
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from simuljax.nn.layers import BatchNorm, masked_moments, real
from tests.oracles import spectrogram as oracle
from tests.oracles.checks import assert_gradient

AXIS = "replicas"
LENGTHS = np.array([5, 1, 0, 3])  # one device has nothing real
SHAPE = (4, 5, 2, 3)


def images(seed=0, dtype: Any = np.float32):
    rng = np.random.default_rng(seed)
    return rng.normal(3.0, 2.0, SHAPE).astype(dtype)


def variables(seed=1):
    rng = np.random.default_rng(seed)
    mean, variance, scale, bias = rng.uniform(0.5, 2.0, (4, SHAPE[-1])).astype(np.float32)
    return {
        "params": {"scale": scale, "bias": bias},
        "statistics": {"mean": mean, "variance": variance},
    }


def trained(norm, variables, x, lengths) -> Any:
    """What training on one device gives: values and new statistics."""
    y, new = norm.apply(variables, x, lengths, train=True, mutable=["statistics"])
    return y, new["statistics"]


def at_real(y, lengths=LENGTHS):
    return np.asarray(y)[np.arange(SHAPE[1]) < lengths[:, None]]


def test_training_normalises_by_the_moments_of_what_is_real():
    x, given = images(), variables()
    y, statistics = trained(BatchNorm(), given, x, LENGTHS)
    mean, variance = oracle.real_moments(x, LENGTHS)
    expected = oracle.normalise(x, mean, variance, **given["params"])
    np.testing.assert_allclose(at_real(y), at_real(expected), atol=1e-5)
    for name, moment in (("mean", mean), ("variance", variance)):
        kept = 0.9 * given["statistics"][name] + 0.1 * moment
        np.testing.assert_allclose(statistics[name], kept, rtol=1e-5)


def test_what_stands_in_the_padding_changes_nothing():
    x, given = images(), variables()
    noisy = np.where(np.arange(5)[:, None, None] < LENGTHS[:, None, None, None], x, np.inf)
    clean, dirty = (trained(BatchNorm(), given, xs, LENGTHS) for xs in (x, noisy))
    np.testing.assert_array_equal(at_real(clean[0]), at_real(dirty[0]))
    jax.tree.map(np.testing.assert_array_equal, clean[1], dirty[1])
    everything = trained(BatchNorm(), given, x, np.full(4, 5))  # the control: without a mask
    assert np.abs(at_real(everything[0]) - at_real(clean[0])).max() > 1e-2


def test_evaluation_uses_the_running_statistics_and_no_other_example():
    x, given = images(), variables()
    y = BatchNorm().apply(given, x, LENGTHS, train=False)
    assert isinstance(y, jax.Array)
    expected = oracle.normalise(x, **given["statistics"], **given["params"])
    np.testing.assert_allclose(at_real(y), at_real(expected), atol=1e-5)
    alone = BatchNorm().apply(given, x[:1], LENGTHS[:1], train=False)
    np.testing.assert_array_equal(alone, y[:1])
    in_training = trained(BatchNorm(), given, x[:1], LENGTHS[:1])[0]
    assert np.abs(in_training - trained(BatchNorm(), given, x, LENGTHS)[0][:1]).max() > 1e-2


def test_a_batch_with_nothing_real_leaves_the_statistics_alone():
    given = variables()
    y, statistics = trained(BatchNorm(), given, images(), np.zeros(4, int))
    jax.tree.map(np.testing.assert_array_equal, statistics, given["statistics"])
    assert np.isfinite(y).all()


def test_the_gradient_passes_through_the_moments(x64):
    x, target = images(dtype=np.float64) + 3000, np.random.default_rng(2).normal(size=SHAPE)
    mask = real(jnp.asarray(LENGTHS), SHAPE[1])

    def loss(x):
        mean, variance, _ = masked_moments(x, mask)
        y = (x - mean) * jax.lax.rsqrt(variance + 1e-5)
        return jnp.sum(jnp.where(mask[..., None, None], y * target, 0))

    def reference(x):
        y = oracle.normalise(x, *oracle.real_moments(x, LENGTHS), np.ones(3), np.zeros(3))
        return np.sum(at_real(y) * at_real(target))

    assert_gradient(loss, reference, x)


def replica(variables, x, lengths, target, *, norm, shared_gradient):
    """Values, statistics, and gradients of a sum over all replicas, as one replica sees them."""

    def loss(params, x):
        y, statistics = trained(norm, variables | {"params": params}, x, lengths)
        own = jnp.where(real(lengths, x.shape[1])[..., None, None], y * target, 0)
        return jnp.sum(own), (y, statistics)

    gradient, (y, statistics) = jax.grad(loss, (0, 1), has_aux=True)(variables["params"], x)
    params = jax.lax.psum(gradient[0], AXIS) if shared_gradient == "sum" else gradient[0]
    return (y, gradient[1]), (statistics, params)


def on_devices(way, *batch, axis: str | None = AXIS, count=4):
    """`replica` on devices, a row each. Only checked shard_map sums gradients by itself."""
    gradient = "done" if way == "checked" else "sum"
    function = partial(replica, norm=BatchNorm(axis=axis), shared_gradient=gradient)
    devices = jax.devices()[:count]
    if way == "pmap":
        rows = [np.asarray(x)[:, None] for x in batch]
        wrapped = jax.pmap(
            function, AXIS, in_axes=(None, 0, 0, 0), out_axes=(0, None), devices=devices
        )
        (y, x_bar), same = jax.device_get(wrapped(variables(), *rows))
        return (y[:, 0], x_bar[:, 0]), same
    mesh, checked = Mesh(np.array(devices), (AXIS,)), way == "checked"
    specs = {"in_specs": (P(), *[P(AXIS)] * 3), "out_specs": (P(AXIS), P())}
    wrapped = jax.jit(jax.shard_map(function, mesh=mesh, check_vma=checked, **specs))
    return jax.device_get(wrapped(variables(), *batch))


@pytest.mark.parametrize("way", ["pmap", "unchecked", "checked"])
def test_four_devices_are_one(way):
    x, target = images(), np.random.default_rng(2).normal(size=SHAPE).astype(np.float32)
    batch = (x, LENGTHS, target)
    (y, x_bar), same = on_devices(way, *batch)
    (expected_y, expected_x_bar), expected_same = on_devices("checked", *batch, count=1)
    np.testing.assert_allclose(at_real(y), at_real(expected_y), atol=1e-5)
    np.testing.assert_allclose(x_bar, expected_x_bar, atol=1e-5)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5), same, expected_same)


def test_without_the_axis_every_device_has_moments_of_its_own():
    x = images()
    batch = (x, LENGTHS, np.ones_like(x))
    (y, _), _ = on_devices("unchecked", *batch, axis=None)
    (expected, _), _ = on_devices("checked", *batch, count=1)
    assert np.abs(at_real(y) - at_real(expected)).max() > 0.1


def test_statistics_that_are_missing_or_would_be_lost_are_an_error():
    x, given = images(), variables()
    with pytest.raises(FlaxError, match='"statistics"'):
        BatchNorm().apply({"params": given["params"]}, x, LENGTHS, train=False)
    with pytest.raises(FlaxError, match='"statistics" is immutable'):
        BatchNorm().apply(given, x, LENGTHS, train=True)
    made: Any = BatchNorm(axis=AXIS).init(jax.random.key(0), x, LENGTHS, train=True)
    assert not made["statistics"]["mean"].any()  # which does not count as training
