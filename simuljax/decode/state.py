"""The state of decoding as one pytree of fixed size: the source so far, the targets so far.

`attempt` passes the next token through the decoder and changes nothing; `commit` takes over what it
gave; `replay` passes all targets again over a source that has changed.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from simuljax.config.decoding import Decoding
from simuljax.config.model import Monotonic
from simuljax.decode.policy import Policy, PolicyError
from simuljax.models.translator import Attempt, Translator, init_past
from simuljax.nn.attention import Past
from simuljax.nn.pointers import Memory, Selection, SourceProgress
from simuljax.nn.transformer import LayerState
from simuljax.text import BOS, PAD, WordCount, Words

SHORT = 64  # tokens that most sentences do not exceed


@flax.struct.dataclass
class Control:
    """The choices of `Decoding` that are arrays, so that a sweep over them compiles once."""

    selection: Selection
    numbers: dict[str, jax.Array]  # of the policy
    words: Words | None = None  # which ids begin and end words

    def policy(self, decoding: Decoding) -> Policy | None:
        """Return the policy with its numbers, for a step that was compiled for its template."""
        return None if decoding.policy is None else decoding.policy.with_numbers(self.numbers)


@dataclass(frozen=True, kw_only=True)
class Context:
    """The model and the choices, inside a compiled function: what all of decoding needs."""

    model: Translator
    variables: Any  # of `model.apply`
    control: Control
    decoding: Decoding

    @property
    def policy(self) -> Policy | None:
        """Return the policy with its numbers."""
        return self.control.policy(self.decoding)

    def without_policy(self) -> "Context":
        """Return the context of a search that nothing interrupts."""
        return dataclasses.replace(self, decoding=dataclasses.replace(self.decoding, policy=None))


def control_of(decoding: Decoding, monotonic: Monotonic, words: Words | None = None) -> Control:
    """Return the arrays; policies that count words need `words`."""
    k = sum(monotonic.wait_k) // 2 if decoding.k is None else decoding.k
    policy = decoding.policy
    if policy is not None and "words" in policy.needs and words is None:
        raise PolicyError(f"{policy.name} counts words: give words=Words.of(source, target) too")
    numbers = {} if policy is None else policy.numbers()
    return Control(
        selection=Selection(
            energy=jnp.float32(math.log(decoding.threshold / (1 - decoding.threshold))),
            k=jnp.int32(k),
            everything=policy is not None,
            weights=policy is not None and "attention" in policy.needs,
        ),
        numbers={name: jnp.asarray(value, _dtype(value)) for name, value in numbers.items()},
        words=words,
    )


def _dtype(number: float) -> Any:
    return jnp.int32 if isinstance(number, int) else jnp.float32


@flax.struct.dataclass
class Known:
    """The source as far as it is known, projected for every layer."""

    memory: Memory  # layers first
    progress: SourceProgress
    samples: jax.Array | None = None  # int32 [B]: of speech
    units: jax.Array | None = None  # int32 [B]: words of the source, if these are counted

    @property
    def batch(self) -> int:
        """Return the number of sources."""
        return self.progress.lengths.shape[0]

    @property
    def size(self) -> int:
        """Return the most states that a source can have."""
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
    words: WordCount | None = None  # of them, if the policy counts words

    @property
    def room(self) -> int:
        """Return the most tokens that can be written."""
        return self.past.key.shape[2]


def init_prefix(model: Translator, batch: int, room: int, decoding: Decoding) -> Prefix:
    """Return a prefix without tokens, with room for so many."""
    past = init_past(model.config, batch, room)
    layers, _, _, heads, _ = past.key.shape
    window = decoding.repetition.window if decoding.repetition else 0
    counts = decoding.policy is not None and "words" in decoding.policy.needs
    return Prefix(
        past=past,
        pointer=jnp.zeros((layers, batch, heads), jnp.int32),
        position=jnp.zeros(batch, jnp.int32),
        token=jnp.full(batch, BOS, jnp.int32),
        recent=_no_tokens(batch, window),
        finished=jnp.zeros(batch, bool),
        words=WordCount.begin((batch,)) if counts else None,
    )


def attempt(context: Context, prefix: Prefix, known: Known) -> Attempt:
    """Return what would be written next; T = 1."""
    state = LayerState(past=prefix.past, memory=known.memory, pointer=prefix.pointer)
    selection = context.control.selection
    given = (prefix.token[:, None], prefix.position, state, known.progress, selection)
    return context.model.apply(context.variables, *given, method="attempt")  # pyright: ignore[reportReturnType]


def commit(
    prefix: Prefix, tried: Attempt, token: jax.Array, write: jax.Array, attempted: jax.Array
) -> Prefix:
    """Return the prefix with `token` [B] where `write` [B]; where `attempted`, pointers alone move.

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


def replay(context: Context, prefix: Prefix, tokens: jax.Array, known: Known) -> Prefix:
    """Return the prefix as if its tokens, the first of [B, N], were written with what is known now.

    All of them are judged anew, and nothing waits: a head that would read on attends as from the
    last decision, as in training. There is room for far more tokens than most sentences have: while
    all are short, only so many are looked at.
    """

    def first(count: int) -> Prefix:
        return _replay(context, prefix, tokens[:, :count], known)

    if prefix.room <= SHORT:
        return first(prefix.room)
    is_short = (prefix.position <= SHORT).all()
    return jax.lax.cond(is_short, lambda: first(SHORT), lambda: first(prefix.room))


def _replay(context: Context, prefix: Prefix, tokens: jax.Array, known: Known) -> Prefix:
    """Replay tokens [B, n], which are all that were written."""
    before = jnp.pad(tokens[:, :-1], [(0, 0), (1, 0)], constant_values=BOS)
    nothing = jax.tree.map(lambda a: a[:, :, :0], prefix.past)
    start = LayerState(past=nothing, memory=known.memory, pointer=jnp.zeros_like(prefix.pointer))
    selection = dataclasses.replace(context.control.selection, weights=False)  # none is needed
    given = (before, jnp.zeros_like(prefix.position), start, known.progress, selection)
    passed: Any = context.model.apply(context.variables, *given, method="attempt")
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
    """Return the prefixes of these rows [J]."""
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
    """Return int32 [B, window]: the last of the first `count` [B] of tokens [B, N]."""
    place = count[:, None] - window + jnp.arange(window)
    found = jnp.take_along_axis(tokens, jnp.maximum(place, 0), 1)
    return jnp.where(place >= 0, found, _no_tokens(len(tokens), window))


def _no_tokens(batch: int, window: int) -> jax.Array:
    """Return ids unlike every token and each other, so that nothing seems to repeat."""
    return jnp.broadcast_to(PAD - 1 - jnp.arange(window, dtype=jnp.int32), (batch, window))
