"""Pre-norm Transformer layers, for encoders, decoders and CAAT's joiner."""

from collections.abc import Sequence

import flax.linen as nn
import flax.struct
import jax.numpy as jnp
from jax import Array

from simuljax.config.model import Monotonic, Width
from simuljax.nn.attention import Heads, Past, View, attend_past, attend_view
from simuljax.nn.layers import Dropout, FeedForward, layer_norm
from simuljax.nn.monotonic import (
    Look,
    Memory,
    MonotonicAttention,
    Reading,
    Selection,
    Source,
    SourceProgress,
)


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


@flax.struct.dataclass
class LayerState:
    """The state of a decoder layer before more targets."""

    past: Past  # of its own targets
    memory: Memory  # of the source
    pointer: Array  # int32 [B, H]


@flax.struct.dataclass
class LayerStep:
    """The state after them; nothing changes in place, so a step can be undone."""

    added: Past  # [B, T, H, d]
    look: Look


class DecoderLayer(nn.Module):
    """Causal self-attention, monotonic attention to the source, feed-forward."""

    width: Width
    monotonic: Monotonic

    def setup(self) -> None:
        self.self_norm, self.cross_norm, self.forward_norm = (
            layer_norm(self.width) for _ in range(3)
        )
        self.heads, self.feed_forward = Heads(self.width), FeedForward(self.width)
        self.cross = MonotonicAttention(self.width, self.monotonic)
        self.dropout = Dropout(self.width.dropout)

    def __call__(
        self, x: Array, sources: Sequence[Source], *, train: bool
    ) -> tuple[Array, list[Reading]]:
        """Decode; rows of x [n B, T, D] belong to n groups of B sources, in order."""
        attended = attend_view(*self.heads.project(self.self_norm(x)), View(causal=True))
        x = x + self.dropout(self.heads.merge(attended), deterministic=not train)
        looking = jnp.split(self.cross_norm(x), len(sources))
        pairs = zip(looking, sources, strict=True)
        read, readings = zip(*(self.cross(y, s, train=train) for y, s in pairs), strict=True)
        x = x + self.dropout(jnp.concatenate(read), deterministic=not train)
        forward = self.feed_forward(self.forward_norm(x), train=train)
        return x + self.dropout(forward, deterministic=not train), list(readings)

    def step(
        self,
        x: Array,
        state: LayerState,
        progress: SourceProgress,
        selection: Selection,
        *,
        target: Array,
    ) -> tuple[Array, LayerStep]:
        """Decode T more targets with hard decisions; `target` [B, T] has their positions."""
        new = self.heads.project(self.self_norm(x))
        x = x + self.heads.merge(attend_past(new, state.past, target[:, 0]))
        read, look = self.cross.step(
            self.cross_norm(x),
            state.memory,
            progress,
            selection,
            target=target,
            start=state.pointer,
        )
        x = x + read
        x = x + self.feed_forward(self.forward_norm(x), train=False)
        return x, LayerStep(added=Past(key=new[1], value=new[2]), look=look)


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
