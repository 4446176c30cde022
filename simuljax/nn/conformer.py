"""The Conformer's layer (Gulati et al. 2020), with padding masked everywhere.

    x + feed-forward / 2, + self-attention, + convolution, + feed-forward / 2, then a normalisation

Attention knows positions as distances (Dai et al. 2019), so that a state is the same wherever
padding ends. A depthwise convolution looks 15 states both ways, and batch normalisation at all
rows: both would take padding for speech, and are kept from it.
"""

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jax import Array

from simuljax.config.model import Width
from simuljax.nn.attention import Heads, View, attend_view
from simuljax.nn.layers import BatchNorm, Dropout, dense, layer_norm, sinusoids, zero_padding


@flax.struct.dataclass
class Surroundings:
    """Masks and position encodings shared by all layers."""

    lengths: Array  # int32 [B]
    distances: Array  # [2 S - 1, D]: sinusoids of S - 1 down to 1 - S


def surroundings(lengths: Array, size: int, model: int) -> Surroundings:
    """Build them for sequences padded to `size`."""
    return Surroundings(
        lengths=lengths, distances=sinusoids(jnp.arange(size - 1, -size, -1), model)
    )


class ConformerLayer(nn.Module):
    """[B, S, D] -> [B, S, D]; values at padded positions are undefined."""

    width: Width
    kernel: int = 31
    axis: str | None = None  # the replicas of a training batch

    def setup(self) -> None:
        self.first_half, self.second_half = HalfForward(self.width), HalfForward(self.width)
        self.attention = RelativeAttention(self.width)
        self.convolution = ConvolutionModule(self.width, self.kernel, self.axis)
        self.attention_norm, self.norm = layer_norm(self.width), layer_norm(self.width)
        self.dropout = Dropout(self.width.dropout)

    def __call__(self, x: Array, around: Surroundings, *, train: bool) -> Array:
        def add(x: Array, change: Array) -> Array:
            return x + self.dropout(change, deterministic=not train)

        x = add(x, self.first_half(x, train=train))
        x = add(x, self.attention(self.attention_norm(x), around))
        x = add(x, self.convolution(x, around.lengths, train=train))
        return self.norm(add(x, self.second_half(x, train=train)))


class HalfForward(nn.Module):
    """W2 swish(W1 norm(x)) / 2."""

    width: Width

    @nn.compact
    def __call__(self, x: Array, *, train: bool) -> Array:
        hidden = dense(self.width.hidden, self.width, name="inner")(layer_norm(self.width)(x))
        hidden = Dropout(self.width.dropout)(nn.swish(hidden), deterministic=not train)
        return dense(self.width.model, self.width, name="outer")(hidden) / 2


class RelativeAttention(nn.Module):
    """softmax(((q_i + u) k_j + (q_i + v) r_(i-j)) / sqrt(d)) v_j, r a linear map of sinusoids."""

    width: Width

    def setup(self) -> None:
        shape = self.width.heads, self.width.model // self.width.heads
        self.heads = Heads(self.width)
        self.distance = dense(self.width.model, self.width, bias=False)
        self.content_bias = self.param("content_bias", nn.initializers.zeros, shape)
        self.distance_bias = self.param("distance_bias", nn.initializers.zeros, shape)

    def __call__(self, x: Array, around: Surroundings) -> Array:
        query, key, value = self.heads.project(x)
        distance = self.heads.split(self.distance(around.distances))
        towards = query + self.distance_bias.astype(query.dtype)
        energy = jnp.einsum("bthd,mhd->bhtm", towards, distance, preferred_element_type=jnp.float32)
        bias = by_key(energy) * query.shape[-1] ** -0.5
        query = query + self.content_bias.astype(query.dtype)
        view = View(lengths=around.lengths, bias=bias)
        return self.heads.merge(attend_view(query, key, value, view))


def by_key(energy: Array) -> Array:
    """Shift [..., S, 2 S - 1] by distance, from S - 1 down, to [..., S, S] by key.

    Row i of the result is S numbers of row i of the energies, from place S - 1 - i on. With one
    number put before each row, all rows together are read S further on, in rows one shorter.
    """
    *batch, size, places = energy.shape
    padded = jnp.pad(energy, [*[(0, 0)] * (len(batch) + 1), (1, 0)])
    flat = padded.reshape(*batch, size * (places + 1))[..., size:]
    return flat.reshape(*batch, size, places)[..., :size]


class ConvolutionModule(nn.Module):
    """Gated linear unit, depthwise convolution, batch normalisation, swish, linear map."""

    width: Width
    kernel: int
    axis: str | None

    @nn.compact
    def __call__(self, x: Array, lengths: Array, *, train: bool) -> Array:
        size = self.width.model
        x = dense(2 * size, self.width, name="gated", bias=False)(layer_norm(self.width)(x))
        taps = self.param("taps", nn.initializers.lecun_normal(-2, -1), (self.kernel, size))
        x = depthwise(zero_padding(nn.glu(x), lengths), taps)
        x = BatchNorm(self.width.dtype, self.axis, name="norm")(x, lengths, train=train)
        return dense(size, self.width, name="out", bias=False)(nn.swish(x))


@jax.checkpoint
def depthwise(x: Array, taps: Array) -> Array:
    """Return y[b,t,c] = sum_k taps[k,c] x[b, t + k - n // 2, c] of n taps, float32; zero-padded.

    A sum of shifted products, which a compiler makes one pass of: backwards, a convolution with as
    many groups as channels is many times slower on GPUs. Only x is kept for the way back.
    """
    count, size = taps.shape[0], x.shape[1]
    x = jnp.pad(x, [(0, 0), (count // 2, count // 2), (0, 0)]).astype(taps.dtype)
    return sum((taps[k] * x[:, k : k + size] for k in range(count)), jnp.zeros((), taps.dtype))
