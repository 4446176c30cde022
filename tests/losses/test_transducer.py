"""The transducer against every path of small lattices, and what must hold on large ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.losses import transducer
from simuljax.losses.transducer import delays, log_partition
from tests.oracles import transducer as oracle
from tests.oracles.checks import assert_gradient

# The small test of warp-transducer: 2 groups, 2 labels, 5 classes.
LOGITS = [
    [[0.1, 0.6, 0.1, 0.1, 0.1], [0.1, 0.1, 0.6, 0.1, 0.1], [0.1, 0.1, 0.2, 0.8, 0.1]],
    [[0.1, 0.6, 0.1, 0.1, 0.1], [0.1, 0.1, 0.2, 0.1, 0.1], [0.7, 0.1, 0.2, 0.1, 0.1]],
]
SIZES = [(1, 4), (4, 1), (5, 3), (3, 0)]


def scores(seed, groups, labels, *, scale=2.0, batch=()):
    """Log-probabilities that do not sum to 1, as of other tokens that are not there."""
    random = np.random.default_rng(seed)
    shapes = (*batch, groups, labels + 1), (*batch, groups, labels)
    return tuple(-np.abs(random.normal(scale=scale, size=shape)) for shape in shapes)


@jax.jit
def of_one(blank, label):
    groups, labels = label.shape
    given = jnp.asarray(blank)[None], jnp.asarray(label)[None]
    nll, delay = transducer(*given, jnp.array([groups]), jnp.array([labels]))
    return nll[0], delay[0]


def test_the_well_known_example():
    logp = jax.nn.log_softmax(jnp.array(LOGITS))
    label = jnp.stack([logp[:, 0, 1], logp[:, 1, 2]], 1)
    nll, _ = of_one(logp[..., 0], label)
    assert float(nll) == pytest.approx(4.495666, abs=2e-6)


@pytest.mark.parametrize("size", SIZES)
def test_is_the_sum_over_every_path(x64, size):
    blank, label = scores(sum(size), *size)
    nll, delay = of_one(blank, label)
    np.testing.assert_allclose([nll, delay], oracle.transducer(blank, label), rtol=1e-12)
    assert delay > 0 or size[1] < 2


@pytest.mark.parametrize("which", [0, 1], ids=["nll", "delay"])
@pytest.mark.parametrize("by", [0, 1], ids=["blank", "label"])
def test_gradients_are_those_of_every_path(x64, which, by):
    given = scores(3, 3, 3)

    def value(function):
        return lambda x: function(*(x if i == by else given[i] for i in range(2)))[which]

    assert_gradient(value(of_one), value(oracle.transducer), given[by], relative=1e-7)


def test_scores_of_minus_infinity_are_ways_that_do_not_exist(x64):
    blank, label = scores(5, 4, 3)
    blank[0, 0] = label[2, :] = label[1, 0] = -np.inf  # only label 1 may leave the first group
    nll, delay = of_one(blank, label)
    np.testing.assert_allclose([nll, delay], oracle.transducer(blank, label), rtol=1e-12)
    given = jnp.asarray(blank), jnp.asarray(label)
    for found in jax.jit(jax.jacrev(of_one, (0, 1)))(*given):
        assert all(np.isfinite(g).all() for g in found)
        assert not found[0][0, 0] and not found[1][2].any() and found[1][0].any()


def test_without_a_path_the_value_is_infinite_and_nothing_learns():
    blank, label = map(jnp.asarray, scores(6, 3, 2))
    label = label.at[:, 1].set(-jnp.inf)
    nll, delay = of_one(blank, label)
    assert np.isposinf(nll) and delay == 0
    found = jax.jit(jax.grad(lambda *x: sum(of_one(*x)), (0, 1)))(blank, label)
    assert not any(np.any(g) for g in found)


RAGGED = np.array([4, 1, 0, 3, 5]), np.array([3, 4, 2, 0, 4])


def loud_padding(value):
    """A ragged batch with `value` wherever nothing is real."""
    (groups, labels), (blank, label) = RAGGED, scores(7, 5, 4, batch=(5,))
    row = np.arange(5)[:, None]
    for x, most in ((blank, labels + 1), (label, labels)):
        real = (row < groups[:, None, None]) & (np.arange(x.shape[2]) < most[:, None, None])
        x[~real] = value
    return [x.astype(np.float32) for x in (blank, label)]


@jax.jit
def of_ragged(blank, label):
    def total(blank, label):
        nll, delay = transducer(blank, label, *map(jnp.asarray, RAGGED))
        return nll.sum() + delay.sum(), (nll, delay)

    return jax.value_and_grad(total, (0, 1), has_aux=True)(blank, label)


@pytest.mark.parametrize("value", [0.0, 1e4, np.nan, -np.inf])
def test_a_row_is_worth_the_same_alone_and_padded(value):
    blank, label = loud_padding(value)
    (_, (nll, delay)), gradients = of_ragged(blank, label)
    for b, (x, y) in enumerate(zip(*RAGGED, strict=True)):
        expected = oracle.transducer(blank[b, :x, : y + 1], label[b, :x, :y]) if x else (0.0, 0.0)
        np.testing.assert_allclose([nll[b], delay[b]], expected, rtol=1e-5, atol=1e-6)
        for gradient, most in zip(gradients, (y + 1, y), strict=True):
            outside = np.asarray(gradient[b]).copy()
            outside[:x, :most] = 0
            assert np.isfinite(gradient[b]).all() and not outside.any()
    assert all(np.any(g[0]) for g in gradients)


def test_a_batch_of_none_and_lengths_of_bytes():
    blank, label = scores(7, 130, 128, batch=(1,))
    found = [transducer(blank, label, *np.array([[100], [127]], t)) for t in (np.int8, np.int32)]
    np.testing.assert_array_equal(*found)
    none = np.zeros(0, int)
    assert transducer(blank[:0], label[:0], none, none)[0].shape == (0,)


def test_no_mass_is_lost_on_a_large_lattice():
    """Each label is written once, and each group left once, whatever the scores' size."""
    batch, groups, labels = 2, 60, 200
    blank, label = scores(8, groups, labels, scale=30.0, batch=(batch,))
    blank, label = (jnp.asarray(x, jnp.float32) for x in (blank, label))
    full = jnp.full(batch, groups), jnp.full(batch, labels)
    total = jax.grad(lambda blank, label: log_partition(blank, label, *full).sum(), (0, 1))
    occupied = jax.jit(total)(blank, label)
    np.testing.assert_allclose(occupied[0].sum(2), 1, atol=2e-5)
    np.testing.assert_allclose(occupied[1].sum(1), 1, atol=2e-5)
    late = (occupied[1] * delays(*full, label)).sum((1, 2))
    nll, delay = jax.jit(transducer)(blank, label, *full)
    np.testing.assert_allclose(delay, late, rtol=1e-4)
    assert (nll > 2000).all()


def test_mistakes_are_named():
    blank, label = np.zeros((2, 3, 5)), np.zeros((2, 3, 4))
    full = np.array([3, 3]), np.array([4, 4])
    with pytest.raises(ValueError, match="one more place"):
        transducer(blank[..., :4], label, *full)
    with pytest.raises(ValueError, match="groups must not exceed 3"):
        transducer(blank, label, np.array([4, 3]), full[1])
    with pytest.raises(ValueError, match="no groups"):
        transducer(blank[:, :0], label[:, :0], np.array([0, 0]), full[1])
