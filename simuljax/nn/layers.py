"""Basic layers shared by all networks."""

from collections.abc import Callable
from typing import Any, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp

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


def layer_norm(width: Width, name: str | None = None) -> nn.LayerNorm:
    """Return layer normalisation (mean and variance are float32 whatever the dtype)."""
    return nn.LayerNorm(epsilon=1e-5, dtype=width.dtype, name=name)


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
    def __call__(self, x: jax.Array, *, deterministic: bool) -> jax.Array:
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
    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        hidden = nn.relu(dense(self.width.hidden, self.width, name="inner")(x))
        hidden = Dropout(self.width.dropout)(hidden, deterministic=not train)
        return dense(self.width.model, self.width, name="outer")(hidden)


def sinusoids(positions: jax.Array, width: int) -> jax.Array:
    """Return [..., width]: sines, then cosines, at wavelengths from 2 pi to 10^4 2 pi."""
    half = width // 2
    rate = jnp.exp(-jnp.log(10_000.0) * jnp.arange(half) / (half - 1))
    angle = positions[..., None].astype(jnp.float32) * rate
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], -1)


def embed_positions(x: jax.Array) -> jax.Array:
    """Return sqrt(D) x plus sinusoidal positions, the input of every first layer."""
    positions = sinusoids(jnp.arange(x.shape[1]), x.shape[-1])
    return x * x.shape[-1] ** 0.5 + positions.astype(x.dtype)


def real(lengths: jax.Array, size: int) -> jax.Array:
    """Return [B, size], True at positions that are not padding."""
    return jnp.arange(size) < lengths[:, None]


def zero_padding(x: jax.Array, lengths: jax.Array) -> jax.Array:
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
