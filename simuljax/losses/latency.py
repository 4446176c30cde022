"""Latency losses: one number per sentence from the delays of all heads of all layers."""

import jax
import jax.numpy as jnp
from jaxtyping import ArrayLike, Float, Int

from simuljax import ops
from simuljax.losses.cross_entropy import PerExample
from simuljax.ops import arguments

METRICS = {
    "DAL": ops.differentiable_average_lagging,
    "AL": ops.average_lagging,
    "AP": ops.average_proportion,
}
GATHERS = ("metric_then_heads", "heads_then_metric", "max", "mean")


def latency(
    delays: Float[ArrayLike, "B heads T"],
    source_length: ArrayLike,
    target_length: Int[ArrayLike, " B"],
    *,
    metric: str = "DAL",
    gather: str = "metric_then_heads",
    clip: bool = True,
) -> PerExample:
    """Return the latency of a sentence whose heads have these expected delays.

    gather `metric_then_heads`: L_h = metric(g_h), then sum_h softmax_h(L)_h L_h.
    `heads_then_metric` (Ma et al. 2020, MMA): delays weighted per token by their softmax over
    heads, then the metric. `max` and `mean`: of L_h over heads. `clip` holds the result at 0 or
    above (Ma et al. 2020, eq. 4). Returns the value and weight 1 (0 without targets).
    """
    arguments.one_of("metric", metric, METRICS)
    arguments.one_of("gather", gather, GATHERS)
    delays = _real_delays(delays, target_length)[0]
    if gather == "heads_then_metric":
        g = _softmax_weighted(delays, axis=1)
        value = METRICS[metric](g, source_length, target_length)
    else:
        per_head = METRICS[metric](delays, source_length, target_length)
        value = {"max": jnp.max, "mean": jnp.mean}.get(gather, _softmax_weighted)(per_head, axis=1)
    value = jnp.maximum(value, 0) if clip else value
    return value, _exists(target_length, delays)


def head_variance(
    delays: Float[ArrayLike, "B heads T"], target_length: Int[ArrayLike, " B"]
) -> PerExample:
    """mean_i Var_h(g[h,i]), unbiased, over real target steps: how far heads drift apart.

    Returns the value and weight 1 (0 for a sentence without targets). One head has no variance.
    """
    delays, real = _real_delays(delays, target_length)
    heads = delays.shape[1]
    deviation = delays - delays.mean(1, keepdims=True)
    variance = (deviation**2).sum(1) / max(heads - 1, 1)
    value = jnp.where(real, variance, 0).sum(-1) / jnp.maximum(real.sum(-1), 1)
    return value, _exists(target_length, delays)


def _softmax_weighted(x, axis):
    return (jax.nn.softmax(x, axis) * x).sum(axis)


def _real_delays(delays, target_length):
    """Return delays, 0 at padded target steps, and which steps are real [B, T]."""
    delays = arguments.floats("delays", delays, "BHT", leading=False)
    batch, _, steps = delays.shape
    real = arguments.real_positions("target_length", target_length, (batch,), steps)
    return jnp.where(real[:, None], delays, 0), real


def _exists(target_length, delays):
    batch, _, steps = delays.shape
    length = arguments.spread("target_length", target_length, (batch,), steps)
    return (length > 0).astype(delays.dtype)
