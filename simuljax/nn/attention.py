"""Multi-head attention over a whole sequence; padded keys are masked."""

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from simuljax.config.model import Width
from simuljax.nn.layers import dense, real


class Heads(nn.Module):
    """The four linear maps of multi-head attention: `project` in, `merge` out."""

    width: Width

    def setup(self) -> None:
        size = self.width.model
        self.query, self.key, self.value = (dense(size, self.width) for _ in range(3))
        self.out = dense(size, self.width)

    def project(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return queries, keys and values [..., S, H, d] of a sequence."""
        return self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))

    def split(self, x: jax.Array) -> jax.Array:
        """Reshape [..., S, D] to [..., S, H, d]."""
        return x.reshape(*x.shape[:-1], self.width.heads, -1)

    def merge(self, x: jax.Array) -> jax.Array:
        """Map [..., S, H, d] to [..., S, D] through the output layer."""
        return self.out(x.reshape(*x.shape[:-2], -1))


@flax.struct.dataclass
class View:
    """The attention mask of a sequence."""

    lengths: jax.Array | None = None  # [B], of the keys; None: all are real
    bias: jax.Array | None = None  # added to the energies, broadcasts to [B, H, T, S]
    causal: bool = flax.struct.field(pytree_node=False, default=False)


def attend_view(query: jax.Array, key: jax.Array, value: jax.Array, view: View) -> jax.Array:
    """Attend within a mask; in half precision on a GPU by cuDNN's fused kernel."""
    lengths = None if view.lengths is None else jnp.maximum(view.lengths, 1)  # or 0 / 0
    half = query.dtype in (jnp.bfloat16, jnp.float16)
    if half and view.bias is None and jax.default_backend() == "gpu":
        return _attend_fused(query, key, value, lengths, view.causal)
    mask = None if lengths is None else real(lengths, key.shape[1])[:, None, None]
    if view.causal:
        causal = jnp.tril(jnp.ones((query.shape[1], key.shape[1]), bool))
        mask = causal if mask is None else mask & causal
    return attend(query, key, value, mask=mask, bias=view.bias)


def _attend_fused(
    query: jax.Array, key: jax.Array, value: jax.Array, lengths: jax.Array | None, causal: bool
) -> jax.Array:
    """Attend by cuDNN's kernel, which needs even lengths."""
    (batch, targets), sources = query.shape[:2], key.shape[1]
    query = jnp.pad(query, [(0, 0), (0, targets % 2), (0, 0), (0, 0)])
    key, value = (jnp.pad(x, [(0, 0), (0, sources % 2), (0, 0), (0, 0)]) for x in (key, value))
    if lengths is None and sources % 2:
        lengths = jnp.full(batch, sources, jnp.int32)
    attended = jax.nn.dot_product_attention(
        query,
        key,
        value,
        query_seq_lengths=None if lengths is None else jnp.full(batch, query.shape[1], jnp.int32),
        key_value_seq_lengths=lengths,
        is_causal=causal,
        implementation="cudnn",
    )
    return attended[:, :targets]


def attend(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    mask: jax.Array | None = None,
    bias: jax.Array | None = None,
) -> jax.Array:
    """Return softmax(q k^T / sqrt(d) + bias) v, with q [B, T, H, d], k and v [B, S, H, d].

    `mask` is True where key may be seen, `bias` is added to the energies; both broadcast to
    [B, H, T, S].
    """
    return jax.nn.dot_product_attention(query, key, value, bias=bias, mask=mask)


@flax.struct.dataclass
class Past:
    """Keys and values of earlier positions, in arrays of fixed size."""

    key: jax.Array  # [B, N, H, d]
    value: jax.Array


def attend_past(new: tuple[jax.Array, ...], past: Past, count: jax.Array) -> jax.Array:
    """Attend from T more positions to the past and themselves, by q, k, v [B, T, H, d].

    These are the first `count` [B] of the past, and each other as far as they are not later. The
    past is not copied to put the new ones after it.
    """
    query, key, value = new
    targets, size = query.shape[1], past.key.shape[1]
    energy = [
        jnp.einsum("bthd,bshd->bhts", query, k, preferred_element_type=jnp.float32)
        for k in (past.key, key)
    ]
    causal = jnp.tril(jnp.ones((targets, targets), bool))
    earlier = jnp.broadcast_to(real(count, size)[:, None], (len(count), targets, size))
    seen = [earlier, jnp.broadcast_to(causal, (len(count), targets, targets))]
    scaled = jnp.concatenate(energy, -1) * query.shape[-1] ** -0.5
    masked = jnp.where(jnp.concatenate(seen, -1)[:, None], scaled, -jnp.inf)
    weight = jax.nn.softmax(masked).astype(value.dtype)
    attended = jnp.einsum("bhts,bshd->bthd", weight[..., :size], past.value)
    return attended + jnp.einsum("bhts,bshd->bthd", weight[..., size:], value)


def distance_penalty(size: int) -> jax.Array:
    """Return -max(0, log|i - j|), [1, 1, size, size] (Di Gangi et al. 2019)."""
    position = jnp.arange(size)
    distance = jnp.abs(position[:, None] - position[None, :])
    return -jnp.log(jnp.maximum(distance, 1)).astype(jnp.float32)[None, None]
