"""VGG blocks against loops; what is padded has no influence, whatever the lengths are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.model import Width
from simuljax.nn.subsampling import VGG, state_count
from tests.helpers.models import random_parameters
from tests.oracles import spectrogram

LENGTHS, FRAMES, DIMS = [13, 6, 1, 0], 13, 7
MODEL = VGG(Width(model=4, hidden=4, heads=1, dropout=0.0), channels=2)


@pytest.fixture(scope="module")
def features():
    return np.random.default_rng(0).normal(size=(len(LENGTHS), FRAMES, DIMS)).astype(np.float32)


@pytest.fixture(scope="module")
def variables(features):
    return random_parameters(MODEL, features, jnp.array(LENGTHS))


@pytest.fixture(scope="module")
def run(variables):
    return jax.jit(lambda x, lengths: MODEL.apply(variables, x, lengths))


def pooled(image):
    """The greatest of every 2 x 2 places, or of as many as there are."""
    half = [-(-size // 2) for size in image.shape[:2]]
    out = np.zeros((*half, image.shape[-1]))
    for i, j in np.ndindex(*half):
        out[i, j] = image[2 * i : 2 * i + 2, 2 * j : 2 * j + 2].max((0, 1))
    return out


def expected(features, params):
    image = features[..., None].astype(np.float64)
    for block in range(2):
        for layer in range(2):
            conv = params[f"conv{block}_{layer}"]
            image = np.maximum(spectrogram.convolve(image, conv["kernel"], conv["bias"]), 0)
        image = pooled(image)
    return image.reshape(len(image), -1)


def test_is_what_loops_give_for_each_row_alone(features, variables, run):
    """Fill the padding with random numbers: they have no influence."""
    states, counts = run(features, jnp.array(LENGTHS))
    assert states.shape == (4, 4, 2 * 4)  # ceil(13 / 4), ceil(7 / 4) of twice 2 channels
    assert counts.tolist() == [state_count(length) for length in LENGTHS]
    for row, length, found, count in zip(features, LENGTHS, states, counts, strict=True):
        if length:
            alone = expected(row[:length], variables["params"])
            np.testing.assert_allclose(found[:count], alone, atol=1e-5)
        assert not np.any(found[count:])
