"""Whisper's network: an encoder for windows of log-mel, a decoder token by token.

The decoder keeps the keys and values of its tokens in arrays of fixed size (`Written`), and those
of the encoder's states are projected once (`Decoder.remember`), so that one compiled step serves
every token. Both lie as [B, H, d, N], the positions last, as a step for one token multiplies them.
Rows of a batch may have prompts of different lengths: a shorter one stands to the right, after
`padding` columns that nothing attends to, and all rows write into the same column.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jax import Array

from simuljax.models.whisper.config import Config, Heads
from simuljax.nn.attention import Past, View, attend_view
from simuljax.nn.chunked import Chunking, ChunkView, chunked_layers
from simuljax.nn.layers import scan_layers, sinusoids, zero_padding

Memory = tuple[Past, ...]  # keys and values of a window's states, for every layer


def _dense(config: Config, size: int, *, bias: bool = True) -> nn.Dense:
    return nn.Dense(size, use_bias=bias, dtype=config.dtype)


def _norm(config: Config) -> nn.LayerNorm:
    return nn.LayerNorm(epsilon=1e-5, dtype=config.dtype, use_fast_variance=False)


class Attention(nn.Module):
    """Four linear maps; the one for keys has no bias."""

    config: Config

    def setup(self) -> None:
        width = self.config.dimensions.width
        self.query, self.value, self.out = (_dense(self.config, width) for _ in range(3))
        self.key = _dense(self.config, width, bias=False)

    def look(self, x: Array) -> Array:
        """Return queries [B, T, H, d]."""
        return self._split(self.query(x))

    def remember(self, x: Array) -> Past:
        """Return keys and values [B, S, H, d]."""
        return Past(key=self._split(self.key(x)), value=self._split(self.value(x)))

    def merge(self, x: Array) -> Array:
        """Map [B, T, H, d] to [B, T, D]."""
        return self.out(x.reshape(*x.shape[:-2], -1))

    def _split(self, x: Array) -> Array:
        return x.reshape(*x.shape[:-1], self.config.dimensions.head_count, -1)


class FeedForward(nn.Module):
    """x -> W2 gelu(W1 x)."""

    config: Config

    @nn.compact
    def __call__(self, x: Array) -> Array:
        width = self.config.dimensions.width
        inner = nn.Dense(4 * width, dtype=self.config.dtype, name="inner")(x)
        return nn.Dense(width, dtype=self.config.dtype, name="outer")(gelu(inner))


@partial(jax.checkpoint, prevent_cse=False)  # the gradient keeps x alone
def gelu(x: Array) -> Array:
    """Return x (1 + erf(x / sqrt 2)) / 2; JAX's own, with erfc, costs three times as much."""
    return 0.5 * x * (1 + jax.lax.erf(x * 0.5**0.5))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each after a norm and around a residual."""

    config: Config

    def setup(self) -> None:
        self.self_norm, self.forward_norm = _norm(self.config), _norm(self.config)
        self.attention, self.forward = Attention(self.config), FeedForward(self.config)

    def __call__(self, x: Array, lengths: Array | None = None) -> Array:
        given = self.project(x)
        if lengths is None:
            at_once = partial(attend_view, view=View())
            attended = jax.lax.platform_dependent(*given, cpu=_attend_by_head, default=at_once)
        else:
            attended = attend_view(*given, View(lengths=lengths))
        return self.after_attention(x, attended)

    def project(self, x: Array) -> tuple[Array, Array, Array]:
        """Return queries, keys and values [..., S, H, d]."""
        normal = self.self_norm(x)
        past = self.attention.remember(normal)
        return self.attention.look(normal), past.key, past.value

    def after_attention(self, x: Array, attended: Array, *, train: bool = False) -> Array:
        """Finish the layer, given the attention output; training is no different."""
        x = x + self.attention.merge(attended)
        return x + self.forward(self.forward_norm(x))


def _attend_by_head(query: Array, key: Array, value: Array) -> Array:
    """Attend one head after the other: three fifths of the time on a CPU, and little memory."""

    def one(given: tuple[Array, ...]) -> Array:
        query, key, value = given  # [S, d]
        scaled = query * query.shape[-1] ** -0.5
        energy = jnp.matmul(scaled, key.T, preferred_element_type=jnp.float32)
        return jax.nn.softmax(energy).astype(value.dtype) @ value

    batch, size, heads, width = query.shape
    rows = (x.swapaxes(1, 2).reshape(batch * heads, size, width) for x in (query, key, value))
    attended = jax.lax.map(one, tuple(rows))
    return attended.reshape(batch, heads, size, width).swapaxes(1, 2)


class Encoder(nn.Module):
    """Two convolutions (100 frames a second to 50 states), positions, and a Transformer."""

    config: Config

    def setup(self) -> None:
        sizes = self.config.dimensions
        self.conv1, self.conv2 = (
            nn.Conv(sizes.width, (3,), stride, padding=[(1, 1)], dtype=self.config.dtype)
            for stride in (1, 2)
        )
        shape = (sizes.audio_positions, sizes.width)
        self.positions = self.param(
            "positions", lambda _: sinusoids(jnp.arange(shape[0]), shape[1])
        )
        self.layers, self.norm = EncoderLayer(self.config), _norm(self.config)

    def __call__(self, mel: Array, lengths: Array | None = None) -> Array:
        """Encode [B, F, mels] to [B, F / 2, D]; F is even, and up to twice the positions (30 s).

        A window shorter than 30 s takes the first positions, and is what it would be in 30 s but
        for attention to the silence after it. In training that silence was always there, and some
        of it should be left: cut close to its last word, the model more often invents words.

        With the `lengths` [B] of padded inputs, F may be any number, padded frames have no
        influence, and F / 2 is rounded up. Beyond 30 s the positions go on as sinusoids.
        """
        longest = 2 * self.config.dimensions.audio_positions
        if lengths is None and (mel.shape[1] % 2 or mel.shape[1] > longest):
            raise ValueError(f"{mel.shape[1]} frames; Whisper takes an even number, to {longest}")
        x = self.convolve(mel, lengths)
        x = x + self._positions(x.shape[1]).astype(x.dtype)
        count, states = self.config.dimensions.audio_layers, None
        if lengths is not None:
            states = (lengths + 1) // 2
        x, _ = scan_layers(self.layers, count, lambda layer, y, _: (layer(y, states), None), x)
        return _without_padding(self.norm(x), states)

    def convolve(self, mel: Array, lengths: Array | None) -> Array:
        """Return [B, F / 2, D] before positions; F / 2 is rounded up."""
        x = gelu(self.conv1(_without_padding(mel.astype(self.config.dtype), lengths)))
        return gelu(self.conv2(_without_padding(x, lengths)))

    def chunked(
        self, x: Array, left: Past, view: ChunkView, chunking: Chunking, *, unroll: bool
    ) -> tuple[Array, Past]:
        """Run the layers over chunks [B, n, chunk + right, D], given their left context."""
        count = self.config.dimensions.audio_layers
        given = (self.layers, count, x, left, view, chunking)
        x, left = chunked_layers(*given, train=False, unroll=unroll)
        return self.norm(x), left

    def _positions(self, count: int) -> Array:
        """Return the first `count` positions; those that the model lacks are sinusoids."""
        known, width = self.positions.shape
        more = sinusoids(jnp.arange(known, max(count, known)), width)
        return jnp.concatenate([self.positions, more])[:count]


def _without_padding(x: Array, lengths: Array | None) -> Array:
    return x if lengths is None else zero_padding(x, lengths)


@flax.struct.dataclass
class Written:
    """Tokens written: columns before `column`, less a row's padding at the left."""

    layers: tuple[Past, ...]  # [R, H, d, N] each
    column: Array  # int32 []
    padding: Array  # int32 [R]


