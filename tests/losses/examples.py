"""One table of every loss and the axes of its arguments, for the tests that treat them alike."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

from simuljax import losses
from tests.oracles.checks import float32

# b sentences, h heads, n heads of all layers, t targets, k speech, l text, v words, d width.
SIZES = {"b": 4, "h": 2, "n": 3, "t": 5, "k": 7, "l": 6, "v": 9, "d": 8}
LENGTHS = {"t": np.array([5, 2, 1, 4]), "k": np.array([3, 7, 5, 1]), "l": np.array([6, 1, 4, 3])}


@dataclass(frozen=True)
class Loss:
    """A compiled loss and its gradient, the axes of its arrays, the letters of its lengths."""

    call: Callable
    gradients: Callable  # of the summed value, for every array that is not of tokens
    arrays: tuple[str, ...]
    lengths: str


def differentiable(axes):
    """The positions of the arguments that can have a gradient: all but tokens."""
    return [i for i, letters in enumerate(axes) if letters != "bt"]


def loss(call, arrays, lengths, **options):
    """Compiles a loss with its options filled in."""
    axes = tuple(arrays.split())
    call = functools.partial(call, **options)
    gradients = jax.grad(lambda *arguments: call(*arguments)[0].sum(), differentiable(axes))
    return Loss(jax.jit(call), jax.jit(gradients), axes, lengths)


LOSSES = {
    "cross entropy": loss(losses.label_smoothed_cross_entropy, "btv bt", "t"),
    "distillation": loss(losses.online_distillation, "btv btv", "t"),
    "DAR": loss(losses.decision_attentive, "bhtk bhtl", "klt"),
    "DAR per head": loss(
        losses.decision_attentive, "bhtk bhtl", "klt", across_heads=False, temperature=0.2
    ),
    "CAR": loss(losses.cross_attentive, "bkd bld", "kl"),
    "CAR fairseq": loss(losses.cross_attentive, "bkd bld", "kl", direction="fairseq"),
    "DAL": loss(losses.latency, "bnt", "kt"),
    "AL of all heads": loss(losses.latency, "bnt", "kt", metric="AL", gather="heads_then_metric"),
    "AP of one head": loss(losses.latency, "bnt", "kt", metric="AP", gather="max"),
    "head variance": loss(losses.head_variance, "bnt", "t"),
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
