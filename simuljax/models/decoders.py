"""Decoder outputs: a struct for a whole pass, and one for a step.

An LSTM decoder with additive attention (Bahdanau et al. 2015; Nguyen et al. 2021).

    context[t] = attention(h_1[t-1], states)
    h_1[t] = LSTM_1([embedding(y[t-1]); context[t]]),  h_l[t] = LSTM_l(h_(l-1)[t])
    logits[t] = W [h_L[t]; context[t]]

All that it knows of what has been written is h and c of every layer. It keeps them after each
target, as a Transformer keeps keys and values: h stands for the key and c for the value of one
head. So a step can be taken back, and goes on from wherever it is told to.
"""

import dataclasses
from collections.abc import Sequence

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from simuljax.config.model import ModelConfig
from simuljax.nn.attention import AdditiveAttention, Past, Seen
from simuljax.nn.layers import Dropout
from simuljax.nn.monotonic import (
    Memory,
    Reading,
    Selection,
    Source,
    SourceProgress,
    look_everywhere,
)
from simuljax.nn.recurrent import Cell, LSTMCell, blank
from simuljax.nn.transformer import LayerState, LayerStep


@flax.struct.dataclass
class Decoded:
    """Logits of every target position, and the alignment of each layer."""

    logits: jax.Array  # [B, T, V]
    reading: Reading  # a leading axis over layers


@flax.struct.dataclass
class Attempt:
    """The output of T more targets, and the state to keep if they are written."""

    logits: jax.Array  # [B, T, V]
    layers: LayerStep  # a leading axis over layers


@flax.struct.dataclass
class Passed:
    """The states after a pass over T targets."""

    logits: jax.Array  # [B, T, V]
    cell: Cell  # [layers, B, T, units]
    weight: jax.Array  # float32 [B, T, K]: attention


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

    def __call__(
        self, prefix: jax.Array, sources: Sequence[Source], *, train: bool
    ) -> list[Decoded]:
        return [self._decode(prefix, source, train=train) for source in sources]

    def _decode(self, prefix: jax.Array, source: Source, *, train: bool) -> Decoded:
        seen = self._see(self.remember(source.states, source.decisions.keys), source.lengths)
        start = self._blank(prefix.shape[0], seen.key)
        passed = self._run(prefix, start, seen, train=train)
        delays = source.lengths[None, :, None, None].astype(jnp.float32)
        delays = jnp.broadcast_to(delays, (1, prefix.shape[0], 1, prefix.shape[1]))
        reading = Reading(energy=None, delays=delays, alpha=None)
        return Decoded(logits=passed.logits, reading=reading)

    def remember(self, states: jax.Array, keys: jax.Array) -> Memory:
        """Project states [B, K, D] for the attention; layers and heads are one each."""
        del keys  # of decisions, which nothing takes here
        seen = (states, self.attention.key(states))
        value, key = (x[None, :, :, None] for x in seen)
        return Memory(value=value, key=key, decide=None)

    def attempt(
        self,
        tokens: jax.Array,
        position: jax.Array,
        state: LayerState,
        progress: SourceProgress,
        selection: Selection,
    ) -> Attempt:
        """Decode T more targets, from the state after target `position` - 1 [B]."""
        (batch, targets), layers = tokens.shape, self.config.decoder_layers
        seen = self._see(state.memory, progress.lengths)
        start = cell_before(state.past, position, self._blank(batch, seen.key))
        passed = self._run(tokens, start, seen, train=False)
        added = Past(key=passed.cell.hidden[..., None, :], value=passed.cell.memory[..., None, :])
        look = look_everywhere((batch, 1, targets), progress)
        if selection.weights:
            look = dataclasses.replace(look, weights=passed.weight[:, None])
        look = jax.tree.map(lambda a: jnp.broadcast_to(a, (layers, *a.shape)), look)
        return Attempt(logits=passed.logits, layers=LayerStep(added=added, look=look))

    def _run(self, tokens: jax.Array, start: Cell, seen: Seen, *, train: bool) -> Passed:
        """Decode target by target; what depends on tokens [B, T] alone is computed at once."""
        embedded = self.dropout(self.embedding(tokens), deterministic=not train)

        def step(
            decoder: RecurrentDecoder, cell: Cell, given: jax.Array
        ) -> tuple[Cell, tuple[Cell, jax.Array, jax.Array]]:
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
        return Passed(logits=logits, cell=cell, weight=weight)

    def _step(
        self, cell: Cell, given: jax.Array, seen: Seen, *, train: bool
    ) -> tuple[Cell, tuple[Cell, jax.Array, jax.Array]]:
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

    def _see(self, memory: Memory, lengths: jax.Array) -> Seen:
        assert memory.key is not None
        return Seen(key=memory.key[0, :, :, 0], value=memory.value[0, :, :, 0], lengths=lengths)

    def _blank(self, batch: int, like: jax.Array) -> Cell:
        units = self.config.width_of_decoder.hidden
        return blank((self.config.decoder_layers, batch, units), like)


def cell_before(past: Past, position: jax.Array, first: Cell) -> Cell:
    """Return the cells [layers, B, units] after target `position` - 1 [B]; `first` before any."""
    if past.key.shape[2] == 0:
        return first
    place = jnp.maximum(position - 1, 0)[None, :, None, None, None]

    def pick(kept: jax.Array, first: jax.Array) -> jax.Array:
        found = jnp.take_along_axis(kept, place, 2)[:, :, 0, 0]
        return jnp.where((position > 0)[:, None], found, first)

    return jax.tree.map(pick, Cell(hidden=past.key, memory=past.value), first)
