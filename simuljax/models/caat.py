"""CAAT: a transducer whose joiner attends to the source (Liu et al. 2021).

    what was written -> predictor, which sees no source --+
                                                          +--> joiner --> a label, or the blank
    states of the groups so far --------------------------+

Groups are the windows of the pre-decision: `predecision.step` states each, d in the paper, which
sets the latency. For every group the joiner is asked anew what follows each target, and the blank
says: first read the next group. The blank is the class of begin-of-sentence, which is no label.

The logits of a whole lattice, [B, G, U + 1, V], never exist at once: each group keeps two scores of
each V, and the backward pass computes its logits again.
"""

from collections.abc import Sequence

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jax import Array

from simuljax.config.model import ModelConfig
from simuljax.models.decoders import Attempt, Decoded, DecoderState, LayerStep
from simuljax.models.encoders import Stack
from simuljax.nn.attention import Past, View, attend_past
from simuljax.nn.layers import Dropout, embed_positions, embedding, layer_norm, scan_layers
from simuljax.nn.monotonic import Memory, Source, look_everywhere, whole_source
from simuljax.nn.transformer import EncoderLayer, JoinerLayer

BLANK = 1  # `simuljax.text.BOS`


@flax.struct.dataclass
class Lattice:
    """Log-probabilities after u of U targets in each of G groups."""

    blank: Array  # float32 [B, G, U + 1]
    label: Array  # float32 [B, G, U]: of target u + 1
    groups: Array  # int32 [B]


class Predictor(Stack):
    """Causal layers, over all targets or step by step."""

    def step(self, x: Array, past: Past, count: Array) -> tuple[Array, Past]:
        """Run T more targets [B, T, D] after the first `count` [B] of the unchanged past.

        Gives their keys and values too; those of the layers have an axis of their own, the first.
        """

        def body(layer: EncoderLayer, x: Array, past: Past) -> tuple[Array, Past]:
            new = layer.heads.project(layer.attention_norm(x))
            x = layer.after_attention(x, attend_past(new, past, count), train=False)
            return x, Past(key=new[1], value=new[2])

        return scan_layers(self.layer, self.layers, body, x, past, unroll=self.width.unroll)


class TransducerDecoder(nn.Module):
    """Embeddings, predictor, joiner, and scores of every label and the blank."""

    config: ModelConfig

    def setup(self) -> None:
        c, width = self.config, self.config.width_of_decoder
        self.embedding = embedding(c.target_vocabulary, width)
        self.predictor, self.joiner = Predictor(width, c.decoder_layers), JoinerLayer(width)
        self.dropout, self.norm = Dropout(width.dropout), layer_norm(width)
        if c.output == "own":
            self.output = nn.Dense(c.target_vocabulary, use_bias=False, dtype=width.dtype)

    def __call__(self, prefix: Array, sources: Sequence[Source], *, train: bool) -> list[Decoded]:
        """Decode with the whole source visible, as an offline model: for cross-entropy."""
        x, decoded = self._predict_all(prefix, train=train), []
        for source in sources:
            memory = self.remember(source.states, source.decisions.keys)
            logits = self.join(x, memory, source.lengths, train=train)
            reading = whole_source((1, x.shape[0], 1, x.shape[1]), source)
            decoded.append(Decoded(logits=logits, reading=reading))
        return decoded

    def lattice(self, targets: Array, source: Source, *, train: bool) -> Lattice:
        """Return scores of the targets [B, U] and of the blank, group by group."""
        x = self._predict_all(
            jnp.pad(targets, [(0, 0), (1, 0)], constant_values=BLANK), train=train
        )
        memory = self.remember(source.states, source.decisions.keys)

        def group(
            decoder: TransducerDecoder, _: None, reach: Array
        ) -> tuple[None, tuple[Array, Array]]:
            return None, pick(decoder.join(x, memory, reach, train=train), targets)

        over_groups = nn.scan(
            nn.remat(group, prevent_cse=False),
            variable_broadcast="params",
            split_rngs={"params": False, "dropout": True},
            out_axes=1,
        )
        points = source.decisions
        _, (blank, label) = over_groups(self, None, points.ends.swapaxes(0, 1) + 1)
        return Lattice(blank=blank, label=label, groups=points.count)

    def remember(self, states: Array, keys: Array) -> Memory:
        """Project states [B, K, D] by every joiner layer, layers first."""
        del keys  # of decisions, which are the joiner's own

        def body(layer: JoinerLayer, _: None, __: None) -> tuple[None, Memory]:
            return None, layer.remember(states)

        return scan_layers(self.joiner, self.config.joiner_layers, body, None)[1]

    def predict(self, tokens: Array, position: Array, past: Past) -> tuple[Array, Past]:
        """Run the predictor on tokens [B, T] from `position` [B] on; return keys and values too."""
        target = position[:, None] + jnp.arange(tokens.shape[1])
        x = embed_positions(self.embedding(tokens), target)
        return self.predictor.step(x, past, position)

    def join(self, x: Array, memory: Memory, reach: Array, *, train: bool = False) -> Array:
        """Return logits [B, T, V] for predictions [B, T, D], with `reach` [B] states visible."""

        def body(layer: JoinerLayer, x: Array, memory: Memory) -> tuple[Array, None]:
            return layer(x, memory, reach, train=train), None

        count, unroll = self.config.joiner_layers, self.config.width.unroll
        return self._logits(scan_layers(self.joiner, count, body, x, memory, unroll=unroll)[0])

    def attempt(self, tokens: Array, state: DecoderState) -> Attempt:
        """Decode T more targets as an offline model: all received states visible, no blank."""
        if state.selection.weights:
            raise ValueError("the policy needs attention weights, and CAAT's joiner has none")
        before, progress = state.layers, state.progress
        x, added = self.predict(tokens, state.position, before.past)
        logits = self.join(x, before.memory, progress.lengths)
        logits = jnp.where(jnp.arange(logits.shape[-1]) == BLANK, -jnp.inf, logits)
        look = look_everywhere((len(tokens), before.pointer.shape[-1], tokens.shape[1]), progress)
        layers = self.config.decoder_layers
        look = jax.tree.map(lambda a: jnp.broadcast_to(a, (layers, *a.shape)), look)
        return Attempt(logits=logits, layers=LayerStep(added=added, look=look))

    def _predict_all(self, prefix: Array, *, train: bool) -> Array:
        x = self.dropout(embed_positions(self.embedding(prefix)), deterministic=not train)
        return self.predictor(x, View(causal=True), train=train)

    def _logits(self, x: Array) -> Array:
        x = self.norm(x)
        return self.output(x) if self.config.output == "own" else self.embedding.attend(x)


def pick(logits: Array, targets: Array) -> tuple[Array, Array]:
    """Return log-probabilities of blank [B, U + 1] and targets [B, U] from logits [B, U + 1, V]."""
    logits = logits.astype(jnp.float32)
    normaliser = jax.nn.logsumexp(logits, axis=-1)
    label = jnp.take_along_axis(logits[:, :-1], targets[..., None], axis=-1)[..., 0]
    return logits[..., BLANK] - normaliser, label - normaliser[:, :-1]
