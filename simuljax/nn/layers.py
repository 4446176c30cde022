"""Basic layers shared by all networks.

The running statistics of `BatchNorm` are a collection of their own, the one part of a network that
its forward pass changes. It goes in beside the parameters and comes out with the result:

    out, new = model.apply(
        {"params": params, "statistics": statistics}, ..., train=True, mutable=["statistics"]
    )

Without `train` nothing changes, and nothing but the statistics comes from outside the example.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from simuljax.config.model import Width

Carry = TypeVar("Carry")
Out = TypeVar("Out")


def dense(size: int, width: Width, *, name: str | None = None, bias: bool = True) -> nn.Dense:
    """Return a linear layer with Xavier initialisation."""
    return nn.Dense(
        size,
        use_bias=bias,
        dtype=width.dtype,
        kernel_init=nn.initializers.xavier_uniform(),
        name=name,
    )


def layer_norm(width: Width) -> nn.LayerNorm:
    """Return layer normalisation (mean and variance are float32 whatever the dtype)."""
    return nn.LayerNorm(epsilon=1e-5, dtype=width.dtype)


def embedding(vocabulary: int, width: Width) -> nn.Embed:
    """Return a token embedding with standard deviation 1 / sqrt(D)."""
    return nn.Embed(
        vocabulary,
        width.model,
        dtype=width.dtype,
        embedding_init=nn.initializers.normal(width.model**-0.5),
    )


class Dropout(nn.Module):
    """Dropout at a rate in 256ths; the values that are kept are scaled by the share kept.

    A byte decides over each number: a quarter of the random words that one to a word would take,
    and random words are a good part of what a small layer costs.
    """

    rate: float

    @nn.compact
    def __call__(self, x: Array, *, deterministic: bool) -> Array:
        kept = round((1 - self.rate) * 256)
        if deterministic or kept == 256:
            return x
        words = (*x.shape[:-1], -(-x.shape[-1] // 4))
        drawn = jax.random.bits(self.make_rng("dropout"), words, jnp.uint32)
        drawn = jax.lax.bitcast_convert_type(drawn, jnp.uint8)
        drawn = drawn.reshape(*x.shape[:-1], -1)[..., : x.shape[-1]]
        return jnp.where(drawn < kept, x * (256 / kept), 0)


class FeedForward(nn.Module):
    """x -> W2 relu(W1 x)."""

    width: Width

    @nn.compact
    def __call__(self, x: Array, *, train: bool) -> Array:
        hidden = nn.relu(dense(self.width.hidden, self.width, name="inner")(x))
        hidden = Dropout(self.width.dropout)(hidden, deterministic=not train)
        return dense(self.width.model, self.width, name="outer")(hidden)


def sinusoids(positions: Array, width: int) -> Array:
    """Return [..., width]: sines, then cosines, at wavelengths from 2 pi to 10^4 2 pi."""
    half = width // 2
    rate = jnp.exp(-jnp.log(10_000.0) * jnp.arange(half) / (half - 1))
    angle = positions[..., None].astype(jnp.float32) * rate
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], -1)


def embed_positions(x: Array, places: Array | None = None) -> Array:
    """Return sqrt(D) x plus sinusoids of places, by default 0, 1, ...: input of a first layer."""
    places = jnp.arange(x.shape[1]) if places is None else places
    return x * x.shape[-1] ** 0.5 + sinusoids(places, x.shape[-1]).astype(x.dtype)


def real(lengths: Array, size: int) -> Array:
    """Return [B, size], True at positions that are not padding."""
    return jnp.arange(size) < lengths[:, None]


def zero_padding(x: Array, lengths: Array) -> Array:
    """Set padded positions of [B, S, ...] to 0."""
    mask = real(lengths, x.shape[1])
    return jnp.where(mask.reshape(*mask.shape, *(1,) * (x.ndim - 2)), x, 0)


def scan_layers(
    layer: nn.Module,
    count: int,
    body: Callable[[Any, Carry, Any], tuple[Carry, Out]],
    carry: Carry,
    xs: Any = None,
    *,
    unroll: bool = False,
) -> tuple[Carry, Out]:
    """Scan `body(layer, carry, x)` over `count` layers, whose variables have a leading layer axis.

    One layer is compiled, however many there are, unless they are to be unrolled.
    """
    lifted = nn.scan(
        body,
        variable_axes={"params": 0, "statistics": 0},
        split_rngs={"params": True, "dropout": True, "noise": True},
        length=count,
        unroll=count if unroll else 1,
    )
    return lifted(layer, carry, xs)


STATISTICS = "statistics"


def masked_moments(x: Array, mask: Array, axis: str | None = None) -> tuple[Array, Array, Array]:
    """Return mean [C], biased variance [C] and count [] of x [..., C] where `mask` is True.

    The mask has the first axes of x. Sums and counts are added over the replicas of the named
    `axis`, so that many devices find what one finds. The variance is that of differences from the
    mean: it cannot be cancelled away.
    """

    def total(values: Array) -> Array:
        values = jnp.sum(values, range(x.ndim - 1))
        return values if axis is None else jax.lax.psum(values, axis)

    x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    mask = mask.reshape(*mask.shape, *(1,) * (x.ndim - mask.ndim))
    count = total(jnp.broadcast_to(mask, (*x.shape[:-1], 1)).astype(x.dtype))[0]
    share = 1 / jnp.maximum(count, 1)
    mean = total(jnp.where(mask, x, 0)) * share
    variance = total(jnp.where(mask, x - mean, 0) ** 2) * share
    return mean, variance, count


DECAY = 0.9  # of running statistics, from one batch to the next


class BatchNorm(nn.Module):
    """scale * normalised x + bias: batch moments in training, else running moments.

    `axis` names the replicas that a training batch is spread over. Statistics and arithmetic are
    float32; the result is of `dtype`.
    """

    dtype: Any = jnp.float32
    axis: str | None = None

    @nn.compact
    def __call__(self, x: Array, lengths: Array, *, train: bool) -> Array:
        shape = x.shape[-1:]
        scale = self.param("scale", nn.initializers.ones, shape)
        bias = self.param("bias", nn.initializers.zeros, shape)
        mean = self.variable(STATISTICS, "mean", jnp.zeros, shape, jnp.float32)
        variance = self.variable(STATISTICS, "variance", jnp.ones, shape, jnp.float32)
        moments = mean.value, variance.value
        if train and not self.is_initializing():
            *moments, count = masked_moments(x, real(lengths, x.shape[1]), self.axis)
            share = jnp.where(count > 0, 1 - DECAY, 0)  # of a batch with real ones
            for running, new in zip((mean, variance), moments, strict=True):
                running.value = running.value + share * (new - running.value)
        normal = (x - moments[0]) * jax.lax.rsqrt(moments[1] + 1e-5)
        return (normal * scale + bias).astype(self.dtype)
