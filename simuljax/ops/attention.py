"""Expected soft attention over the source read (Arivazhagan et al. 2019; Chiu & Raffel 2018)."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from simuljax.ops import arguments
from simuljax.ops.alignment import linear_recurrence, vary_alike


def expected_soft_attention(
    alpha: Float[ArrayLike, "*batch T S"],
    energy: Float[ArrayLike, "*batch T S"],
    lengths: Int[ArrayLike, "*prefix"] | None = None,
    *,
    chunk: int | None = None,
) -> Float[Array, "*batch T S"]:
    """Return the soft attention in expectation over the alignment.

        beta[i,j] = sum_{k >= j} alpha[i,k] exp(u[i,j]) / sum_{l <= k} exp(u[i,l])

    With `chunk` = w the inner sum runs over l in (k-w, k] and the outer over k in [j, j+w).
    A row of beta sums to the row's mass in alpha. (Hard heads need no op: beta = alpha.)

    Args:
      alpha: expected alignment.
      energy: soft energies u, from projections of their own.
      lengths: real source positions; its shape is a prefix of the leading axes.
      chunk: width of the window that ends at the read position; None looks back to the start.
    """
    alpha, energy = arguments.floats("alpha", alpha, "TS"), arguments.floats("energy", energy, "TS")
    arguments.same_shape("energy", energy, "alpha", alpha)
    alpha, energy = vary_alike(alpha, energy)
    if chunk is not None:
        arguments.at_least_one("chunk", chunk)
    if lengths is not None:
        real = arguments.real_positions("lengths", lengths, alpha.shape[:-2], alpha.shape[-1])
        alpha = jnp.where(real[..., None, :], alpha, 0)
        energy = jnp.where(real[..., None, :], energy, 0)
    if not alpha.shape[-1]:
        return alpha
    if chunk is None or chunk >= alpha.shape[-1]:
        return _lookback(alpha, energy)
    return _chunkwise(alpha, energy, chunk)


def windowed_soft_attention(
    alpha: Float[ArrayLike, "*batch T W"],
    energy: Float[ArrayLike, "*batch T S"],
    lengths: Int[ArrayLike, "*prefix"] | None = None,
    *,
    step: int,
) -> Float[Array, "*batch T S"]:
    """Return infinite lookback attention from decisions at the ends of windows of `step` positions.

    The same as placing alpha on the windows' last real positions and calling
    `expected_soft_attention`, but the scans run over W = ceil(S / step) windows:

        M[v] = max over the windows up to v of u,    decay[v] = exp(M[v-1] - M[v])
        s[v] = decay[v] s[v-1] + sum_{j in v} exp(u[j] - M[v])
        w[v] = decay[v+1] w[v+1] + alpha[v] / s[v]
        beta[j] = exp(u[j] - M[v]) w[v]    for j in window v
    """
    alpha, energy = arguments.floats("alpha", alpha, "TW"), arguments.floats("energy", energy, "TS")
    size, windows = energy.shape[-1], -(-energy.shape[-1] // step)
    if alpha.shape != (*energy.shape[:-1], windows):
        raise ValueError(
            f"alpha has shape {alpha.shape}; {size} positions in windows of {step} need"
            f" {(*energy.shape[:-1], windows)}."
        )
    alpha, energy = vary_alike(alpha, energy)
    real = arguments.real_positions("lengths", lengths, energy.shape[:-2], size)[..., None, :]
    alpha = jnp.where(real[..., ::step], alpha, 0)  # a window is real if its first position is
    u = jnp.where(real, energy, -jnp.inf)
    u = jnp.pad(u, [(0, 0)] * (u.ndim - 1) + [(0, windows * step - size)], constant_values=-jnp.inf)
    u = u.reshape(*alpha.shape, step)
    m = jax.lax.cummax(jax.lax.stop_gradient(u).max(-1), axis=alpha.ndim - 1)
    m = jnp.where(jnp.isfinite(m), m, 0)  # nothing is real
    drop, edge = jnp.exp(m[..., :-1] - m[..., 1:]), jnp.zeros_like(m[..., :1])
    weight = jnp.exp(jnp.where(jnp.isfinite(u), u - m[..., None], -jnp.inf))
    s = linear_recurrence(jnp.concatenate([edge, drop], -1), weight.sum(-1))
    share = jnp.where(s > 0, alpha / jnp.where(s > 0, s, 1), 0)
    w = linear_recurrence(jnp.concatenate([drop, edge], -1), share, reverse=True)
    return (weight * w[..., None]).reshape(*energy.shape[:-1], windows * step)[..., :size]


def _lookback(alpha, u):
    """Compute lookback attention with m[k] = max_{l<=k} u[l], decay[k] = exp(m[k-1] - m[k]) <= 1,

    s[k] = decay[k] s[k-1] + exp(u[k] - m[k])       the softmax's denominator, over exp(m[k])
    w[j] = decay[j+1] w[j+1] + alpha[j] / s[j]
    beta[j] = exp(u[j] - m[j]) w[j]

    The result does not depend on m, hence no gradient through it; s >= 1, hence no epsilon.
    """
    m = jax.lax.stop_gradient(jax.lax.cummax(u, axis=u.ndim - 1))
    drop = jnp.exp(m[..., :-1] - m[..., 1:])
    edge = jnp.zeros_like(m[..., :1])
    weight = jnp.exp(u - m)
    s = linear_recurrence(jnp.concatenate([edge, drop], -1), weight)
    w = linear_recurrence(jnp.concatenate([drop, edge], -1), alpha / s, reverse=True)
    return weight * w


@functools.partial(jax.jit, static_argnums=2)  # or each eager call would compile anew
def _chunkwise(alpha, u, width):
    """Compute chunkwise attention: m[k] the maximum, s[k] = sum_l exp(u[l] - m[k]) over the window,

    beta[j] = sum_{c < width} exp(u[j] - m[j+c]) alpha[j+c] / s[j+c]
    """
    m = _windowed_max(jax.lax.stop_gradient(u), width)
    s = _sum_over(width, lambda c: jnp.exp(_shift(u, -c, width, -jnp.inf) - m), alpha)
    share = alpha / s

    def term(c):
        return jnp.exp(u - _shift(m, c, width, jnp.inf)) * _shift(share, c, width, 0.0)

    return _sum_over(width, term, alpha)


def _windowed_max(x, width):
    window = (1,) * (x.ndim - 1) + (width,)
    before = [(0, 0)] * (x.ndim - 1) + [(width - 1, 0)]
    low = jnp.asarray(-jnp.inf, x.dtype)
    return jax.lax.reduce_window(x, low, jax.lax.max, window, (1,) * x.ndim, before)


def _sum_over(count, term, like):
    """Return sum_{c < count} term(c), one at a time and recomputed in the backward pass."""

    @jax.checkpoint
    def add(total, c):
        return total + term(c), None

    start, _ = vary_alike(jnp.zeros_like(like), like)
    return jax.lax.scan(add, start, jnp.arange(count))[0]


def _shift(x, c, width, outside):
    """Return x[j+c] at j for |c| < width; c may be traced."""
    pad = [(0, 0)] * (x.ndim - 1) + [(width, width)]
    padded = jnp.pad(x, pad, constant_values=outside)
    return jax.lax.dynamic_slice_in_dim(padded, width + c, x.shape[-1], axis=x.ndim - 1)
