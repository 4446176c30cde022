"""The state of decoding as one pytree of fixed size: the source so far, the targets so far.

`attempt` passes the next token through the decoder and changes nothing; `commit` takes over what it
gave; `replay` passes all targets again over a source that has changed.

The source of a translation: encoded from scratch, or grown state by state.

`encode_speech` and `encode_text` encode the first part of a source as a whole, for encoders that
look at all of it. `append` adds states of a streaming encoder to arrays of fixed size.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

import flax.struct
import jax
import jax.numpy as jnp

from simuljax.config.decoding import Decoding
from simuljax.config.model import ModelConfig, Monotonic
from simuljax.decode.policies import Policy, PolicyError, WaitK
from simuljax.models.encoders import Encoded
from simuljax.models.joint import Attempt, JointModel, init_past
from simuljax.models.streaming import chunking_of
from simuljax.nn.attention import Past
from simuljax.nn.chunked import Buffer, drop, extend, init_buffer
from simuljax.nn.layers import real, zero_padding
from simuljax.nn.monotonic import (
    Decisions,
    Memory,
    Selection,
    SourceProgress,
    at_triggers,
    progress_of,
    word_points,
)
from simuljax.nn.subsampling import STRIDE
from simuljax.nn.transformer import LayerState
from simuljax.ops import label_triggers
from simuljax.text import BOS, PAD, WordBoundaries, WordCount, Words
from simuljax.text.words import ctc_word_counts

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

    model: JointModel
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


def init_prefix(model: JointModel, batch: int, room: int, decoding: Decoding) -> Prefix:
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


@flax.struct.dataclass
class Counting:
    """The rule that counts words in the output of a CTC head."""

    boundaries: WordBoundaries  # of the source's vocabulary
    trailing: Literal["count", "leave"] = flax.struct.field(pytree_node=False, default="count")


def counting_of(model: ModelConfig, decoding: Decoding, control: Control) -> Counting | None:
    """Return what the policy counts, or else the model; None if neither counts CTC words."""
    policy, words = decoding.policy, control.words
    if policy is not None and "units" in policy.needs:
        assert words is not None
        trailing = policy.trailing if isinstance(policy, WaitK) else "count"
        return Counting(boundaries=words.source, trailing=trailing)
    if words is None or model.predecision.kind != "ctc_words":
        return None
    return Counting(boundaries=words.source)


def encode_speech(
    model: JointModel,
    variables: Any,
    features: jax.Array,
    frames: jax.Array,
    ended: jax.Array,
    labels: jax.Array | None = None,
    *,
    counting: Counting | None = None,
    samples: jax.Array | None = None,
) -> Known:
    """Return what is known after the first `frames` [B] of the features [B, F, D].

    Where `ended` [B], that is all of the source. With `counting`, `units` are the words that the
    CTC head hears. `samples` [B] are noted.
    """

    def encode(model: JointModel) -> tuple[Encoded, Decisions]:
        encoded = _complete(model, model.encode_speech(features, frames, train=False), ended)
        encoded = encoded if counting is None else _count(encoded, counting)
        return encoded, _speech_decisions(model, encoded, labels, ended)

    both: Any = model.apply(variables, method=encode)
    known = known_of(model, variables, both[0], both[1], ended)
    words = both[0].words
    units = None if words is None else words[:, -1]
    return dataclasses.replace(known, samples=samples, units=units)


def encode_text(
    model: JointModel, variables: Any, tokens: jax.Array, lengths: jax.Array, ended: jax.Array
) -> Known:
    """Return what is known after the first `lengths` [B] of the tokens [B, L]."""

    def encode(model: JointModel) -> tuple[Encoded, Decisions]:
        encoded = model.encode_text(tokens, lengths, train=False)
        return encoded, model.text_decisions(encoded)

    both: Any = model.apply(variables, method=encode)
    return known_of(model, variables, both[0], both[1], ended)


def known_of(
    model: JointModel, variables: Any, encoded: Encoded, decisions: Decisions, ended: jax.Array
) -> Known:
    """Return the states as the decoder attends to them."""
    memory: Any = model.apply(variables, encoded.states, decisions.keys, method="remember")
    return Known(memory=memory, progress=progress_of(decisions, encoded.lengths, ended))


def _complete(model: JointModel, encoded: Encoded, ended: jax.Array) -> Encoded:
    """Drop the states of a streaming encoder that still wait for what follows them."""
    speech = model.config.speech
    if speech is None or speech.kind != "streaming":
        return encoded
    complete = chunking_of(speech).complete(encoded.lengths) * speech.chunk
    lengths = jnp.where(ended, encoded.lengths, complete)
    states = zero_padding(encoded.states, lengths)
    return dataclasses.replace(encoded, states=states, lengths=lengths)


def _count(encoded: Encoded, counting: Counting) -> Encoded:
    assert encoded.ctc is not None
    words = ctc_word_counts(
        encoded.ctc, encoded.lengths, counting.boundaries, trailing=counting.trailing
    )
    return dataclasses.replace(encoded, words=words)


def _speech_decisions(
    model: JointModel, encoded: Encoded, labels: jax.Array | None, ended: jax.Array
) -> Decisions:
    """Decide as in training, but the last state triggers as the last only if the source ended."""
    chosen, size = model.config.predecision, encoded.states.shape[1]
    if chosen.kind == "ctc_words" and encoded.words is not None:
        given = (encoded.states, encoded.lengths, encoded.words, chosen.pooling)
        return word_points(*given, ended)
    if chosen.kind not in ("words", "phonemes"):
        return model.speech_decisions(encoded)
    if labels is None:
        raise ValueError(f"the model decides at {chosen.kind}: give their labels [B, F]")
    of_states = labels[:, ::STRIDE][:, :size]
    of_states = jnp.pad(of_states, [(0, 0), (0, size + 1 - of_states.shape[1])])
    triggers = label_triggers(of_states, encoded.lengths + ~ended)[:, :size]
    return at_triggers(encoded.states, triggers & real(encoded.lengths, size), chosen.pooling)


@flax.struct.dataclass
class Source:
    """A growing source, and the states whose decision waits for those to come."""

    known: Known
    window: Buffer


def init_source(model: JointModel, variables: Any, batch: int, states: int) -> Source:
    """Return a source without states, with room for so many."""
    c, step = model.config, _step(model)
    points = -(-states // step)
    zero = jnp.zeros(batch, jnp.int32)
    given = (batch, states), (batch, points)
    shapes = (jax.ShapeDtypeStruct((*shape, c.width.model), c.width.dtype) for shape in given)
    memory: Any = jax.eval_shape(
        lambda *given: model.apply(variables, *given, method="remember"), *shapes
    )
    exists = jnp.zeros((batch, points), bool) if c.predecision.kind == "learnable" else None
    progress = SourceProgress(
        lengths=zero,
        ends=jnp.zeros((batch, points), jnp.int32),
        count=zero,
        ended=jnp.zeros(batch, bool),
        exists=exists,
    )
    memory = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), memory)
    window = init_buffer(batch, step - 1, c.width.model, c.width.dtype)
    return Source(known=Known(memory=memory, progress=progress), window=window)


def append(
    model: JointModel,
    variables: Any,
    source: Source,
    states: jax.Array,
    length: jax.Array,
    ended: jax.Array,
) -> Source:
    """Return the source with the first `length` [B] of more states [B, S, D].

    Where `ended` [B], no more follow. A source that has no more room has ended too.
    """
    progress = source.known.progress
    length = jnp.minimum(length, source.known.size - progress.lengths)
    total = progress.lengths + length
    ended = progress.ended | ended | (total == source.known.size)
    joined = extend(source.window, states, length)
    decisions: Any = model.apply(
        variables, Encoded(states=joined.vectors, lengths=joined.count), method="speech_decisions"
    )
    new = progress_of(decisions, joined.count, ended)
    used = jnp.minimum(new.count * _step(model), joined.count)
    memory: Any = model.apply(variables, states, decisions.keys, method="remember")
    first = (progress.lengths - source.window.count)[:, None]
    old = source.known.memory
    known = Known(
        memory=Memory(
            value=_put(old.value, memory.value, progress.lengths, length),
            key=_put(old.key, memory.key, progress.lengths, length),
            decide=_put(old.decide, memory.decide, progress.count, new.count),
        ),
        progress=SourceProgress(
            lengths=total,
            ends=_put_row(progress.ends, new.ends + first, progress.count, new.count),
            count=progress.count + new.count,
            ended=ended,
            exists=_put_row(progress.exists, new.exists, progress.count, new.count),
        ),
    )
    return Source(known=known, window=drop(joined, used, _step(model) - 1))


def _step(model: JointModel) -> int:
    """Return the states to a decision."""
    chosen = model.config.predecision
    if chosen.kind in ("words", "phonemes"):
        raise ValueError(
            f"the model decides at {chosen.kind}, whose labels no stream carries; "
            "see simuljax.decode.simulate"
        )
    return chosen.step if chosen.kind == "fixed" else 1


def _put(room: Any, new: Any, start: jax.Array, length: jax.Array) -> Any:
    """Put the first `length` [B] of new [layers, B, S, ...] at `start` [B]."""
    if room is None:
        return None
    place = _places(start, length, new.shape[2], room.shape[2])
    return room.at[:, jnp.arange(len(start))[:, None], place].set(new, mode="drop")


def _put_row(room: Any, new: Any, start: jax.Array, length: jax.Array) -> Any:
    """Put the first `length` [B] of new [B, S] at `start` [B]."""
    if room is None:
        return None
    place = _places(start, length, new.shape[1], room.shape[1])
    return room.at[jnp.arange(len(start))[:, None], place].set(new, mode="drop")


def _places(start: jax.Array, length: jax.Array, new: int, room: int) -> jax.Array:
    """Return [B, new]: where each goes; beyond the room if it is not real."""
    return jnp.where(real(length, new), start[:, None] + jnp.arange(new), room)
