"""The linear recurrence that alignment and lookback attention share."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from simuljax.ops import arguments


@functools.partial(jax.jit, static_argnames="reverse")
def linear_recurrence(
    decay: Float[ArrayLike, "*batch S"],
    value: Float[ArrayLike, "*batch S"],
    *,
    reverse: bool = False,
) -> Float[Array, "*batch S"]:
    """Solve h[j] = decay[j] h[j-1] + value[j] along the last axis (h[j+1] if reverse; 0 outside).

    Computed by an associative scan over (decay, value) with
    (d1, v1) * (d2, v2) = (d1 d2, d2 v1 + v2): no division, so zero decays are exact.

    It is the solution of the bidiagonal system h - decay shift(h) = value, and is given to JAX
    as such: derivatives in both modes are again linear recurrences, transposed ones run the
    other way, and nothing of the scan's tree is kept for the backward pass.
    """

    decay, value = arguments.floats("decay", decay, "S"), arguments.floats("value", value, "S")
    arguments.same_shape("value", value, "decay", decay)
    decay, value = vary_alike(decay, value)

    def system(h):
        return h - decay * _neighbour(h, reverse)

    def solve(_, rhs):
        return _scan(decay, rhs, reverse)

    def solve_transposed(_, rhs):  # the decay that leads from j to j+1 now leads back
        return _scan(_neighbour(decay, not reverse), rhs, not reverse)

    return jax.lax.custom_linear_solve(system, value, solve, solve_transposed)


def _scan(decay, value, reverse):
    def combine(left, right):
        (d1, v1), (d2, v2) = left, right
        return d1 * d2, d2 * v1 + v2

    return jax.lax.associative_scan(combine, (decay, value), reverse, value.ndim - 1)[1]


def _neighbour(x, reverse):
    """Return x[j-1] at j (x[j+1] if reverse), and 0 at the open end."""
    pad = [(0, 0)] * (x.ndim - 1) + [(0, 1) if reverse else (1, 0)]
    return jnp.pad(x[..., 1:] if reverse else x[..., :-1], pad)


def vary_alike(*arrays: jax.Array) -> tuple[jax.Array, ...]:
    """Mark arrays inside `shard_map` as varying over all mesh axes that any of them varies over."""
    varying = [jax.typeof(x).manual_axis_type.varying for x in arrays]
    missing = [tuple(frozenset().union(*varying) - own) for own in varying]
    return tuple(
        jax.lax.pcast(x, axes, to="varying") if axes else x
        for x, axes in zip(arrays, missing, strict=True)
    )
