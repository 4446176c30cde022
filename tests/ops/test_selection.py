"""Selection probabilities: learnt energies and wait-k."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax import ops
from tests.oracles import decisions
from tests.oracles.checks import assert_close, everything_finite, float32, one_by_one, sigmoid


@pytest.mark.parametrize("convention", ["stacl", "papi"])
@pytest.mark.parametrize("k", [1, 2, 5, 40])
def test_wait_k(convention, k):
    p = ops.wait_k_probability(k, 6, 11, convention=convention)
    assert_close(p, decisions.wait_k(k, 6, 11, convention), 0)


@pytest.mark.parametrize(("convention", "heard"), [("stacl", 3), ("papi", 4)])
def test_the_first_write_follows_k_units(convention, heard):
    p = ops.wait_k_probability(3, 4, 9, convention=convention)
    assert int(jnp.argmax(p[0])) + 1 == heard


def test_stacl_is_the_default():
    np.testing.assert_array_equal(ops.wait_k_probability(2, 3, 5), decisions.wait_k(2, 3, 5))


def test_wait_k_with_k_drawn_per_batch():
    traced = []

    @jax.jit
    def p(k):
        traced.append(k)
        return ops.wait_k_probability(k, 5, 8)

    for k in (1, 4):
        assert_close(p(k), decisions.wait_k(k, 5, 8), 0)
    assert len(traced) == 1


def test_energy_is_a_scaled_product_with_a_bias():
    rng = np.random.default_rng(0)
    query, key = (
        float32(rng.normal(size=(2, 3, 4, 8))),
        float32(rng.normal(size=(2, 3, 5, 8))),
    )
    expected = one_by_one(lambda q, k, _: decisions.monotonic_energy(q, k, -2.0), None, query, key)
    assert_close(ops.monotonic_energy(jnp.array(query), jnp.array(key), -2.0), expected, 1e-5)


def test_probability_without_noise_is_the_sigmoid():
    energy = float32(np.random.default_rng(1).normal(0, 4, (2, 3, 4, 5)))
    assert_close(ops.selection_probability(energy), sigmoid(energy), 1e-6)


def test_noise_is_gaussian_and_needs_a_key():
    energy = jnp.zeros((100, 100))
    for deviation in (1.0, 0.5):
        p = ops.selection_probability(energy, key=jax.random.key(0), noise=deviation)
        drawn = np.asarray(jax.scipy.special.logit(p))
        assert abs(drawn.mean()) < 0.05 * deviation
        assert abs(drawn.std() / deviation - 1) < 0.05
    default = ops.selection_probability(energy, key=jax.random.key(0))
    unit = ops.selection_probability(energy, key=jax.random.key(0), noise=1.0)
    np.testing.assert_array_equal(default, unit)


@pytest.mark.parametrize("key", [None, 3])
def test_padded_keys_are_never_chosen(key):
    energy = float32(np.random.default_rng(2).normal(size=(2, 2, 3, 6)))
    lengths = jnp.array([6, 2])
    noise = None if key is None else jax.random.key(key)

    def p(e):
        return ops.selection_probability(e, lengths, key=noise)

    assert not np.any(p(energy)[1, ..., 2:])
    gradient = jax.grad(lambda e: p(e).sum())(energy)
    assert everything_finite(gradient)
    assert not np.any(gradient[1, ..., 2:])
    assert np.all(np.asarray(gradient[0]) > 0)


@pytest.mark.parametrize("scale", [1e2, 1e4])
def test_probability_of_large_energies(scale):
    energy = float32(np.array([[-scale, 0, scale]]))
    assert_close(ops.selection_probability(energy), [[0, 0.5, 1]], 1e-30)
    assert everything_finite(jax.grad(lambda e: ops.selection_probability(e).sum())(energy))


def test_bfloat16_energy_gives_a_float32_probability():
    energy = jnp.asarray([[-2.0, 0.3, 5]], jnp.bfloat16)
    p = ops.selection_probability(energy)
    assert p.dtype == jnp.float32
    np.testing.assert_array_equal(p, ops.selection_probability(energy.astype(jnp.float32)))
