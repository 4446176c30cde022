"""Attention: multi-head, additive, and over both axes of a spectrogram; padding is masked."""

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jax import Array

from simuljax.config.model import Width
from simuljax.nn.layers import BatchNorm, dense, real, zero_padding


class Heads(nn.Module):
    """The four linear maps of multi-head attention: `project` in, `merge` out."""

    width: Width

    def setup(self) -> None:
        size = self.width.model
        self.query, self.key, self.value = (dense(size, self.width) for _ in range(3))
        self.out = dense(size, self.width)

    def project(self, x: Array) -> tuple[Array, Array, Array]:
        """Return queries, keys and values [..., S, H, d] of a sequence."""
        return self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))

    def split(self, x: Array) -> Array:
        """Reshape [..., S, D] to [..., S, H, d]."""
        return x.reshape(*x.shape[:-1], self.width.heads, -1)

    def merge(self, x: Array) -> Array:
        """Map [..., S, H, d] to [..., S, D] through the output layer."""
        return self.out(x.reshape(*x.shape[:-2], -1))


@flax.struct.dataclass
class View:
    """The attention mask of a sequence."""

    lengths: Array | None = None  # [B], of the keys; None: all are real
    bias: Array | None = None  # added to the energies, broadcasts to [B, H, T, S]
    causal: bool = flax.struct.field(pytree_node=False, default=False)


def attend_view(query: Array, key: Array, value: Array, view: View) -> Array:
    """Attend within a mask; in half precision on a GPU by cuDNN's fused kernel."""
    lengths = None if view.lengths is None else jnp.maximum(view.lengths, 1)  # or 0 / 0
    if view.bias is None and _has_kernel(query):
        return _attend_fused(query, key, value, lengths, view.causal)
    mask = None if lengths is None else real(lengths, key.shape[1])[:, None, None]
    if view.causal:
        causal = jnp.tril(jnp.ones((query.shape[1], key.shape[1]), bool))
        mask = causal if mask is None else mask & causal
    return jax.nn.dot_product_attention(query, key, value, bias=view.bias, mask=mask)


def attend_masked(
    query: Array, key: Array, value: Array, mask: Array, bias: Array | None = None
) -> Array:
    """Attend where a mask [B, 1, 1 or T, S] is True; by the same kernel if T and S are even."""
    sizes = query.shape[1], key.shape[1]
    if bias is None and _has_kernel(query) and not any(size % 2 for size in sizes):
        mask = jnp.broadcast_to(mask, (*mask.shape[:2], *sizes))
        return jax.nn.dot_product_attention(query, key, value, mask=mask, implementation="cudnn")
    return jax.nn.dot_product_attention(query, key, value, mask=mask, bias=bias)


def _has_kernel(query: Array) -> bool:
    """Return True if cuDNN's kernel takes the queries: half precision on a GPU, common widths."""
    half, width = query.dtype in (jnp.bfloat16, jnp.float16), query.shape[-1]
    return half and width % 8 == 0 and width <= 128 and jax.default_backend() == "gpu"


def _attend_fused(
    query: Array, key: Array, value: Array, lengths: Array | None, causal: bool
) -> Array:
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


@flax.struct.dataclass
class Past:
    """Keys and values of earlier positions, in arrays of fixed size."""

    key: Array  # [B, N, H, d]
    value: Array


def attend_past(new: tuple[Array, ...], past: Past, count: Array) -> Array:
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


def distance_penalty(size: int) -> Array:
    """Return -max(0, log|i - j|), [1, 1, size, size] (Di Gangi et al. 2019)."""
    position = jnp.arange(size)
    distance = jnp.abs(position[:, None] - position[None, :])
    return -jnp.log(jnp.maximum(distance, 1)).astype(jnp.float32)[None, None]


@flax.struct.dataclass
class Seen:
    """Source states, and U h + b of each, computed once per source."""

    key: Array  # [B, K, A]
    value: Array  # [B, K, D]
    lengths: Array  # int32 [B]