def nothing_written(
    config: Config, rows: int, columns: int, padding: Array | None = None
) -> Written:
    """Return room for `columns` tokens in each row, after `padding` [R] that is not seen."""
    sizes = config.dimensions
    heads = sizes.head_count
    empty = jnp.zeros((rows, heads, sizes.width // heads, columns), config.dtype)
    return Written(
        layers=tuple(Past(key=empty, value=empty) for _ in range(sizes.text_layers)),
        column=jnp.zeros((), jnp.int32),
        padding=jnp.zeros(rows, jnp.int32) if padding is None else padding,
    )


class DecoderLayer(nn.Module):
    """Self-attention to the tokens so far, attention to the encoder's states, feed-forward."""

    config: Config

    def setup(self) -> None:
        self.self_norm, self.cross_norm, self.forward_norm = (_norm(self.config) for _ in range(3))
        self.attention, self.cross = Attention(self.config), Attention(self.config)
        self.forward = FeedForward(self.config)

    def __call__(
        self, x: Array, past: Past, memory: Past, column: Array, visible: Array
    ) -> tuple[Array, Past, Array]:
        """Return T more positions from `column` on, the past with them, and the cross queries."""
        normal = self.self_norm(x)
        past = jax.tree.map(
            lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, column, axis=3),
            past,
            positions_last(self.attention.remember(normal)),
        )
        x = x + self.attention.merge(_attend(self.attention.look(normal), past, visible))
        query = self.cross.look(self.cross_norm(x))
        x = x + self.cross.merge(_attend_memory(query, memory))
        return x + self.forward(self.forward_norm(x)), past, query


def positions_last(past: Past) -> Past:
    """Turn [B, N, H, d] into [B, H, d, N]."""
    return jax.tree.map(lambda x: jnp.moveaxis(x, 1, 3), past)


def _attend(query: Array, past: Past, visible: Array | None = None) -> Array:
    """Attend with q [B, T, H, d] to k and v [B, H, d, N], visible [B, T, N]."""
    scaled = query * query.shape[-1] ** -0.5
    energy = jnp.einsum("bthd,bhdn->bhtn", scaled, past.key, preferred_element_type=jnp.float32)
    if visible is not None:
        energy = jnp.where(visible[:, None], energy, -jnp.inf)
    weight = jax.nn.softmax(energy).astype(query.dtype)
    return jnp.einsum("bhtn,bhdn->bthd", weight, past.value)


def _attend_memory(query: Array, memory: Past) -> Array:
    """Attend with queries [n B, T, H, d] to a memory [B, H, d, S] that n rows share."""
    shared = query.reshape(memory.key.shape[0], -1, *query.shape[2:])
    return _attend(shared, memory).reshape(query.shape)


class Decoder(nn.Module):
    """Tokens to the states that logits are made of."""

    config: Config

    def setup(self) -> None:
        sizes = self.config.dimensions
        self.embedding = nn.Embed(sizes.vocabulary, sizes.width, dtype=self.config.dtype)
        shape = (sizes.text_positions, sizes.width)
        self.positions = self.param("positions", nn.initializers.normal(0.02), shape)
        # One module a layer, not one scanned: a step reads its weights where they lie.
        self.layers = [DecoderLayer(self.config) for _ in range(sizes.text_layers)]
        self.norm = _norm(self.config)

    def remember(self, states: Array) -> tuple[Past, ...]:
        """Return keys and values of the encoder's states [B, S, D], for every layer."""
        return tuple(positions_last(layer.cross.remember(states)) for layer in self.layers)

    def __call__(
        self, tokens: Array, written: Written, memory: Memory, heads: Heads = ()
    ) -> tuple[Array, Written, Array | None]:
        """Return states of T more tokens [R, T], the cache, and energies [R, n, T, S] of n heads.

        The energies are those of the cross-attention, before its softmax; None without heads.
        """
        columns = written.column + jnp.arange(tokens.shape[1])
        position = jnp.maximum(columns - written.padding[:, None], 0)
        x = self.embedding(tokens) + self.positions[position].astype(self.config.dtype)
        visible = _visible(columns, written)
        pasts, queries = [], []
        for layer, past, own in zip(self.layers, written.layers, memory, strict=True):
            x, past, query = layer(x, past, own, written.column, visible)
            pasts.append(past)
            queries.append(query)
        energies = _energies(queries, memory, heads) if heads else None
        after = replace(written, layers=tuple(pasts), column=written.column + tokens.shape[1])
        return self.norm(x), after, energies

    def logits(self, states: Array) -> Array:
        """Map states [..., D] to logits, float32 [..., V]."""
        weights = self.embedding.embedding.astype(states.dtype)
        return jnp.matmul(states, weights.T, preferred_element_type=jnp.float32)


def _visible(columns: Array, written: Written) -> Array:
    """Return bool [R, T, N]: visible columns; one of the padding sees itself, lest it be 0 / 0."""
    keys = jnp.arange(written.layers[0].key.shape[-1])
    real = keys >= written.padding[:, None]
    itself = keys == columns[:, None]
    return (keys <= columns[:, None]) & (real[:, None] | itself)


def _energies(queries: list[Array], memory: Memory, heads: Heads) -> Array:
    """Return q k^T / sqrt(d) of the heads [R, n, T, S], in float32."""

    def energy(layer: int, head: int) -> Array:
        query, key = queries[layer][:, :, head], memory[layer].key[:, head]
        scale = query.shape[-1] ** -0.5
        return scale * jnp.einsum("btd,bds->bts", query, key, preferred_element_type=jnp.float32)

    return jnp.stack([energy(layer, head) for layer, head in heads], 1)


class Network(nn.Module):
    """Encoder and decoder."""

    config: Config

    def setup(self) -> None:
        self.encoder, self.decoder = Encoder(self.config), Decoder(self.config)

    def __call__(self, mel: Array, tokens: Array, heads: Heads = ()) -> tuple[Array, Array | None]:
        """Return logits [B, T, V] after each of the tokens [B, T], and the energies of heads."""
        written = nothing_written(self.config, tokens.shape[0], tokens.shape[1])
        memory = self.decoder.remember(self.encoder(mel))
        states, _, energies = self.decoder(tokens, written, memory, heads)
        return self.decoder.logits(states), energies


@flax.struct.dataclass
class Model:
    """The network with its parameters, which are leaves; the configuration is structure."""

    params: dict[str, Any]
    config: Config = flax.struct.field(pytree_node=False)

    def encode(self, mel: Array) -> Array:
        """Encode [B, F, mels] to [B, F / 2, D]."""
        return self._apply(lambda network: network.encoder(mel))

    def remember(self, states: Array) -> Memory:
        """Return keys and values that the decoder attends to."""
        return self._apply(lambda network: network.decoder.remember(states))

    def write(
        self, tokens: Array, written: Written, memory: Memory, heads: Heads = ()
    ) -> tuple[Array, Written, Any]:
        """Decode T more tokens [R, T]: states, the cache, and the energies of heads."""
        return self._apply(lambda network: network.decoder(tokens, written, memory, heads))

    def logits(self, states: Array) -> Array:
        """Map states [..., D] to logits, float32 [..., V]."""
        return self._apply(lambda network: network.decoder.logits(states))

    def _apply(self, method: Callable[[Network], Any]) -> Any:
        """Apply the network; float32 is exact on devices that would round it to fewer bits."""
        exact = self.config.dtype == "float32"
        with jax.default_matmul_precision("highest" if exact else "default"):
            return Network(self.config).apply({"params": self.params}, method=method)
