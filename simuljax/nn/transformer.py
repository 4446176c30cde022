"""Pre-norm Transformer layers, for encoders and CAAT's joiner."""

import flax.linen as nn
from jax import Array

from simuljax.config.model import Width
from simuljax.nn.attention import Heads, View, attend_view
from simuljax.nn.layers import Dropout, FeedForward, layer_norm
from simuljax.nn.monotonic import Memory


class EncoderLayer(nn.Module):
    """x + attention(norm x), then x + feed-forward(norm x)."""

    width: Width

    def setup(self) -> None:
        self.attention_norm, self.forward_norm = (layer_norm(self.width) for _ in range(2))
        self.heads, self.feed_forward = Heads(self.width), FeedForward(self.width)
        self.dropout = Dropout(self.width.dropout)

    def __call__(self, x: Array, view: View, *, train: bool) -> Array:
        return self.after_attention(x, attend_view(*self.project(x), view), train=train)

    def project(self, x: Array) -> tuple[Array, Array, Array]:
        """Return queries, keys and values [..., S, H, d]."""
        return self.heads.project(self.attention_norm(x))

    def after_attention(self, x: Array, attended: Array, *, train: bool) -> Array:
        """Finish the layer, given the attention output [..., S, H, d]."""
        x = x + self.dropout(self.heads.merge(attended), deterministic=not train)
        forward = self.feed_forward(self.forward_norm(x), train=train)
        return x + self.dropout(forward, deterministic=not train)


class JoinerLayer(nn.Module):
    """x + attention(norm x, source), then x + feed-forward(norm x).

    Targets do not see each other here (Liu et al. 2021), so the same ones can be asked again with
    more of the source, and several hypotheses of one source are several targets.
    """

    width: Width

    def setup(self) -> None:
        self.cross_norm, self.forward_norm = (layer_norm(self.width) for _ in range(2))
        self.heads, self.feed_forward = Heads(self.width), FeedForward(self.width)
        self.dropout = Dropout(self.width.dropout)

    def remember(self, states: Array) -> Memory:
        """Project states [B, K, D] once, not once per group."""
        key, value = (self.heads.split(f(states)) for f in (self.heads.key, self.heads.value))
        return Memory(value=value, key=key, decide=None)

    def __call__(self, x: Array, memory: Memory, reach: Array, *, train: bool) -> Array:
        """Return targets [B, T, D] that attend to the first `reach` [B] states."""
        assert memory.key is not None
        query = self.heads.split(self.heads.query(self.cross_norm(x)))
        attended = attend_view(query, memory.key, memory.value, View(lengths=reach))
        x = x + self.dropout(self.heads.merge(attended), deterministic=not train)
        forward = self.feed_forward(self.forward_norm(x), train=train)
        return x + self.dropout(forward, deterministic=not train)
