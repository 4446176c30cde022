"""Batch normalisation over real positions, with running statistics as explicit state.

The statistics are a collection of their own, the one part of a network that its forward pass
changes. It goes in beside the parameters and comes out with the result:

    out, new = model.apply(
        {"params": params, "statistics": statistics}, ..., train=True, mutable=["statistics"]
    )
    statistics = new["statistics"]

Without `train` nothing changes, and nothing but the statistics comes from outside the example.
"""

from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from simuljax.nn.layers import real

STATISTICS = "statistics"


@flax.struct.dataclass
class Moments:
    """Mean and (biased) variance of every channel, and the number of values."""

    mean: jax.Array  # [C]
    variance: jax.Array  # [C]
    count: jax.Array  # []


def masked_moments(x: jax.Array, mask: jax.Array, axis: str | None = None) -> Moments:
    """Return the moments of x [..., C] where `mask`, which has the first axes of x, is True.

    Sums and counts are added over the replicas of the named `axis`, so that many devices find what
    one finds. The variance is that of differences from the mean: it cannot be cancelled away.
    """

    def total(values: jax.Array) -> jax.Array:
        values = jnp.sum(values, range(x.ndim - 1))
        return values if axis is None else jax.lax.psum(values, axis)

    x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    mask = mask.reshape(*mask.shape, *(1,) * (x.ndim - mask.ndim))
    count = total(jnp.broadcast_to(mask, (*x.shape[:-1], 1)).astype(x.dtype))[0]
    share = 1 / jnp.maximum(count, 1)
    mean = total(jnp.where(mask, x, 0)) * share
    variance = total(jnp.where(mask, x - mean, 0) ** 2) * share
    return Moments(mean=mean, variance=variance, count=count)


def normalise(x: jax.Array, moments: Moments, epsilon: float) -> jax.Array:
    """Return (x - mean) / sqrt(variance + epsilon)."""
    return (x - moments.mean) * jax.lax.rsqrt(moments.variance + epsilon)


def moved(running: Moments, batch: Moments, decay: float) -> Moments:
    """Move `running` towards `batch` by 1 - decay; leave it if the batch has no real position."""
    share = jnp.where(batch.count > 0, 1 - decay, 0)
    return jax.tree.map(lambda old, new: old + share * (new - old), running, batch)


class BatchNorm(nn.Module):
    """scale * normalised x + bias: batch moments in training, else running moments.

    `axis` names the replicas that a training batch is spread over. Statistics and arithmetic are
    float32; the result is of `dtype`.
    """

    dtype: Any = jnp.float32
    axis: str | None = None
    decay: float = 0.9
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: jax.Array, lengths: jax.Array, *, train: bool) -> jax.Array:
        self._check(train)
        shape = x.shape[-1:]
        scale = self.param("scale", nn.initializers.ones, shape)
        bias = self.param("bias", nn.initializers.zeros, shape)
        mean = self.variable(STATISTICS, "mean", jnp.zeros, shape, jnp.float32)
        variance = self.variable(STATISTICS, "variance", jnp.ones, shape, jnp.float32)
        moments = Moments(mean=mean.value, variance=variance.value, count=jnp.ones(()))
        if train and not self.is_initializing():
            running = moments
            moments = masked_moments(x, real(lengths, x.shape[1]), self.axis)
            kept = moved(running, moments, self.decay)
            mean.value, variance.value = kept.mean, kept.variance
        return (normalise(x, moments, self.epsilon) * scale + bias).astype(self.dtype)

    def _check(self, train: bool) -> None:
        if self.is_initializing():
            return
        if not self.has_variable(STATISTICS, "mean"):
            raise ValueError(
                f"{self.name} has no running statistics: give apply() the collection "
                f"{STATISTICS!r} that init() returned beside 'params'"
            )
        if train and not self.is_mutable_collection(STATISTICS):
            raise ValueError(
                f"{self.name} updates its running statistics in training: call "
                f"apply(..., mutable=[{STATISTICS!r}]) and keep what it returns"
            )
