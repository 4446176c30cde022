"""Expected soft attention over what has been read (Arivazhagan et al. 2019; Chiu & Raffel 2018)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from simuljax.ops import arguments
from simuljax.ops.recurrence import linear_recurrence


def expected_soft_attention(
    alpha: Float[ArrayLike, "*batch T S"],
    energy: Float[ArrayLike, "*batch T S"],
    lengths: Int[ArrayLike, "*prefix"] | None = None,
    *,
    chunk: int | None = None,
) -> Float[Array, "*batch T S"]:
    """Soft attention in expectation over the alignment.

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
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk is {chunk}; a window holds at least 1 position.")
    if lengths is not None:
        real = arguments.real_positions("lengths", lengths, alpha.shape[:-2], alpha.shape[-1])
        alpha = jnp.where(real[..., None, :], alpha, 0)
        energy = jnp.where(real[..., None, :], energy, 0)
    if chunk is None or chunk >= alpha.shape[-1]:
        return _lookback(alpha, energy)
    return _chunkwise(alpha, energy, chunk)


def _lookback(alpha, u):
    """With m[k] = max_{l<=k} u[l] and decay[k] = exp(m[k-1] - m[k]) <= 1,

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


def _chunkwise(alpha, u, width):
    """beta[j] = sum_c alpha[j+c] exp(u[j] - m[j+c]) / s[j+c], c in [0, width)."""
    window = [_earlier(u, c) for c in range(width)]
    m = jax.lax.stop_gradient(jnp.stack(window).max(0))
    weights = [jnp.exp(u_l - m) for u_l in window]
    share = alpha / sum(weights)
    return sum((_later(share * w, c) for c, w in enumerate(weights)), jnp.zeros_like(alpha))


def _earlier(x, c):
    """x[k-c] at k, -inf before the start."""
    pad = [(0, 0)] * (x.ndim - 1) + [(c, 0)]
    return jnp.pad(x[..., : x.shape[-1] - c], pad, constant_values=-jnp.inf)


def _later(x, c):
    """x[j+c] at j, 0 beyond the end."""
    return jnp.pad(x[..., c:], [(0, 0)] * (x.ndim - 1) + [(0, c)])
