"""What the tests share: random problems, oracles over batches, finite differences, comparisons."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

# Every new shape is a compilation, so few examples, drawn from few sizes, the same every time.
CHEAP = settings(max_examples=10, deadline=None, derandomize=True, database=None)


@st.composite
def problems(draw, targets=(1, 5), sources=(1, 11), leading=((), (2, 3))):
    """A generator of numbers, leading axes, T, S, and lengths of a prefix of these axes or None."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    axes = draw(st.sampled_from(leading))
    size = draw(st.sampled_from(targets)), draw(st.sampled_from(sources))
    prefix = draw(st.sampled_from([None, *range(len(axes) + 1)]))
    lengths = None if prefix is None else rng.integers(1, size[1] + 1, axes[:prefix])
    return rng, axes, *size, lengths


def float32(x):
    """x as a NumPy array in single precision."""
    return np.asarray(x, np.float32)


def sigmoid(energy):
    """1 / (1 + exp(-e)), exactly 0 or 1 where float64 says so."""
    return np.exp(-np.logaddexp(0.0, -np.asarray(energy, np.float64)))


def probabilities(rng, shape, mean=0.0, deviation=2.0):
    """Float32 sigmoids of normal energies."""
    return float32(sigmoid(rng.normal(mean, deviation, shape)))


def one_by_one(oracle, lengths, *arrays, inner=2):
    """oracle(example..., length) for every leading index; `lengths` may cover fewer axes."""
    arrays, lengths = [*map(np.asarray, arrays)], None if lengths is None else np.asarray(lengths)
    leading = arrays[0].shape[: arrays[0].ndim - inner]
    results = []
    for index in np.ndindex(*leading):
        length = None if lengths is None else int(lengths[index[: np.ndim(lengths)]])
        results.append(oracle(*(a[index] for a in arrays), length))
    return np.reshape(results, leading + np.shape(results[0]))


def assert_close(actual, expected, tolerance):
    """The largest absolute difference is within the tolerance, and the dtype is float32."""
    assert actual.dtype == jnp.float32
    np.testing.assert_allclose(np.asarray(actual, np.float64), expected, rtol=0, atol=tolerance)


def finite_difference(function, x, step=1e-5):
    """(f(x + h) - f(x - h)) / 2h for one entry of x at a time."""
    x = np.array(x, dtype=np.float64)
    gradient = np.zeros_like(x)
    for index in np.ndindex(*x.shape):
        above, below = x.copy(), x.copy()
        above[index] += step
        below[index] -= step
        gradient[index] = (function(above) - function(below)) / (2 * step)
    return gradient


def assert_gradient(function, oracle, x, relative=1e-5):
    """jax.grad in float64 against differences of the oracle, relative to the largest entry."""
    actual = jax.jit(jax.grad(function))(jnp.asarray(x, jnp.float64))
    expected = finite_difference(oracle, x)
    assert actual.dtype == jnp.float64
    assert np.abs(expected).max() > 0, "a gradient that is zero everywhere shows nothing"
    error = np.abs(np.asarray(actual) - expected).max()
    assert error <= relative * np.abs(expected).max(), f"gradient is off by {error:.3g}"


def assert_live(gradient):
    """A gradient that is finite and reaches at least one entry of every example (first axis)."""
    gradient = np.asarray(gradient)
    assert np.isfinite(gradient).all()
    reached = np.abs(gradient).reshape(gradient.shape[0], -1).max(axis=1)
    assert (reached > 1e-8).all(), "no gradient reaches the input"


def everything_finite(tree):
    """Whether every number of every leaf is finite."""
    return all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(tree))
