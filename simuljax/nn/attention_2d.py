"""Attention over both axes of a spectrogram (Di Gangi et al. 2019, after Dong et al. 2018).

A head has one channel: its queries, keys and values are images q, k, v [T, F], and

    over time        softmax_s(sum_f q[t, f] k[s, f] / sqrt(F)) v[s, f]    -> [T, F]
    over frequency   softmax_g(sum_t q[t, f] k[t, g] / sqrt(T)) v[t, g]    -> [T, F]

where times are real ones, and T counts them: padding neither is seen nor changes the scale.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from simuljax.config.model import Width
from simuljax.nn.attention import attend
from simuljax.nn.batch_norm import BatchNorm
from simuljax.nn.layers import real, zero_padding


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


def attend_over_time(
    query: jax.Array, key: jax.Array, value: jax.Array, lengths: jax.Array
) -> jax.Array:
    """Attend from every time to every real time, [B, T, F, H] each; frequencies are compared."""
    heads_first = (jnp.swapaxes(x, -1, -2) for x in (query, key, value))
    mask = real(lengths, key.shape[1])[:, None, None]
    return jnp.swapaxes(attend(*heads_first, mask=mask), -1, -2)


def attend_over_frequency(
    query: jax.Array, key: jax.Array, value: jax.Array, lengths: jax.Array
) -> jax.Array:
    """Attend from every frequency to every other, [B, T, F, H] each; real times are compared."""
    query = zero_padding(query, lengths)
    energy = jnp.einsum("btfh,btgh->bhfg", query, key, preferred_element_type=jnp.float32)
    scale = jax.lax.rsqrt(jnp.maximum(lengths, 1).astype(energy.dtype))
    weight = jax.nn.softmax(energy * scale[:, None, None, None]).astype(value.dtype)
    return jnp.einsum("bhfg,btgh->btfh", weight, value)


class Attention2D(nn.Module):
    """x + relu(norm(W * [attention over time; attention over frequency])), x [B, T, F, C].

    Two convolutions have no bias: one of the keys moves all energies alike, and one before the
    normalisation is subtracted with the mean.
    """

    width: Width
    heads: int = 4
    axis: str | None = None  # the replicas of a training batch

    @nn.compact
    def __call__(self, x: jax.Array, lengths: jax.Array, *, train: bool) -> jax.Array:
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
