"""Token-level losses: label-smoothed cross-entropy and online knowledge distillation."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from simuljax.ops import arguments

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
    targets = jnp.asarray(targets)
    if targets.shape != logp.shape[:2]:
        raise ValueError(f"targets has shape {targets.shape}, logits {logp.shape}.")
    known = (targets >= 0) & (targets < logp.shape[-1])
    chosen = jnp.take_along_axis(logp, jnp.where(known, targets, 0)[..., None], axis=-1)[..., 0]
    token_loss = -(1 - smoothing) * jnp.where(known, chosen, jnp.nan)
    if smoothing:  # 0 times the -inf of a masked token would be NaN
        token_loss -= smoothing * logp.mean(-1)
    return sum_tokens(token_loss, target_length)


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
    return sum_tokens(token_loss, target_length)


def _without_padding(logits: Float[Array, "B T V"], target_length) -> Float[Array, "B T V"]:
    """Zero padded steps: what is not finite there would reach the gradient, as 0 times it."""
    batch, size, _ = logits.shape
    real = arguments.real_positions("target_length", target_length, (batch,), size)
    return jnp.where(real[..., None], logits, 0)


def sum_tokens(token_loss: Float[Array, "B T"], target_length) -> PerExample:
    """Return the sum over real tokens, and their number."""
    batch, size = token_loss.shape
    real = arguments.real_positions("target_length", target_length, (batch,), size)
    return jnp.where(real, token_loss, 0).sum(-1), real.sum(-1).astype(token_loss.dtype)