class AdditiveAttention(nn.Module):
    """The maps W, U and v of additive attention (Bahdanau et al. 2015).

    e[k] = v . tanh(W s + U h[k] + b),  a = softmax(e),  context = sum_k a[k] h[k]

    s is the state of a decoder, and h are states of an encoder.
    """

    width: Width

    def setup(self) -> None:
        size = self.width.model
        self.query = dense(size, self.width, bias=False)
        self.key = dense(size, self.width)
        self.v = self.param("v", nn.initializers.normal(size**-0.5), (size,))

    def __call__(self, x: Array, seen: Seen) -> tuple[Array, Array]:
        """Return the context [B, D] of x [B, X], and the weights [B, K]."""
        return attend_additively(self.query(x), self.v, seen)


@jax.checkpoint  # in a loop over targets, tanh [B, K, A] of every target would not fit in memory
def attend_additively(query: Array, v: Array, seen: Seen) -> tuple[Array, Array]:
    """Return context [B, D] and float32 weights [B, K] of queries W s [B, A]; 0 if no source."""
    bent = jnp.tanh(query[:, None] + seen.key)
    v = v.astype(bent.dtype)
    energy = jnp.einsum("bka,a->bk", bent, v, preferred_element_type=jnp.float32)
    mask = real(seen.lengths, seen.key.shape[1])
    weight = jax.nn.softmax(jnp.where(mask, energy, -1e30)) * mask
    return jnp.einsum("bk,bkd->bd", weight.astype(seen.value.dtype), seen.value), weight


def convolution(
    size: int, width: Width, *, stride: int = 1, bias: bool = True, name: str | None = None
) -> nn.Conv:
    """Convolve 3 x 3 over time and frequency; output i is centred on input `stride` * i of both."""
    return nn.Conv(
        size,
        (3, 3),
        strides=stride,
        padding=1,  # "SAME" would depend on how far the batch is padded
        use_bias=bias,
        dtype=width.dtype,
        kernel_init=nn.initializers.xavier_uniform(),
        name=name,
    )


def attend_over_time(query: Array, key: Array, value: Array, lengths: Array) -> Array:
    """Attend from every time to every real time, [B, T, F, H] each; frequencies are compared."""
    heads_first = (jnp.swapaxes(x, -1, -2) for x in (query, key, value))
    mask = real(lengths, key.shape[1])[:, None, None]
    attended = jax.nn.dot_product_attention(*heads_first, mask=mask)
    return jnp.swapaxes(attended, -1, -2)


def attend_over_frequency(query: Array, key: Array, value: Array, lengths: Array) -> Array:
    """Attend from every frequency to every other, [B, T, F, H] each; real times are compared."""
    query = zero_padding(query, lengths)
    energy = jnp.einsum("btfh,btgh->bhfg", query, key, preferred_element_type=jnp.float32)
    scale = jax.lax.rsqrt(jnp.maximum(lengths, 1).astype(energy.dtype))
    weight = jax.nn.softmax(energy * scale[:, None, None, None]).astype(value.dtype)
    return jnp.einsum("bhfg,btgh->btfh", weight, value)


class Attention2D(nn.Module):
    """x + relu(norm(W * [attention over time; attention over frequency])), x [B, T, F, C].

    A head (Di Gangi et al. 2019, after Dong et al. 2018) has one channel: images q, k, v [T, F].

        over time        softmax_s(sum_f q[t, f] k[s, f] / sqrt(F)) v[s, f]    -> [T, F]
        over frequency   softmax_g(sum_t q[t, f] k[t, g] / sqrt(T)) v[t, g]    -> [T, F]

    Times are real ones, and T counts them: padding neither is seen nor changes the scale. Two
    convolutions have no bias: one of the keys moves all energies alike, and one before the
    normalisation is subtracted with the mean.
    """

    width: Width
    heads: int = 4
    axis: str | None = None  # the replicas of a training batch

    @nn.compact
    def __call__(self, x: Array, lengths: Array, *, train: bool) -> Array:
        x = zero_padding(x, lengths)
        query = convolution(self.heads, self.width, name="query")(x)
        key = convolution(self.heads, self.width, name="key", bias=False)(x)
        value = convolution(self.heads, self.width, name="value")(x)
        both = [
            attend_over_time(query, key, value, lengths),
            attend_over_frequency(query, key, value, lengths),
        ]
        seen = zero_padding(jnp.concatenate(both, -1), lengths)
        out = convolution(x.shape[-1], self.width, name="out", bias=False)(seen)
        out = BatchNorm(self.width.dtype, self.axis, name="norm")(out, lengths, train=train)
        return zero_padding(x + nn.relu(out), lengths)
