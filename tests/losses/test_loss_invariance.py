"""A sentence is worth the same alone, padded or in a batch; without targets it is worth nothing."""

import jax
import numpy as np
import pytest

from tests.losses.examples import LOSSES, alone, batch, differentiable, padded
from tests.oracles.checks import everything_finite

every_loss = pytest.mark.parametrize("name", list(LOSSES))


@every_loss
def test_alone_equals_in_a_ragged_batch(name):
    loss = LOSSES[name]
    arrays, lengths = batch(loss)
    values, weights = loss.call(*arrays, *lengths)
    assert values.shape == weights.shape == (4,)
    assert values.dtype == weights.dtype == np.float32
    for row in (1, 3):
        cut, own = alone(loss, arrays, lengths, row)
        value, weight = loss.call(*cut, *own)
        np.testing.assert_allclose(value[0], values[row], rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(weight[0], weights[row])


@every_loss
@pytest.mark.parametrize("garbage", [1e3, np.nan, np.inf, -np.inf])
def test_padding_has_no_influence(name, garbage):
    loss = LOSSES[name]
    arrays, lengths = batch(loss)
    limits = dict(zip(loss.lengths, lengths, strict=True))
    loud = [
        np.where(padded(axes, limits), np.asarray(7 if axes == "bt" else garbage, a.dtype), a)
        for axes, a in zip(loss.arrays, arrays, strict=True)
    ]
    expected, actual = loss.call(*arrays, *lengths)[0], loss.call(*loud, *lengths)[0]
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)
    found = loss.gradients(*loud, *lengths)
    for i, gradient in zip(differentiable(loss.arrays), found, strict=True):
        assert everything_finite(gradient)
        assert not np.any(np.asarray(gradient)[padded(loss.arrays[i], limits)])


@every_loss
def test_a_row_of_nothing_but_padding(name):
    loss = LOSSES[name]
    arrays, lengths = batch(loss)
    lengths = [np.where(np.arange(4) == 1, 0, length) for length in lengths]
    value, weight = loss.call(*arrays, *lengths)
    assert value[1] == weight[1] == 0
    for gradient in loss.gradients(*arrays, *lengths):
        assert everything_finite(gradient)
        assert not np.any(gradient[1])


@every_loss
@pytest.mark.parametrize("scale", [0.0, 1e4])
def test_finite_for_zeros_and_large_arrays(name, scale):
    loss = LOSSES[name]
    arrays, lengths = batch(loss, scale=scale)
    assert everything_finite((loss.call(*arrays, *lengths), loss.gradients(*arrays, *lengths)))


@every_loss
def test_bfloat16_is_accumulated_in_float32(name):
    loss = LOSSES[name]
    arrays, lengths = batch(loss)
    low = [jax.numpy.asarray(a, jax.numpy.bfloat16) if a.dtype == np.float32 else a for a in arrays]
    upcast = [a.astype(np.float32) if a.dtype == jax.numpy.bfloat16 else a for a in low]
    value, _ = loss.call(*low, *lengths)
    assert value.dtype == np.float32
    np.testing.assert_array_equal(value, loss.call(*upcast, *lengths)[0])
