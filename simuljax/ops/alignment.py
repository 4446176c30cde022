"""Expected monotonic alignment (Raffel et al. 2017; one per head in Ma et al. 2020).

Dimension key: N problems, T target steps, S source positions.
"""

import functools
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from simuljax.ops import arguments
from simuljax.ops.alignment_kernel import MAX_TARGETS, fused_alignment


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


METHODS = ("exact", "closed_form", "fused", "auto")
CLOSED_FORM_EPS = 1e-6


def expected_alignment(
    p: Float[ArrayLike, "*batch T S"],
    lengths: Int[ArrayLike, "*prefix"] | None = None,
    *,
    method: str = "exact",
) -> Float[Array, "*batch T S"]:
    """Return the probability alpha[i,j] that step i is written after reading source position j.

        q[i,j] = (1 - p[i,j-1]) q[i,j-1] + alpha[i-1,j]      q[i,0] = alpha[i-1,0]
        alpha[i,j] = p[i,j] q[i,j]                           alpha[-1,:] = (1, 0, ..., 0)

    Source positions at or beyond `lengths` count as p = 0. Rows may sum to less than 1; see
    `preserve_mass`.

    Args:
      p: probability of writing step i at position j rather than reading on.
      lengths: real source positions; its shape is a prefix of the leading axes.
      method: `exact` scans rows, and positions associatively inside a row. `fused` gives the
        same numbers from one kernel (interpreted, slowly, where there is no GPU) and has first
        derivatives in reverse mode only. `auto` takes `fused` where the default device runs it
        and `exact` elsewhere; `explain_method` says which and why.
        `closed_form` is the published formula, kept for comparison: it loses mass.
    """
    p = arguments.floats("p", p, "TS")
    leading, (_, sources) = p.shape[:-2], p.shape[-2:]
    chosen = explain_method(method, p.shape, p.dtype).method
    if chosen == "fused" and p.size:
        return _fused(p, lengths, preserve=False)
    if lengths is not None:
        real_S = arguments.real_positions("lengths", lengths, leading, sources)
        p = jnp.where(real_S[..., None, :], p, 0)
    if p.size == 0:
        return p
    return _scan_rows(_exact_row if chosen == "exact" else _closed_form_row, p)


def preserved_alignment(
    p: Float[ArrayLike, "*batch T S"],
    lengths: Int[ArrayLike, "*prefix"] | None = None,
    *,
    method: str = "exact",
) -> Float[Array, "*batch T S"]:
    """Return `preserve_mass(expected_alignment(p))`, from one kernel if the method is `fused`."""
    p = arguments.floats("p", p, "TS")
    if explain_method(method, p.shape, p.dtype).method == "fused" and p.size:
        return _fused(p, lengths, preserve=True)
    return preserve_mass(expected_alignment(p, lengths, method=method), lengths)


class MethodChoice(NamedTuple):
    """The method that runs, and the reason."""

    method: str
    reason: str


def explain_method(
    method: str, shape: tuple[int, ...], dtype: jax.typing.DTypeLike = jnp.float32
) -> MethodChoice:
    """Return the method that `expected_alignment` runs for a p of this shape, and why."""
    arguments.one_of("method", method, METHODS)
    if method != "auto":
        return MethodChoice(method, "asked for")
    obstacle = _obstacle_to_kernel(shape, jnp.dtype(dtype))
    if obstacle:
        return MethodChoice("exact", obstacle)
    return MethodChoice("fused", "a CUDA device, float32 and a shape the kernel takes")


def preserve_mass(
    alpha: Float[ArrayLike, "*batch T S"], lengths: Int[ArrayLike, "*prefix"] | None = None
) -> Float[Array, "*batch T S"]:
    """Add the residual 1 - sum_j alpha[i,j] at the last real source position.

    Padded positions are 0 in the result, whatever they held. There is no clamp: a residual that
    rounds to -1e-7 stays, since clamping it would cut the gradient.
    """
    alpha = arguments.floats("alpha", alpha, "TS")
    position, count = jnp.arange(alpha.shape[-1]), alpha.shape[-1]
    if lengths is not None:
        count = arguments.spread("lengths", lengths, alpha.shape[:-2], count)[..., None, None]
        alpha = jnp.where(position < count, alpha, 0)
    residual = 1 - alpha.sum(-1, keepdims=True)
    return alpha + jnp.where(position == count - 1, residual, 0)


