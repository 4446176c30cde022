"""What holds for every loss: its equation, padding, company, bad numbers."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax import losses
from tests.oracles import latency, matching, token_losses
from tests.oracles.checks import assert_gradient, everything_finite, float32

# b sentences, h heads, n heads of all layers, t targets, k speech, l text, v words, d width.
SIZES = {"b": 4, "h": 2, "n": 3, "t": 5, "k": 7, "l": 6, "v": 9, "d": 8}
LENGTHS = {"t": np.array([5, 2, 1, 4]), "k": np.array([3, 7, 5, 1]), "l": np.array([6, 1, 4, 3])}


@dataclass(frozen=True)
class Loss:
    """A compiled loss and its gradient, the axes of its arrays, the letters of its lengths."""

    call: Callable
    gradients: Callable  # of the summed value, for every array that is not of tokens
    oracle: Callable  # of one sentence
    arrays: tuple[str, ...]
    lengths: str
    learner: int  # the array that has the gradient


def differentiable(axes):
    """The positions of the arguments that can have a gradient: all but tokens."""
    return [i for i, letters in enumerate(axes) if letters != "bt"]


def loss(name, of_one, arrays, lengths, learner: Any = 0, **options: Any):
    """Compile a loss with its options filled in; the oracle has them too."""
    axes = tuple(arrays.split())
    call = functools.partial(getattr(losses, name), **options)
    gradients = jax.grad(lambda *arguments: call(*arguments)[0].sum(), differentiable(axes))
    oracle = functools.partial(getattr(of_one, name), **options)
    return Loss(jax.jit(call), jax.jit(gradients), oracle, axes, lengths, learner)


PER_HEAD = {"across_heads": False, "temperature": 0.2}
SWAPPED = {"direction": "fairseq", "learner": 1}
OF_ALL, OF_ONE = {"metric": "AL", "gather": "heads_then_metric"}, {"metric": "AP", "gather": "max"}
LOSSES = {
    "cross entropy": loss("label_smoothed_cross_entropy", token_losses, "btv bt", "t"),
    "no smoothing": loss(
        "label_smoothed_cross_entropy", token_losses, "btv bt", "t", smoothing=0.0
    ),
    "distillation": loss("online_distillation", token_losses, "btv btv", "t"),
    "DAR": loss("decision_attentive", matching, "bhtk bhtl", "klt"),
    "DAR per head": loss("decision_attentive", matching, "bhtk bhtl", "klt", **PER_HEAD),
    "CAR": loss("cross_attentive", matching, "bkd bld", "kl"),
    "CAR fairseq": loss("cross_attentive", matching, "bkd bld", "kl", **SWAPPED),
    "DAL": loss("latency", latency, "bnt", "kt"),
    "AL of all heads": loss("latency", latency, "bnt", "kt", **OF_ALL),
    "AP of one head": loss("latency", latency, "bnt", "kt", **OF_ONE),
    "head variance": loss("head_variance", latency, "bnt", "t"),
}


def batch(loss, seed=0, scale=1.0):
    """Random arguments: tokens [b,t], growing delays [b,n,t], normal numbers elsewhere."""
    rng = np.random.default_rng(seed)
    arrays = []
    for axes in loss.arrays:
        shape = [SIZES[letter] for letter in axes]
        if axes == "bt":
            arrays.append(rng.integers(0, SIZES["v"], shape))
        elif axes == "bnt":
            arrays.append(float32(np.sort(rng.uniform(0, 7, shape)) * scale))
        else:
            arrays.append(float32(rng.normal(size=shape) * scale))
    return arrays, [LENGTHS[letter] for letter in loss.lengths]


def padded(axes, lengths):
    """True where an array of these axes holds padding."""
    mask = np.zeros([SIZES[letter] for letter in axes], dtype=bool)
    for index in np.ndindex(*mask.shape):
        limits = [lengths[c][index[0]] if c in lengths else SIZES[c] for c in axes]
        mask[index] = any(i >= limit for i, limit in zip(index, limits, strict=True))
    return mask


def alone(loss, arrays, lengths, row):
    """The arguments of one sentence as a batch of one without padding."""
    limits = dict(zip(loss.lengths, lengths, strict=True))
    cut = []
    for axes, array in zip(loss.arrays, arrays, strict=True):
        inner = tuple(slice(limits[c][row]) if c in limits else slice(None) for c in axes[1:])
        cut.append(array[(slice(row, row + 1), *inner)])
    return cut, [length[row : row + 1] for length in lengths]


every_loss = pytest.mark.parametrize("name", list(LOSSES))


@every_loss
def test_the_equation_of_every_sentence(name):
    loss = LOSSES[name]
    for seed, scale in ((1, 1.0), (2, 3.0)):
        arrays, lengths = batch(loss, seed, scale)
        rows = zip(*arrays, *(length.tolist() for length in lengths), strict=True)
        values, weights = loss.call(*arrays, *lengths)
        expected = [loss.oracle(*row) for row in rows]
        np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-5)
        per_token = loss.arrays[0] == "btv"
        np.testing.assert_array_equal(weights, LENGTHS["t"] if per_token else np.ones(4))


@every_loss
def test_finite_differences(name, x64):
    """Differentiate by the first sentence; the other side is held fixed."""
    loss = LOSSES[name]
    arrays, lengths = alone(loss, *batch(loss, seed=3), row=0)

    def given(x):
        return [*arrays[: loss.learner], x, *arrays[loss.learner + 1 :]]

    def by_hand(x):
        return loss.oracle(*(array[0] for array in given(x)), *(int(n[0]) for n in lengths))

    x = np.asarray(arrays[loss.learner], np.float64)
    assert_gradient(lambda x: loss.call(*given(x), *lengths)[0].sum(), by_hand, x)


@pytest.mark.parametrize("name", ["distillation", "DAR", "CAR", "CAR fairseq"])
def test_the_teacher_is_detached(name):
    loss = LOSSES[name]
    arrays, lengths = batch(loss)
    slopes = [np.any(each) for each in loss.gradients(*arrays, *lengths)]
    assert slopes == [loss.learner == 0, loss.learner == 1]


@every_loss
def test_alone_equals_in_a_ragged_batch(name):
    loss = LOSSES[name]
    arrays, lengths = batch(loss)
    values, weights = loss.call(*arrays, *lengths)
    assert values.shape == weights.shape == (4,)
    assert values.dtype == weights.dtype == np.float32
    cut, own = alone(loss, arrays, lengths, row=3)
    value, weight = loss.call(*cut, *own)
    np.testing.assert_allclose(value[0], values[3], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(weight[0], weights[3])


@every_loss
@pytest.mark.parametrize("garbage", [1e3, np.nan, -np.inf])
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
    low = [jnp.asarray(a, jnp.bfloat16) if a.dtype == np.float32 else a for a in arrays]
    upcast = [a.astype(np.float32) if a.dtype == jnp.bfloat16 else a for a in low]
    value, _ = loss.call(*low, *lengths)
    assert value.dtype == np.float32
    np.testing.assert_array_equal(value, loss.call(*upcast, *lengths)[0])


@pytest.mark.parametrize("name", ["DAR", "CAR"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_dar_and_car_show_nan(name, bad):
    for who in range(2):
        arrays, lengths = batch(LOSSES[name])
        arrays[who][0].flat[0] = bad
        values = LOSSES[name].call(*arrays, *lengths)[0]
        assert not np.isfinite(values[0]) and np.isfinite(values[1:]).all()


@pytest.mark.parametrize("scale", [1e-18, 1e-15, 1e-13, 1e-6, 1e6])
def test_dar_gradient_is_finite_at_any_scale(scale):
    (speech, text), lengths = batch(LOSSES["DAR"])
    gradient, _ = LOSSES["DAR"].gradients(float32(scale * speech), text, *lengths)
    assert np.isfinite(scale * gradient).all()


ONE = jnp.array([1])


@pytest.mark.parametrize("target", [-1, 4, -5])
def test_a_target_outside_the_vocabulary_is_nan(target):
    logits = jnp.zeros((1, 1, 4))
    assert np.isnan(losses.label_smoothed_cross_entropy(logits, jnp.array([[target]]), ONE)[0])


def test_a_masked_token_has_probability_0_and_that_is_all():
    logits = jnp.array([[[0.0, 0.0, -jnp.inf]]])
    plain = losses.label_smoothed_cross_entropy(logits, jnp.array([[0]]), ONE, smoothing=0.0)
    distilled = losses.online_distillation(logits, logits, ONE)
    assert float(plain[0][0]) == pytest.approx(np.log(2))
    assert float(distilled[0][0]) == pytest.approx(np.log(2))


def test_lambda_may_be_traced_and_a_lone_branch_counts_in_full():
    branch = losses.Branch(
        logits=jnp.zeros((1, 2, 3)),
        target_length=2 * ONE,
        state_length=4 * ONE,
        delays=jnp.array([[[1.0, 3.0]]]),
    )
    targets = jnp.array([[0, 1]])

    @jax.jit
    def total(weight):
        objective = losses.JointObjective().terms()
        terms = losses.term_values(objective, losses.Outputs(targets=targets, speech=branch))
        weights = {term.name: term.weight for term in objective} | {"st_latency": weight}
        return losses.combine(losses.sum_terms(terms), weights).total

    assert float(total(0.0)) == pytest.approx(np.log(3), rel=1e-6)
    assert float(total(0.5)) == pytest.approx(np.log(3) + 0.5 * 1.0 / 2, rel=1e-6)


@every_loss
def test_a_batch_of_none(name):
    arrays, lengths = batch(LOSSES[name])
    value, weight = LOSSES[name].call(*(each[:0] for each in (*arrays, *lengths)))
    assert value.shape == weight.shape == (0,)
