"""What has been written so far, as the decoder goes on from it: one pytree of fixed size."""

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from simuljax.decode.options import Decoding
from simuljax.decode.policies import WaitK
from simuljax.models.translator import Attempt, Translator, init_past
from simuljax.nn.attention import Past
from simuljax.nn.pointers import Heard, Memory, Rule
from simuljax.nn.transformer import LayerState
from simuljax.text import BOS, PAD, WordCount

SHORT = 64  # tokens that most sentences do not exceed


@flax.struct.dataclass
class Known:
    """The source as far as it is known, projected for every layer."""

    memory: Memory  # layers first
    heard: Heard
    units: jax.Array | None = None  # int32 [B]: what wait-k counts, if it decides: words heard

    @property
    def batch(self) -> int:
        """Sources."""
        return self.heard.lengths.shape[0]

    @property
    def size(self) -> int:
        """The most states that a source can have."""
        return self.memory.value.shape[2]


@flax.struct.dataclass
class Prefix:
    """Targets whose keys and values are in `past`, and the last token, which is not yet there."""

    past: Past  # [layers, B, N, H, d]
    pointer: jax.Array  # int32 [layers, B, H]: the first decision not yet rejected
    position: jax.Array  # int32 [B]: tokens written
    token: jax.Array  # int32 [B]: the last of them, or begin-of-sentence
    recent: jax.Array  # int32 [B, R]: the last of them, for the guard against repetition
    finished: jax.Array  # bool [B]: nothing more will be written
    words: WordCount | None = None  # of them, if wait-k decides

    @property
    def room(self) -> int:
        """The most tokens that can be written."""
        return self.past.key.shape[2]


def init_prefix(model: Translator, batch: int, room: int, decoding: Decoding) -> Prefix:
    """Nothing written, and room for so many tokens."""
    past = init_past(model.config, batch, room)
    layers, _, _, heads, _ = past.key.shape
    window = decoding.repetition.window if decoding.repetition else 0
    return Prefix(
        past=past,
        pointer=jnp.zeros((layers, batch, heads), jnp.int32),
        position=jnp.zeros(batch, jnp.int32),
        token=jnp.full(batch, BOS, jnp.int32),
        recent=_no_tokens(batch, window),
        finished=jnp.zeros(batch, bool),
        words=WordCount.begin((batch,)) if isinstance(decoding.policy, WaitK) else None,
    )


def attempt(model: Translator, variables: Any, prefix: Prefix, known: Known, rule: Rule) -> Attempt:
    """What would be written next; T = 1. Nothing is changed."""
    state = LayerState(past=prefix.past, memory=known.memory, pointer=prefix.pointer)
    given = (prefix.token[:, None], prefix.position, state, known.heard, rule)
    return model.apply(variables, *given, method="attempt")  # pyright: ignore[reportReturnType]


def commit(
    prefix: Prefix, tried: Attempt, token: jax.Array, write: jax.Array, attempted: jax.Array
) -> Prefix:
    """The prefix with `token` [B] where `write` [B]; where only `attempted`, pointers alone move.

    A layer's query depends on where the heads of the layers below attend. So what a layer rejected
    stays rejected only if all heads below had found their place: if one of them still waits, it
    will attend to more, and the layers above will judge anew.
    """
    rows, size = jnp.arange(len(token)), prefix.room
    place = jnp.where(write, prefix.position, size)  # beyond the array, where nothing is written

    def put(past: jax.Array, new: jax.Array) -> jax.Array:
        return past.at[:, rows, place].set(new[:, :, 0], mode="drop")

    waits = tried.layers.look.waits[..., 0].any(-1)  # [layers, B]
    settled_below = jnp.cumsum(waits, 0) - waits == 0
    moves = write | (attempted & settled_below)
    recent = jnp.concatenate([prefix.recent, token[:, None]], 1)[:, 1:]
    return Prefix(
        past=jax.tree.map(put, prefix.past, tried.layers.added),
        pointer=jnp.where(moves[..., None], tried.layers.look.pointer[..., 0], prefix.pointer),
        position=prefix.position + write,
        token=jnp.where(write, token, prefix.token),
        recent=jnp.where(write[:, None], recent, prefix.recent),
        finished=prefix.finished,
        words=prefix.words,
    )


def replay(
    model: Translator, variables: Any, prefix: Prefix, tokens: jax.Array, known: Known, rule: Rule
) -> Prefix:
    """The prefix as if its tokens, the first of [B, N], had been written with what is known now.

    All of them are judged anew, and nothing waits: a head that would read on attends as from the
    last decision, as in training. There is room for far more tokens than most sentences have: while
    all are short, only so many are looked at.
    """

    def first(count: int) -> Prefix:
        return _replay(model, variables, prefix, tokens[:, :count], known, rule)

    if prefix.room <= SHORT:
        return first(prefix.room)
    is_short = (prefix.position <= SHORT).all()
    return jax.lax.cond(is_short, lambda: first(SHORT), lambda: first(prefix.room))


def _replay(
    model: Translator, variables: Any, prefix: Prefix, tokens: jax.Array, known: Known, rule: Rule
) -> Prefix:
    """`replay` of tokens [B, n], which are all that were written."""
    before = jnp.pad(tokens[:, :-1], [(0, 0), (1, 0)], constant_values=BOS)
    nothing = jax.tree.map(lambda a: a[:, :, :0], prefix.past)
    start = LayerState(past=nothing, memory=known.memory, pointer=jnp.zeros_like(prefix.pointer))
    rule = dataclasses.replace(rule, frames=None)  # nothing is decided: no weights are needed
    given = (before, jnp.zeros_like(prefix.position), start, known.heard, rule)
    passed: Any = model.apply(variables, *given, method="attempt")
    last = jnp.maximum(prefix.position - 1, 0)[None, :, None, None]
    pointer = jnp.take_along_axis(passed.layers.look.pointer, last, 3)[..., 0]
    return dataclasses.replace(
        prefix,
        past=jax.tree.map(
            lambda past, new: past.at[:, :, : tokens.shape[1]].set(new),
            prefix.past,
            passed.layers.added,
        ),
        pointer=jnp.where((prefix.position > 0)[:, None], pointer, 0),
    )


def take_rows(prefix: Prefix, rows: jax.Array) -> Prefix:
    """The prefixes of these rows [J]."""
    return Prefix(
        past=jax.tree.map(lambda a: a[:, rows], prefix.past),
        pointer=prefix.pointer[:, rows],
        position=prefix.position[rows],
        token=prefix.token[rows],
        recent=prefix.recent[rows],
        finished=prefix.finished[rows],
        words=jax.tree.map(lambda a: a[rows], prefix.words),
    )


def recent_of(tokens: jax.Array, count: jax.Array, window: int) -> jax.Array:
    """int32 [B, window]: the last of the first `count` [B] of tokens [B, N]: `Prefix.recent`."""
    place = count[:, None] - window + jnp.arange(window)
    found = jnp.take_along_axis(tokens, jnp.maximum(place, 0), 1)
    return jnp.where(place >= 0, found, _no_tokens(len(tokens), window))


def _no_tokens(batch: int, window: int) -> jax.Array:
    """Different from every token and from each other, so that nothing seems to repeat."""
    return jnp.broadcast_to(PAD - 1 - jnp.arange(window, dtype=jnp.int32), (batch, window))
