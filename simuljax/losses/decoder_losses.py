"""Losses of what a decoder writes, and when: cross-entropy, distillation, latency, variance."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from simuljax import ops
from simuljax.ops import arguments

METRICS = {
    "DAL": ops.differentiable_average_lagging,
    "AL": ops.average_lagging,
    "AP": ops.average_proportion,
}
GATHERS = ("metric_then_heads", "heads_then_metric", "max", "mean")
PerExample = tuple[Float[Array, " B"], Float[Array, " B"]]


def label_smoothed_cross_entropy(
    logits: Float[ArrayLike, "B T V"],
    targets: Int[ArrayLike, "B T"],
    target_length: Int[ArrayLike, " B"],
    *,
    smoothing: float = 0.1,
) -> PerExample:
    """-sum_t sum_v q[v] log p[t,v],  q[v] = (1 - eps) [v = target] + eps / V.

    Returns the sum over real tokens and their count. A target outside the vocabulary gives NaN,
    never a plausible number.
    """
    given = arguments.floats("logits", logits, "BTV", leading=False)
    logp = jax.nn.log_softmax(_without_padding(given, target_length))
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing is {smoothing}; it must lie in [0, 1).")
    targets = arguments.integers("targets", targets)
    if targets.shape != logp.shape[:2]:
        raise ValueError(f"targets has shape {targets.shape}, logits {logp.shape}.")
    known = (targets >= 0) & (targets < logp.shape[-1])
    chosen = jnp.take_along_axis(logp, jnp.where(known, targets, 0)[..., None], axis=-1)[..., 0]
    token_loss = -(1 - smoothing) * jnp.where(known, chosen, jnp.nan)
    if smoothing:  # 0 times the -inf of a masked token would be NaN
        token_loss -= smoothing * logp.mean(-1)
    return _sum_tokens(token_loss, target_length)


def online_distillation(
    student_logits: Float[ArrayLike, "B T V"],
    teacher_logits: Float[ArrayLike, "B T V"],
    target_length: Int[ArrayLike, " B"],
) -> PerExample:
    """-sum_t sum_v teacher[t,v] log student[t,v], the teacher detached (Tang et al. 2021).

    Both branches see the same target prefix. Returns the sum over real tokens and their count.
    """
    student = arguments.floats("student_logits", student_logits, "BTV", leading=False)
    teacher = arguments.floats("teacher_logits", teacher_logits, "BTV", leading=False)
    arguments.same_shape("teacher_logits", teacher, "student_logits", student)
    student, teacher = (_without_padding(x, target_length) for x in (student, teacher))
    teacher = jax.lax.stop_gradient(jax.nn.softmax(teacher))
    likely = teacher != 0  # elsewhere the student may be -inf, as for a masked token
    token_loss = -(teacher * jnp.where(likely, jax.nn.log_softmax(student), 0)).sum(-1)
    return _sum_tokens(token_loss, target_length)


def _without_padding(logits: Float[Array, "B T V"], target_length) -> Float[Array, "B T V"]:
    """Zero padded steps: what is not finite there would reach the gradient, as 0 times it."""
    return jnp.where(_real(target_length, logits.shape[:2])[..., None], logits, 0)


def _sum_tokens(token_loss: Float[Array, "B T"], target_length) -> PerExample:
    """Return the sum over real tokens, and their number."""
    real = _real(target_length, token_loss.shape)
    return jnp.where(real, token_loss, 0).sum(-1), real.sum(-1).astype(token_loss.dtype)


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
    delays, real = _real_delays(delays, target_length)
    if gather == "heads_then_metric":
        g = _softmax_weighted(delays, axis=1)
        value = METRICS[metric](g, source_length, target_length)
    else:
        per_head = METRICS[metric](delays, source_length, target_length)
        value = {"max": jnp.max, "mean": jnp.mean}.get(gather, _softmax_weighted)(per_head, axis=1)
    value = jnp.maximum(value, 0) if clip else value
    return value, real.any(-1).astype(delays.dtype)


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
    return value, real.any(-1).astype(delays.dtype)


def _softmax_weighted(x, axis):
    return (jax.nn.softmax(x, axis) * x).sum(axis)


def _real_delays(delays, target_length):
    """Return delays, 0 at padded target steps, and which steps are real [B, T]."""
    delays = arguments.floats("delays", delays, "BHT", leading=False)
    real = _real(target_length, delays.shape[::2])
    return jnp.where(real[:, None], delays, 0), real


def _real(target_length, shape: tuple[int, ...]):
    """Return bool [B, T]: the steps before the length."""
    return arguments.real_positions("target_length", target_length, shape[:1], shape[1])
