"""The joiner's layer (Liu et al. 2021): cross-attention from targets to source states."""

import flax.linen as nn
import jax

from simuljax.config.model import Width
from simuljax.nn.attention import Heads, View, attend_view
from simuljax.nn.layers import Dropout, FeedForward, layer_norm
from simuljax.nn.pointers import Memory


class JoinerLayer(nn.Module):
    """x + attention(norm x, source), then x + feed-forward(norm x).

    Targets do not see each other here, so the same ones can be asked again after more has been
    heard, and several hypotheses of one source are several targets.
    """

    width: Width

    def setup(self) -> None:
        self.cross_norm, self.forward_norm = (layer_norm(self.width) for _ in range(2))
        self.heads, self.feed_forward = Heads(self.width), FeedForward(self.width)
        self.dropout = Dropout(self.width.dropout)

    def remember(self, states: jax.Array) -> Memory:
        """Project states [B, K, D] once, not once per group."""
        key, value = (self.heads.split(f(states)) for f in (self.heads.key, self.heads.value))
        return Memory(value=value, key=key, decide=None)

    def __call__(self, x: jax.Array, memory: Memory, reach: jax.Array, *, train: bool) -> jax.Array:
        """Return targets [B, T, D] that attend to the first `reach` [B] states."""
        assert memory.key is not None
        query = self.heads.split(self.heads.query(self.cross_norm(x)))
        attended = attend_view(query, memory.key, memory.value, View(lengths=reach))
        x = x + self.dropout(self.heads.merge(attended), deterministic=not train)
        forward = self.feed_forward(self.forward_norm(x), train=train)
        return x + self.dropout(forward, deterministic=not train)
