"""CTC against the sum over every path, on lattices small enough to list them."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax import losses

ctc = jax.jit(losses.ctc)


def by_enumeration(logits: np.ndarray, labels: list[int]) -> float:
    """-log of the probability of all paths that collapse to the labels."""
    states, classes = logits.shape
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    blank, total = classes - 1, 0.0
    for path in itertools.product(range(classes), repeat=states):
        merged = [c for c, _ in itertools.groupby(path)]
        if [c for c in merged if c != blank] == labels:
            total += np.exp(sum(logp[s, c] for s, c in enumerate(path)))
    return -np.log(total)


CASES = [([0, 1], 4), ([1, 1], 4), ([2], 3), ([0, 0], 3), ([0, 1, 2], 5)]


@pytest.mark.parametrize(("labels", "states"), CASES)
def test_is_the_sum_over_every_path(labels, states):
    logits = np.random.default_rng(states).normal(size=(1, 5, 4))
    padded = np.array([[*labels, *[3] * (4 - len(labels))]])
    value, weight = ctc(
        jnp.asarray(logits, jnp.float32), jnp.array([states]), jnp.array(padded),
        jnp.array([len(labels)]),
    )  # fmt: skip
    assert float(value[0]) == pytest.approx(by_enumeration(logits[0, :states], labels), rel=1e-5)
    assert float(weight[0]) == len(labels)


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
