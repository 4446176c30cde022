"""CTC against optax, and its lattice as a scan and as a kernel against a walk over the cells."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from simuljax import losses
from simuljax.losses.ctc import log_likelihood
from tests.ops.test_kernel_module import KERNEL, ON_CUDA, lower_for_cuda

ctc = jax.jit(losses.ctc)


def test_what_does_not_fit_counts_nothing_and_has_no_gradient():
    logits = jnp.zeros((3, 3, 4))
    labels = jnp.array([[0, 0, 0], [0, 1, 2], [0, 0, 0]])
    lengths = jnp.array([2, 3, 0])  # "0 0" needs 3 states, "0 1 2" needs 3; the last has none
    states = jnp.array([2, 3, 3])

    def loss(logits):
        return ctc(logits, states, labels, lengths)[0].sum()

    value, weight = ctc(logits, states, labels, lengths)
    np.testing.assert_array_equal(np.asarray(weight), [0, 3, 0])
    assert float(value[0]) == float(value[2]) == 0 < float(value[1])
    gradient = np.asarray(jax.jit(jax.grad(loss))(logits))
    assert np.isfinite(gradient).all()
    assert not gradient[0].any()
    assert not gradient[2].any()
    assert gradient[1].any()


STATES, LABELS = 13, 4
WAYS = ["scan", "kernel" if ON_CUDA else "interpret"]


def lattice(seed: int = 0, rows: int = 3):
    """Random emissions; a label that follows itself, sentences that end early."""
    rng = np.random.default_rng(seed)
    emission = jnp.asarray(rng.normal(size=(rows, STATES, 2 * LABELS + 1)) - 2, jnp.float32)
    skip = np.arange(2 * LABELS + 1) % 2 == 1
    skip = np.tile(skip, (rows, 1))
    skip[0, 3], skip[:, 1] = False, False
    lengths, last = np.array([STATES, 9, 5][:rows]), np.array([8, 6, 2][:rows])
    return emission, jnp.asarray(skip), jnp.asarray(lengths), jnp.asarray(last)


def slowly(emission, skip, length, last) -> float:
    """log P in float64, a cell at a time."""
    states, size = emission.shape
    alpha = np.zeros((states, size))
    for t, u in np.ndindex(states, size):
        before = float(u < 2)
        if t:
            before = alpha[t - 1, u] + (alpha[t - 1, u - 1] if u else 0)
            before += alpha[t - 1, u - 2] if u > 1 and skip[u] else 0
        alpha[t, u] = before * np.exp(float(emission[t, u]))
    return float(np.log(alpha[length - 1, last] + alpha[length - 1, last - 1]))


@pytest.mark.parametrize("way", WAYS)
def test_is_what_a_walk_over_the_cells_finds(way):
    given = lattice()
    expected = [slowly(*map(np.asarray, row)) for row in zip(*given, strict=True)]
    np.testing.assert_allclose(log_likelihood(*given, way=way), expected, rtol=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_gradient_is_how_often_paths_pass(way):
    """It sums to 1 over the labels of a state that is heard, and agrees with differences."""
    emission, *rest = lattice()
    gradient = jax.grad(lambda e: log_likelihood(e, *rest, way=way).sum())(emission)
    heard = np.arange(STATES) < np.asarray(rest[1])[:, None]
    np.testing.assert_allclose(gradient.sum(-1), heard, atol=1e-5)
    for place in [(0, 3, 2), (1, 8, 6), (2, 2, 1), (1, 10, 3)]:
        row, (t, u) = place[0], place[1:]
        ends = []
        for by in (-1e-4, 1e-4):
            moved = np.asarray(emission[row], np.float64)
            moved[t, u] += by
            ends.append(slowly(moved, *(np.asarray(x[row]) for x in rest)))
        assert float(gradient[place]) == pytest.approx((ends[1] - ends[0]) / 2e-4, abs=1e-5)


def test_many_states_and_labels_as_optax_has_them():
    rng = np.random.default_rng(1)
    logits = jnp.asarray(rng.normal(size=(2, 300, 40)), jnp.float32)
    labels, states, count = jnp.asarray(rng.integers(0, 39, (2, 60))), [300, 211], [60, 33]

    def theirs(logits):
        padded = (jnp.arange(300) >= jnp.array(states)[:, None]).astype(float)
        unlabelled = (jnp.arange(60) >= jnp.array(count)[:, None]).astype(float)
        return optax.ctc_loss(logits, padded, labels, unlabelled, blank_id=39)

    def ours(logits):
        return losses.ctc(logits, jnp.array(states), labels, jnp.array(count))[0]

    for mine, other in zip(*(of(f, logits) for f in (ours, theirs)), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=2e-4)


def of(function, logits):
    """Its values, and the gradient of their sum."""
    values, pull = jax.vjp(jax.jit(function), logits)
    return values, pull(jnp.ones_like(values))[0]


def test_one_kernel_forward_and_one_backward():
    given = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in lattice()]
    run = functools.partial(log_likelihood, way="kernel")

    def both(emission, *rest):
        return jax.grad(lambda e: run(e, *rest).sum())(emission)

    assert lower_for_cuda(run, *given).count(KERNEL) == 1
    assert lower_for_cuda(both, *given).count(KERNEL) == 2
