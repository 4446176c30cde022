"""Decoders: monotonic Transformer layers (Ma et al. 2020), and LSTMs (Nguyen et al. 2021).

An LSTM decoder (Bahdanau et al. 2015) computes

    context[t] = attention(h_1[t-1], states)
    h_1[t] = LSTM_1([embedding(y[t-1]); context[t]]),  h_l[t] = LSTM_l(h_(l-1)[t])
    logits[t] = W [h_L[t]; context[t]]

It keeps h and c of every layer after each target, as a Transformer keeps keys and values: h stands
for the key and c for the value of one head. So a step can be taken back.
"""

import dataclasses
from collections.abc import Sequence

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jax import Array

from simuljax.config.model import ModelConfig, Monotonic, Width
from simuljax.nn.attention import (
    AdditiveAttention,
    Heads,
    Past,
    Seen,
    View,
    attend_past,
    attend_view,
)
from simuljax.nn.layers import (
    Dropout,
    FeedForward,
    embed_positions,
    embedding,
    layer_norm,
    scan_layers,
)
from simuljax.nn.monotonic import (
    Look,
    Memory,
    MonotonicAttention,
    Reading,
    Selection,
    Source,
    SourceProgress,
    look_everywhere,
    whole_source,
)
from simuljax.nn.recurrent import Cell, LSTMCell, blank


@flax.struct.dataclass
class Decoded:
    """Logits of every target position, and the alignment of each layer."""

    logits: Array  # [B, T, V]
    reading: Reading  # a leading axis over layers


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


@flax.struct.dataclass
class DecoderState:
    """Everything that T more targets depend on."""

    position: Array  # int32 [B]: targets so far
    layers: LayerState  # a leading axis over layers
    progress: SourceProgress
    selection: Selection


@flax.struct.dataclass
class Attempt:
    """The output of T more targets, and the state to keep if they are written."""

    logits: Array  # [B, T, V]
    layers: LayerStep  # a leading axis over layers


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


class Decoder(nn.Module):
    """Monotonic decoder layers between embeddings and logits."""

    config: ModelConfig

    def setup(self) -> None:
        c, width = self.config, self.config.width_of_decoder
        self.embedding = embedding(c.target_vocabulary, width)
        self.layer = DecoderLayer(width, c.monotonic)
        self.dropout, self.norm = Dropout(c.width.dropout), layer_norm(c.width)
        if c.output == "own":
            self.output = nn.Dense(c.target_vocabulary, use_bias=False, dtype=c.width.dtype)

    def __call__(self, prefix: Array, sources: Sequence[Source], *, train: bool) -> list[Decoded]:
        x = embed_positions(self.embedding(prefix))
        x = self.dropout(jnp.concatenate([x] * len(sources)), deterministic=not train)

        def body(layer: DecoderLayer, x: Array, _: None) -> tuple[Array, list[Reading]]:
            return layer(x, sources, train=train)

        unroll = self.config.width.unroll
        x, readings = scan_layers(self.layer, self.config.decoder_layers, body, x, unroll=unroll)
        logits = jnp.split(self.logits(self.norm(x)), len(sources))
        pairs = zip(logits, readings, strict=True)
        return [Decoded(logits=own, reading=reading) for own, reading in pairs]

    def remember(self, states: Array, keys: Array) -> Memory:
        """Project the source by every layer, layers first."""

        def body(layer: DecoderLayer, _: None, __: None) -> tuple[None, Memory]:
            return None, layer.cross.remember(states, keys)

        return scan_layers(self.layer, self.config.decoder_layers, body, None)[1]

    def attempt(self, tokens: Array, state: DecoderState) -> Attempt:
        """Decode tokens [B, T] with hard decisions."""
        target = state.position[:, None] + jnp.arange(tokens.shape[1])
        x = embed_positions(self.embedding(tokens), target)

        def body(layer: DecoderLayer, x: Array, before: LayerState) -> tuple[Array, LayerStep]:
            return layer.step(x, before, state.progress, state.selection, target=target)

        count, unroll = self.config.decoder_layers, self.config.width.unroll
        x, layers = scan_layers(self.layer, count, body, x, state.layers, unroll=unroll)
        return Attempt(logits=self.logits(self.norm(x)), layers=layers)

    def logits(self, x: Array) -> Array:
        """Return scores of every token, from the last layer's states."""
        return self.output(x) if self.config.output == "own" else self.embedding.attend(x)


