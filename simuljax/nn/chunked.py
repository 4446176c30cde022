"""Chunk-causal self-attention: one code for the whole sequence and for a chunk of a stream.

States are cut into chunks of c. Chunk i is computed together with copies of the r states that
follow, and attends to these, to itself and to the l states before it:

    states:       ... [i c - l ......... i c) [i c ........ i c + c) [.... i c + c + r)
                       l left: cached k, v     c of the chunk         r copies, then dropped

The copies belong to their chunk alone: look-ahead does not grow with the layers, as in Emformer
(Shi et al. 2021). Positions are rotary and counted from the first left state, so a chunk is
computed alike wherever in the stream it stands, and the numbers stay small; layers whose input has
positions go without. `Buffer` is a queue of vectors in arrays of fixed size, so that no step
recompiles.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jax import Array

from simuljax.config.model import Width
from simuljax.nn.attention import Past, attend_masked, distance_penalty
from simuljax.nn.layers import scan_layers, zero_padding


@flax.struct.dataclass
class Buffer:
    """A queue whose first `count` vectors are real, the others 0."""

    vectors: Array  # [B, N, D]
    count: Array  # int32 [B]


def init_buffer(batch: int, size: int, dims: int, dtype: Any, *, zeros: int = 0) -> Buffer:
    """Return a queue of `size` vectors, of which the first `zeros` count as real."""
    return Buffer(
        vectors=jnp.zeros((batch, size, dims), dtype), count=jnp.full(batch, zeros, jnp.int32)
    )


def extend(buffer: Buffer, x: Array, length: Array) -> Buffer:
    """Append the first `length` [B] of x [B, C, D]; the result has room for N + C."""
    place = jnp.arange(buffer.vectors.shape[1] + x.shape[1]) - buffer.count[:, None]
    before = jnp.pad(buffer.vectors, [(0, 0), (0, x.shape[1]), (0, 0)])
    joined = jnp.where((place < 0)[..., None], before, _take(x, place))
    total = buffer.count + length
    return Buffer(vectors=zero_padding(joined, total), count=total)


def drop(buffer: Buffer, used: Array, size: int) -> Buffer:
    """Remove the first `used` [B]; at most `size` may remain."""
    rest = _take(buffer.vectors, used[:, None] + jnp.arange(size))
    count = buffer.count - used
    return Buffer(vectors=zero_padding(rest, count), count=count)


def _take(x: Array, place: Array) -> Array:
    """Return x [B, N, D] at places [B, M]; places outside are not real."""
    if x.shape[1] == 0:
        return jnp.zeros((*place.shape, x.shape[-1]), x.dtype)
    return jnp.take_along_axis(x, jnp.clip(place, 0, x.shape[1] - 1)[..., None], axis=1)


Count = TypeVar("Count", int, Array)


@dataclass(frozen=True, kw_only=True)
class Chunking:
    """Sizes in states."""

    chunk: int
    left: int
    right: int

    def times(self, rate: int) -> "Chunking":
        """Return the same sizes where a state is divided into `rate`."""
        return Chunking(chunk=rate * self.chunk, left=rate * self.left, right=rate * self.right)

    @property
    def own(self) -> int:
        """Return the size of a chunk with its right-context copies."""
        return self.chunk + self.right

    @property
    def seen(self) -> int:
        """Return the number of states that a chunk attends to."""
        return self.left + self.own

    def count(self, states: Count) -> Count:
        """Return the number of chunks of these states, the last perhaps partial."""
        return -(-states // self.chunk)

    def complete(self, states: Array) -> Array:
        """Return the number of chunks of these states that have their right context."""
        return jnp.maximum(states - self.right, 0) // self.chunk


@flax.struct.dataclass
class ChunkView:
    """The attention mask of each chunk."""

    mask: Array  # bool [B, n, seen]
    bias: Array | None = None  # [1, 1, own, seen]
    rotary: bool = flax.struct.field(pytree_node=False, default=True)


def init_left(batch: int, layers: int, chunking: Chunking, width: Width) -> Past:
    """Return keys and values [B, layers, left, H, d] of no states left of a chunk; nearest last."""
    shape = (batch, layers, chunking.left, width.heads, width.model // width.heads)
    return Past(key=jnp.zeros(shape, width.dtype), value=jnp.zeros(shape, width.dtype))


def chunk_view(
    lengths: Array,
    before: Array,
    chunks: int,
    chunking: Chunking,
    *,
    penalty: bool = False,
    rotary: bool = True,
) -> ChunkView:
    """Return the mask of `lengths` [B] real states, with `before` [B] left of the first chunk."""
    first = jnp.arange(chunks)[:, None] * chunking.chunk - chunking.left
    position = (first + jnp.arange(chunking.seen))[None]
    mask = (position >= -before[:, None, None]) & (position < lengths[:, None, None])
    bias = distance_penalty(chunking.seen)[:, :, chunking.left :] if penalty else None
    return ChunkView(mask=mask, bias=bias, rotary=rotary)


def split_chunks(x: Array, chunking: Chunking) -> Array:
    """Split [B, K, ...] into [B, n, chunk + right, ...], with zeros after the last."""
    return _windows(x, chunking.count(x.shape[1]), chunking.own, chunking.chunk)


def join_chunks(x: Array, chunking: Chunking) -> Array:
    """Join [B, n, chunk + right, ...] to [B, n chunk, ...]; the copies are dropped."""
    main = x[:, :, : chunking.chunk]
    return main.reshape(x.shape[0], -1, *x.shape[3:])


def chunked_layers(
    layer: nn.Module,
    count: int,
    x: Array,
    left: Past,
    view: ChunkView,
    chunking: Chunking,
    *,
    train: bool,
    unroll: bool = False,
) -> tuple[Array, Past]:
    """Run layers over chunks [B, n, chunk + right, D]; return also the left context of the next.

    A layer has `project(x)`, which returns q, k, v [..., S, H, d], and `after_attention(x,
    attended, train=...)`, which finishes it.
    """
    if count == 0:
        return x, left
    used = x.shape[1] * chunking.chunk

    def body(layer: Any, x: Array, left: Past) -> tuple[Array, Past]:
        query, key, value = layer.project(x)

        @jax.checkpoint  # the windows repeat a key up to seen / chunk times: made again, not kept
        def attended(query: Array, key: Array, value: Array, left: Past) -> Array:
            keys = jnp.concatenate([_left_windows(left.key, key, chunking), key], 2)
            values = jnp.concatenate([_left_windows(left.value, value, chunking), value], 2)
            return _attend_chunks(query, keys, values, view, chunking)

        x = layer.after_attention(x, attended(query, key, value, left), train=train)
        key, value = _with_main(left.key, key, chunking), _with_main(left.value, value, chunking)
        return x, Past(key=key[:, used:], value=value[:, used:])

    by_layer = jax.tree.map(lambda a: jnp.moveaxis(a, 1, 0), left)
    x, by_layer = scan_layers(layer, count, body, x, by_layer, unroll=unroll)
    return x, jax.tree.map(lambda a: jnp.moveaxis(a, 0, 1), by_layer)


def rotate(x: Array, positions: Array) -> Array:
    """Apply rotary embedding (Su et al. 2021) to [..., S, H, d]: q k depends on distances alone.

    Component i and component i + d/2 are turned by position * 10^(-4 i / (d/2)).
    """
    half = x.shape[-1] // 2
    if x.shape[-1] != 2 * half:
        raise ValueError(f"a head has {x.shape[-1]} dimensions; rotation needs an even number")
    rate = jnp.exp(-jnp.log(10_000.0) * jnp.arange(half) / half)
    angle = (positions[:, None] * rate)[:, None]  # [S, 1, d / 2]
    first, second = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    turned = [first * cos - second * sin, first * sin + second * cos]
    return jnp.concatenate(turned, -1).astype(x.dtype)


def _attend_chunks(
    query: Array, key: Array, value: Array, view: ChunkView, chunking: Chunking
) -> Array:
    """Attend inside each chunk: queries [B, n, own, H, d], keys [B, n, seen, H, d]."""
    position = jnp.arange(chunking.seen)
    if view.rotary:
        query, key = rotate(query, position[chunking.left :]), rotate(key, position)
    q, k, v, mask = (x.reshape(-1, *x.shape[2:]) for x in (query, key, value, view.mask))
    return attend_masked(q, k, v, mask[:, None, None], view.bias).reshape(query.shape)


def _with_main(left: Array, x: Array, chunking: Chunking) -> Array:
    """Return [B, left + n chunk, H, d]: left states, then every chunk without copies."""
    return jnp.concatenate([left, join_chunks(x, chunking)], 1)


def _left_windows(left: Array, x: Array, chunking: Chunking) -> Array:
    """Return [B, n, left, H, d], the states left of each chunk."""
    joined = _with_main(left, x, chunking)
    return _windows(joined, x.shape[1], chunking.left, chunking.chunk)


def _windows(x: Array, count: int, size: int, shift: int) -> Array:
    """Return [B, count, size, ...]: window i starts at i * shift; zeros follow the last of x.

    Put together from slices, whose gradient is a sum where that of a gather is a scatter.
    """
    pieces = -(-size // shift)
    if pieces == 0:
        return jnp.zeros((x.shape[0], count, 0, *x.shape[2:]), x.dtype)
    needed = (count + pieces - 1) * shift
    missing = max(0, needed - x.shape[1])
    x = jnp.pad(x, [(0, 0), (0, missing)] + [(0, 0)] * (x.ndim - 2))[:, :needed]
    x = x.reshape(x.shape[0], -1, shift, *x.shape[2:])
    return jnp.concatenate([x[:, k : k + count] for k in range(pieces)], 2)[:, :, :size]
