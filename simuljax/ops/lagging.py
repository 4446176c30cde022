"""Latency terms on expected delays, for training (Arivazhagan et al. 2019; Cho & Esipova 2016).

All take delays g [..., T] in encoder states, the source length S in the same unit and the target
length T with end-of-sentence; padded target steps do not count. There is no cut-off at the end of
the source here: that belongs to evaluation. A sentence without a target step has latency 0.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from simuljax.ops import arguments


def average_lagging(
    delays: Float[ArrayLike, "*batch T"], source_length: ArrayLike, target_length: ArrayLike
) -> Float[Array, "*batch"]:
    """Return AL = mean_i (g[i] - i S/T), i from 0."""
    delays, source, target, real = _prepare(delays, source_length, target_length)
    return _mean(delays - _ideal(delays, source, target), real, target)


def differentiable_average_lagging(
    delays: Float[ArrayLike, "*batch T"], source_length: ArrayLike, target_length: ArrayLike
) -> Float[Array, "*batch"]:
    """Return DAL = mean_i (g'[i] - i S/T), g'[0] = g[0], g'[i] = max(g[i], g'[i-1] + S/T).

    Unrolled, g'[i] - i S/T = max_{l<=i} (g[l] - l S/T): a running maximum of the lags.
    """
    delays, source, target, real = _prepare(delays, source_length, target_length)
    lag = delays - _ideal(delays, source, target)
    return _mean(jax.lax.cummax(lag, axis=lag.ndim - 1), real, target)


def average_proportion(
    delays: Float[ArrayLike, "*batch T"], source_length: ArrayLike, target_length: ArrayLike
) -> Float[Array, "*batch"]:
    """Return AP = sum_i g[i] / (S T)."""
    delays, source, target, real = _prepare(delays, source_length, target_length)
    return _mean(delays / jnp.maximum(source, 1)[..., None], real, target)


def _prepare(delays, source_length, target_length):
    delays = arguments.floats("delays", delays, "T")
    leading, steps = delays.shape[:-1], delays.shape[-1]
    source = arguments.spread("source_length", source_length, leading).astype(delays.dtype)
    target = arguments.spread("target_length", target_length, leading, steps)
    real = jnp.arange(steps) < target[..., None]
    return jnp.where(real, delays, 0), source, jnp.maximum(target, 1).astype(delays.dtype), real


def _ideal(delays, source, target):
    return jnp.arange(delays.shape[-1]) * (source / target)[..., None]


def _mean(values, real, target):
    return jnp.where(real, values, 0).sum(-1) / target
