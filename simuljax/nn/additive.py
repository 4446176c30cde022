"""Additive attention (Bahdanau et al. 2015).

    e[k] = v . tanh(W s + U h[k] + b),  a = softmax(e),  context = sum_k a[k] h[k]

where s is what a decoder knows and h are states of an encoder.
"""

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from simuljax.config.model import Width
from simuljax.nn.layers import dense, real


@flax.struct.dataclass
class Seen:
    """Source states, and U h + b of each, computed once per source."""

    key: jax.Array  # [B, K, A]
    value: jax.Array  # [B, K, D]
    lengths: jax.Array  # int32 [B]


class AdditiveAttention(nn.Module):
    """The maps W, U and v."""

    width: Width

    def setup(self) -> None:
        size = self.width.model
        self.query = dense(size, self.width, bias=False)
        self.key = dense(size, self.width)
        self.v = self.param("v", nn.initializers.normal(size**-0.5), (size,))

    def __call__(self, x: jax.Array, seen: Seen) -> tuple[jax.Array, jax.Array]:
        """Return the context [B, D] of x [B, X], and the weights [B, K]."""
        return attend_additively(self.query(x), self.v, seen)


@jax.checkpoint  # in a loop over targets, tanh [B, K, A] of every target would not fit in memory
def attend_additively(query: jax.Array, v: jax.Array, seen: Seen) -> tuple[jax.Array, jax.Array]:
    """Return context [B, D] and float32 weights [B, K] of queries W s [B, A]; 0 if no source."""
    bent = jnp.tanh(query[:, None] + seen.key)
    v = v.astype(bent.dtype)
    energy = jnp.einsum("bka,a->bk", bent, v, preferred_element_type=jnp.float32)
    mask = real(seen.lengths, seen.key.shape[1])
    weight = jax.nn.softmax(jnp.where(mask, energy, -1e30)) * mask
    return jnp.einsum("bk,bkd->bd", weight.astype(seen.value.dtype), seen.value), weight
