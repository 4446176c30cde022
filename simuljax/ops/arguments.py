"""Argument checks of the ops: shapes, lengths and, in debug mode, NaN.

Shapes are checked at trace time. Values can be checked only where they are known: outside `jit`
always for lengths, and for NaN while JAX's own `jax_debug_nans` is on (JAX then runs a jitted
function that produced a NaN again without `jit`, so the check is reached there too; it is strict
and refuses NaN in padding as well).
"""

from collections.abc import Iterable
from numbers import Integral

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer


def floats(name: str, x, axes: str, *, leading: bool = True) -> jax.Array:
    """Return x as an array of at least float32 whose last axes are called `axes`."""
    if x is None:
        raise ValueError(f"{name} is None; it must be given.")
    _no_nan(name, x)
    x = jnp.asarray(x)
    has_axes(name, x, axes, leading=leading)
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def integers(name: str, x) -> jax.Array:
    """Return x as at least int32, whose sums do not overflow; an empty list has no type."""
    x = jnp.asarray(x)
    if x.size and not jnp.issubdtype(x.dtype, jnp.integer):
        raise ValueError(f"{name} must hold integers, not {x.dtype}.")
    return x.astype(jnp.int64 if x.dtype.itemsize > 4 else jnp.int32)


def at_least_one(name: str, value: int) -> None:
    """Check a width or a count that is known."""
    if not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} is {value}; it must be a whole number from 1.")


def has_axes(name: str, x: jax.Array, axes: str, *, leading: bool = False) -> None:
    """Check that x has these axes, after any leading ones if allowed."""
    if x.ndim < len(axes) or (x.ndim > len(axes) and not leading):
        wanted = ", ".join(["...", *axes] if leading else axes)
        raise ValueError(f"{name} has shape {x.shape}, but needs the axes [{wanted}].")


def same_shape(name: str, x: jax.Array, other_name: str, other: jax.Array) -> None:
    """Check that two arrays have the same shape."""
    if x.shape != other.shape:
        raise ValueError(
            f"{name} has shape {x.shape} and {other_name} {other.shape}; they must be equal."
        )


def one_of(name: str, value: str, choices: Iterable[str]) -> None:
    """Check that a value is one of a closed list."""
    choices = tuple(choices)
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; choose one of {', '.join(map(repr, choices))}.")


def spread(name: str, lengths, leading: tuple[int, ...], limit: int | None = None) -> jax.Array:
    """Broadcast lengths [B] (any prefix of the leading axes) to all leading axes.

    None means all of `limit`, the padded size, where there is one.
    """
    if lengths is None:
        if limit is None:
            raise ValueError(f"{name} is None; it must be given.")
        lengths = limit
    if isinstance(lengths, list | tuple):
        lengths = np.asarray(lengths)
    if is_known(lengths) and np.size(lengths):
        _in_range(name, np.asarray(lengths), limit)
    lengths = jnp.asarray(lengths) if limit is None else integers(name, lengths)
    if lengths.shape != leading[: lengths.ndim]:
        raise ValueError(
            f"{name} has shape {lengths.shape}, which is no prefix of the leading axes {leading}."
        )
    missing = len(leading) - lengths.ndim
    return jnp.broadcast_to(lengths.reshape(lengths.shape + (1,) * missing), leading)


def real_positions(name: str, lengths, leading: tuple[int, ...], size: int) -> jax.Array:
    """Return bool [*leading, size], true before each length (None: everywhere)."""
    if lengths is None:
        return jnp.ones((*leading, size), bool)
    return jnp.arange(size) < spread(name, lengths, leading, size)[..., None]


def is_known(x) -> bool:
    """Return True if the values of x are known now, that is, x is not traced."""
    return not isinstance(x, Tracer)


def _in_range(name: str, lengths: np.ndarray, limit: int | None) -> None:
    """Check 0 <= length <= limit in NumPy, so that known values are checked inside a trace too."""
    low, high = lengths.min(), lengths.max()
    if limit is not None and high > limit:
        raise ValueError(f"{name} must not exceed {limit}, the padded size; got {high}.")
    if low < 0:
        raise ValueError(f"{name} must not be negative; got {low}.")


def _no_nan(name: str, x) -> None:
    """Name the argument that contains NaN, in debug mode (NumPy: JAX itself would stop first)."""
    debug = jax.config.jax_debug_nans  # pyright: ignore[reportAttributeAccessIssue]
    if debug and is_known(x) and (nan := np.isnan(np.asarray(x, np.float64))).any():
        where = tuple(map(int, np.argwhere(nan)[0]))
        raise FloatingPointError(f"{name} is NaN at index {where} (shape {nan.shape}).")