def expected_delays(
    alpha: Float[ArrayLike, "*batch T S"], positions: ArrayLike | None = None
) -> Float[Array, "*batch T"]:
    """Return g[i] = sum_j positions[j] alpha[i,j].

    Positions count encoder states from 1. At decision points give the index of the state each
    decision stands on ([S], or [B, S] where it differs), so that a delay keeps its unit whatever
    the step.
    """
    alpha = arguments.floats("alpha", alpha, "TS")
    sources = alpha.shape[-1]
    if positions is None:
        positions = jnp.arange(1, sources + 1)
    positions = jnp.asarray(positions, alpha.dtype)
    leading = positions.shape[:-1]
    if positions.shape[-1:] != (sources,) or leading != alpha.shape[:-2][: len(leading)]:
        raise ValueError(
            f"positions has shape {positions.shape}; alpha {alpha.shape} needs [{sources}], or"
            " that after a prefix of its leading axes."
        )
    missing = (1,) * (alpha.ndim - positions.ndim)
    return (alpha * positions.reshape(*leading, *missing, sources)).sum(-1)


@functools.partial(jax.jit, static_argnums=0)  # or each eager call would compile anew
def _scan_rows(row, p):
    """Compute alpha[i] = row(p[i], alpha[i-1]) for every target step."""
    p_TS = jnp.moveaxis(p, -2, 0)
    start = jnp.broadcast_to(jnp.arange(p.shape[-1]) == 0, p_TS.shape[1:]).astype(p.dtype)

    def step(previous, p_row):
        alpha = row(p_row, previous)
        return alpha, alpha

    start, p_TS = vary_alike(start, p_TS)
    _, alpha = jax.lax.scan(step, start, p_TS)
    return jnp.moveaxis(alpha, 0, -2)


def _exact_row(p, previous):
    return p * linear_recurrence(_before(1 - p, 0), previous)


def _closed_form_row(p, previous):
    """Compute p cumprod(1-p) cumsum(previous / clamp(cumprod(1-p))), wrong after an underflow."""
    survival = jnp.cumprod(_before(1 - p, 1), axis=-1)
    return p * survival * jnp.cumsum(previous / jnp.clip(survival, CLOSED_FORM_EPS, 1), axis=-1)


def _before(x, start):
    """Return x[j-1] at j, and `start` at 0."""
    pad = [(0, 0)] * (x.ndim - 1) + [(1, 0)]
    return jnp.pad(x[..., :-1], pad, constant_values=start)


def _fused(p, lengths, *, preserve):
    *leading, targets, sources = p.shape
    if lengths is not None:
        arguments.spread("lengths", lengths, tuple(leading), sources)  # for its checks
        lengths = jnp.asarray(lengths, jnp.int32).reshape(-1)
        p, lengths = vary_alike(p, lengths)
    p_NTS = p.reshape(-1, targets, sources)
    alpha = fused_alignment(p_NTS, lengths, _device().platform != "gpu", preserve)
    return alpha.reshape(p.shape)  # pyright: ignore[reportAttributeAccessIssue]


def _device():
    """Return the device that runs computations whose inputs have no device of their own."""
    default = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    return default if isinstance(default, jax.Device) else jax.devices(default)[0]


def _obstacle_to_kernel(shape, dtype) -> str | None:
    device = _device()
    if device.platform != "gpu":
        return f"the kernel needs a CUDA device and this is {device.platform}"
    if not re.match(r"[89]|\d\d", str(getattr(device, "compute_capability", ""))):
        return f"the kernel needs compute capability 8.0 and this is {device.device_kind}"
    if dtype.itemsize > 4:
        return f"the kernel computes in float32 and p is {dtype}"
    if shape[-2] > MAX_TARGETS:
        return f"the kernel takes up to {MAX_TARGETS} target steps and p has {shape[-2]}"
    return None