class RecurrentDecoder(nn.Module):
    """Embeddings, LSTMs of `width.hidden` units with attention to the source, logits."""

    config: ModelConfig

    def setup(self) -> None:
        c, width = self.config, self.config.width_of_decoder
        self.embedding = nn.Embed(c.target_vocabulary, width.model, dtype=width.dtype)
        self.tokens = nn.Dense(4 * width.hidden, use_bias=False, dtype=width.dtype)
        self.attention = AdditiveAttention(width)
        self.layers = [LSTMCell(width.hidden, width.dtype) for _ in range(c.decoder_layers)]
        self.dropout = Dropout(width.dropout)
        self.output = nn.Dense(c.target_vocabulary, dtype=width.dtype)

    def __call__(self, prefix: Array, sources: Sequence[Source], *, train: bool) -> list[Decoded]:
        decoded = []
        for source in sources:
            seen = self._see(self.remember(source.states, source.decisions.keys), source.lengths)
            start = self._blank(prefix.shape[0], seen.key)
            logits, *_ = self._run(prefix, start, seen, train=train)
            reading = whole_source((1, prefix.shape[0], 1, prefix.shape[1]), source)
            decoded.append(Decoded(logits=logits, reading=reading))
        return decoded

    def remember(self, states: Array, keys: Array) -> Memory:
        """Project states [B, K, D] for the attention; layers and heads are one each."""
        del keys  # of decisions, which nothing takes here
        seen = (states, self.attention.key(states))
        value, key = (x[None, :, :, None] for x in seen)
        return Memory(value=value, key=key, decide=None)

    def attempt(self, tokens: Array, state: DecoderState) -> Attempt:
        """Decode T more targets, from the cells after those so far."""
        (batch, targets), layers = tokens.shape, self.config.decoder_layers
        seen = self._see(state.layers.memory, state.progress.lengths)
        start = cell_before(state.layers.past, state.position, self._blank(batch, seen.key))
        logits, cell, weight = self._run(tokens, start, seen, train=False)
        added = Past(key=cell.hidden[..., None, :], value=cell.memory[..., None, :])
        look = look_everywhere((batch, 1, targets), state.progress)
        if state.selection.weights:
            look = dataclasses.replace(look, weights=weight[:, None])
        look = jax.tree.map(lambda a: jnp.broadcast_to(a, (layers, *a.shape)), look)
        return Attempt(logits=logits, layers=LayerStep(added=added, look=look))

    def _run(
        self, tokens: Array, start: Cell, seen: Seen, *, train: bool
    ) -> tuple[Array, Cell, Array]:
        """Return logits [B, T, V], cells [layers, B, T, units] and attention [B, T, K].

        What depends on tokens [B, T] alone is computed at once, the rest target by target.
        """
        embedded = self.dropout(self.embedding(tokens), deterministic=not train)

        def step(
            decoder: RecurrentDecoder, cell: Cell, given: Array
        ) -> tuple[Cell, tuple[Cell, Array, Array]]:
            return decoder._step(cell, given, seen, train=train)

        scan = nn.scan(
            step,
            variable_broadcast="params",
            split_rngs={"params": False, "dropout": True},
            in_axes=1,
            out_axes=2,
        )
        _, (cell, context, weight) = scan(self, start, self.tokens(embedded))
        context, weight = context[0], weight[0]
        x = jnp.concatenate([cell.hidden[-1].astype(context.dtype), context], -1)
        logits = self.output(self.dropout(x, deterministic=not train))
        return logits, cell, weight

    def _step(
        self, cell: Cell, given: Array, seen: Seen, *, train: bool
    ) -> tuple[Cell, tuple[Cell, Array, Array]]:
        """Decode one target: return cells [layers, B, units], context and weights, layers first."""
        dtype = self.config.width_of_decoder.dtype
        context, weight = self.attention(cell.hidden[0].astype(dtype), seen)
        x, after = context, []
        for number, layer in enumerate(self.layers):
            before = jax.tree.map(lambda a, n=number: a[n], cell)
            after.append(layer(x, before, given if number == 0 else 0.0))
            x = self.dropout(after[-1].hidden.astype(dtype), deterministic=not train)
        cell = jax.tree.map(lambda *layers: jnp.stack(layers), *after)
        return cell, (cell, context[None], weight[None])

    def _see(self, memory: Memory, lengths: Array) -> Seen:
        assert memory.key is not None
        return Seen(key=memory.key[0, :, :, 0], value=memory.value[0, :, :, 0], lengths=lengths)

    def _blank(self, batch: int, like: Array) -> Cell:
        units = self.config.width_of_decoder.hidden
        return blank((self.config.decoder_layers, batch, units), like)


def cell_before(past: Past, position: Array, first: Cell) -> Cell:
    """Return the cells [layers, B, units] after target `position` - 1 [B]; `first` before any."""
    if past.key.shape[2] == 0:
        return first
    place = jnp.maximum(position - 1, 0)[None, :, None, None, None]

    def pick(kept: Array, first: Array) -> Array:
        found = jnp.take_along_axis(kept, place, 2)[:, :, 0, 0]
        return jnp.where((position > 0)[:, None], found, first)

    return jax.tree.map(pick, Cell(hidden=past.key, memory=past.value), first)
