"""Streams as rows of a batch: taken out, put in; a new one is put in to begin a row anew.

Where the batch stands in an array is found by comparing states of 1 and of 2 streams, so that what
a state consists of need not be known here.
"""

import jax

from simuljax.decode.stream import Learnt, StreamingDecoder, StreamState

Axes = tuple[int, ...]  # of every array of a state, in the order of jax.tree.leaves


def batch_axes(decoder: StreamingDecoder, learnt: Learnt) -> Axes:
    """Where the batch stands."""

    def shapes(batch: int) -> list[tuple[int, ...]]:
        arrays = jax.eval_shape(lambda: jax.tree.leaves(decoder.init(learnt, batch)))
        return [array.shape for array in arrays]

    pairs = zip(shapes(1), shapes(2), strict=True)
    return tuple([a == b for a, b in zip(*pair, strict=True)].index(False) for pair in pairs)


def take(state: StreamState, row: jax.Array | int, axes: Axes) -> StreamState:
    """One stream as a batch of 1."""
    leaves, tree = jax.tree.flatten(state)
    rows = [jax.lax.dynamic_slice_in_dim(a, row, 1, i) for a, i in zip(leaves, axes, strict=True)]
    return tree.unflatten(rows)


def put(state: StreamState, row: jax.Array | int, one: StreamState, axes: Axes) -> StreamState:
    """The streams with `one`, a batch of 1, in this row."""
    leaves, tree = jax.tree.flatten(state)
    pairs = zip(leaves, jax.tree.leaves(one), axes, strict=True)
    return tree.unflatten([jax.lax.dynamic_update_slice_in_dim(a, b, row, i) for a, b, i in pairs])
