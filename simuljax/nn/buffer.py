"""Queues of vectors in arrays of fixed size, so that no step recompiles."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from simuljax.nn.layers import zero_padding


@flax.struct.dataclass
class Buffer:
    """A queue whose first `count` vectors are real, the others 0."""

    vectors: jax.Array  # [B, N, D]
    count: jax.Array  # int32 [B]


def init_buffer(batch: int, size: int, dims: int, dtype: Any, *, zeros: int = 0) -> Buffer:
    """Return a queue of `size` vectors, of which the first `zeros` count as real."""
    return Buffer(
        vectors=jnp.zeros((batch, size, dims), dtype), count=jnp.full(batch, zeros, jnp.int32)
    )


def extend(buffer: Buffer, x: jax.Array, length: jax.Array) -> Buffer:
    """Append the first `length` [B] of x [B, C, D]; the result has room for N + C."""
    place = jnp.arange(buffer.vectors.shape[1] + x.shape[1]) - buffer.count[:, None]
    before = jnp.pad(buffer.vectors, [(0, 0), (0, x.shape[1]), (0, 0)])
    joined = jnp.where((place < 0)[..., None], before, _take(x, place))
    total = buffer.count + length
    return Buffer(vectors=zero_padding(joined, total), count=total)


def drop(buffer: Buffer, used: jax.Array, size: int) -> Buffer:
    """Remove the first `used` [B]; at most `size` may remain."""
    rest = _take(buffer.vectors, used[:, None] + jnp.arange(size))
    count = buffer.count - used
    return Buffer(vectors=zero_padding(rest, count), count=count)


def _take(x: jax.Array, place: jax.Array) -> jax.Array:
    """Return x [B, N, D] at places [B, M]; places outside are not real."""
    if x.shape[1] == 0:
        return jnp.zeros((*place.shape, x.shape[-1]), x.dtype)
    return jnp.take_along_axis(x, jnp.clip(place, 0, x.shape[1] - 1)[..., None], axis=1)
