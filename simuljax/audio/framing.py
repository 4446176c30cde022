"""Overlapping frames of samples, for whole recordings and streams.

Frame f holds the samples [f * shift, f * shift + length); one that would run past the end does not
exist. `history` zeros before the first sample let a frame look further back than the recording
goes without changing how many there are.
"""

import math
from dataclasses import dataclass
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int, Real

Count = TypeVar("Count", int, jax.Array, np.ndarray)


@dataclass(frozen=True, kw_only=True)
class Framing:
    """Sizes in samples; `length` counts the history in."""

    length: int
    shift: int
    history: int = 0

    @property
    def pending(self) -> int:
        """Return the most samples that can wait for the rest of their frame."""
        return max(self.length, self.shift) - 1


@struct.dataclass
class FrameState:
    """Past samples that later frames need, at the start of a buffer of fixed size."""

    pending: jax.Array  # [..., framing.pending] float32
    count: jax.Array  # [...] int32: how many of them are real


def complete_frames(samples: Count, framing: Framing) -> Count:
    """Count the frames that these samples fill (history not included)."""
    count = 1 + (samples + framing.history - framing.length) // framing.shift
    return max(0, count) if isinstance(count, int) else jnp.maximum(count, 0)  # pyright: ignore[reportReturnType]


def to_int16_scale(samples: Real[ArrayLike, "*batch N"]) -> Float[Array, "*batch N"]:
    """Return float32 on the scale of int16, from either scale."""
    samples = jnp.asarray(samples)
    scale = 32768 if jnp.issubdtype(samples.dtype, jnp.floating) else 1
    return samples.astype(jnp.float32) * scale


def split(samples: Float[Array, "*batch N"], framing: Framing) -> Float[Array, "*batch F length"]:
    """Return every frame of a whole recording.

    Put together from pieces as long as the greatest common divisor of length and shift: slices,
    where a gather would be slow.
    """
    samples = jnp.pad(samples, [(0, 0)] * (samples.ndim - 1) + [(framing.history, 0)])
    return _split(samples, framing)


def init_frames(framing: Framing, batch_shape: tuple[int, ...] = ()) -> FrameState:
    """Return the state with nothing but the history."""
    return FrameState(
        pending=jnp.zeros((*batch_shape, framing.pending)),
        count=jnp.full(batch_shape, framing.history, jnp.int32),
    )


def frames_step(
    state: FrameState,
    samples: Real[ArrayLike, "*batch C"],
    length: Int[ArrayLike, "*batch"] | None,
    framing: Framing,
) -> tuple[FrameState, Float[Array, "*batch F length"], Int[Array, "*batch"]]:
    """Return the frames that the first `length` of these samples complete, and their real count."""
    samples = to_int16_scale(samples)
    length = _checked(length, samples.shape, state)
    position = jnp.arange(framing.pending + samples.shape[-1])
    total = (state.count + length)[..., None]
    joined = jnp.where(
        position < state.count[..., None],
        _padded(state.pending, len(position)),
        _shifted(samples, position - state.count[..., None]),
    )
    joined = jnp.where(position < total, joined, 0)
    count = complete_frames(total[..., 0] - framing.history, framing)
    used = (count * framing.shift)[..., None]
    rest = used + jnp.arange(framing.pending)
    pending = jnp.where(rest < total, _shifted(joined, rest), 0)
    state = FrameState(pending=pending, count=(total - used)[..., 0])
    return state, _split(joined, framing), count


def _split(samples: jax.Array, framing: Framing) -> jax.Array:
    size = math.gcd(framing.length, framing.shift)
    stride, width = framing.shift // size, framing.length // size
    count = max(0, 1 + (samples.shape[-1] - framing.length) // framing.shift)
    needed = (count - 1) * stride + width if count else 0
    pieces = samples[..., : needed * size].reshape(*samples.shape[:-1], needed, size)
    ends = [k + (count - 1) * stride + 1 if count else 0 for k in range(width)]
    return jnp.concatenate([pieces[..., k : ends[k] : stride, :] for k in range(width)], axis=-1)


def _shifted(x: jax.Array, index: jax.Array) -> jax.Array:
    """Return x at the indices along its last axis; indices outside are never read."""
    return jnp.take_along_axis(x, jnp.clip(index, 0, x.shape[-1] - 1), axis=-1)


def _padded(x: jax.Array, size: int) -> jax.Array:
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, size - x.shape[-1])])


def _checked(length, shape: tuple[int, ...], state: FrameState) -> jax.Array:
    """Check lengths of every stream against the chunk, where they are known."""
    if shape[:-1] != state.count.shape:
        raise ValueError(f"samples has shape {shape}; the state is of {state.count.shape} streams.")
    if shape[-1] < 1:
        raise ValueError("samples has no room for a sample; give chunks of 1 or more.")
    if length is None:
        length = shape[-1]
    known = not isinstance(length, Tracer)
    if known and np.size(length) and not 0 <= np.min(length) <= np.max(length) <= shape[-1]:
        raise ValueError(f"length is {length}; chunks of {shape[-1]} samples have 0 to that many.")
    return jnp.broadcast_to(jnp.asarray(length, jnp.int32), shape[:-1])
