"""The state of decoding as pytrees of fixed size: the source so far, the targets so far.

`encode_speech` and `encode_text` encode the first part of a source as a whole, for encoders that
look at all of it; `append` adds the states of a streaming encoder. `attempt` passes the next token
through the decoder and changes nothing; `commit` takes over its result; `replay` passes all targets
again over a source that has changed.
"""

import math
from dataclasses import replace
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax import Array

from simuljax.config.decoding import Decoding
from simuljax.config.model import Monotonic
from simuljax.decode.policies import Policy, PolicyError, WaitK
from simuljax.models.encoders import Encoded
from simuljax.models.joint import Attempt, JointModel, init_past
from simuljax.models.streaming import chunking_of, states_after
from simuljax.nn.attention import Past
from simuljax.nn.chunked import Buffer, drop, extend, init_buffer
from simuljax.nn.layers import real, zero_padding
from simuljax.nn.monotonic import Decisions, Memory, Selection, SourceProgress, progress_of
from simuljax.nn.transformer import LayerState
from simuljax.text import BOS, PAD, WordCount, Words
from simuljax.text.words import ctc_word_counts

SHORT = 64  # tokens that most sentences do not exceed


@flax.struct.dataclass
class Control:
    """The choices of `Decoding` that are arrays, so that a sweep over them compiles once."""

    selection: Selection
    numbers: dict[str, Array]  # of the policy
    words: Words | None = None  # which ids begin and end words


@flax.struct.dataclass
class Context:
    """The model and the choices: what all of decoding needs. What has no array is compiled in."""

    variables: Any  # of `model.apply`
    control: Control
    model: JointModel = flax.struct.field(pytree_node=False)
    decoding: Decoding = flax.struct.field(pytree_node=False)

    @property
    def policy(self) -> Policy | None:
        """Return the policy with its numbers, which are arrays."""
        policy = self.decoding.policy
        return None if policy is None else policy.with_numbers(self.control.numbers)

    def apply(self, *given: Any, method: Any, **options: Any) -> Any:
        return self.model.apply(self.variables, *given, method=method, **options)


def context_of(
    model: JointModel, variables: Any, decoding: Decoding, words: Words | None = None
) -> Context:
    """Return the context of a decoding; policies that count words need `words`."""
    control = control_of(decoding, model.config.monotonic, words)
    return Context(model=model, variables=variables, control=control, decoding=decoding.fixed())


def control_of(decoding: Decoding, monotonic: Monotonic, words: Words | None = None) -> Control:
    """Return the arrays; policies that count words need `words`."""
    k = sum(monotonic.wait_k) // 2 if decoding.k is None else decoding.k
    policy = decoding.policy
    if policy is not None and "words" in policy.needs and words is None:
        raise PolicyError(f"{policy.name} counts words: give words=Words.of(source, target) too")
    numbers = {} if policy is None else policy.numbers()
    dtypes = {n: jnp.int32 if isinstance(v, int) else jnp.float32 for n, v in numbers.items()}
    return Control(
        selection=Selection(
            energy=jnp.float32(math.log(decoding.threshold / (1 - decoding.threshold))),
            k=jnp.int32(k),
            everything=policy is not None,
            weights=policy is not None and "attention" in policy.needs,
        ),
        numbers={name: jnp.asarray(value, dtypes[name]) for name, value in numbers.items()},
        words=words,
    )


@flax.struct.dataclass
class Known:
    """The source as far as it is known, projected for every layer."""

    memory: Memory  # layers first
    progress: SourceProgress
    samples: Array | None = None  # int32 [B]: of speech
    units: Array | None = None  # int32 [B]: words of the source, if these are counted

    @property
    def batch(self) -> int:
        return self.progress.lengths.shape[0]

    @property
    def size(self) -> int:
        """Return the most states that a source can have."""
        return self.memory.value.shape[2]


@flax.struct.dataclass
class Prefix:
    """Targets whose keys and values are in `past`, and the last token, which is not yet there."""

    past: Past  # [layers, B, N, H, d]
    pointer: Array  # int32 [layers, B, H]: the first decision not yet rejected
    position: Array  # int32 [B]: tokens written
    token: Array  # int32 [B]: the last of them, or begin-of-sentence
    recent: Array  # int32 [B, R]: the last of them, for the guard against repetition
    finished: Array  # bool [B]: nothing more will be written
    words: WordCount | None = None  # of them, if the policy counts words

    @property
    def room(self) -> int:
        """Return the most tokens that can be written."""
        return self.past.key.shape[2]


def init_prefix(model: JointModel, batch: int, room: int, decoding: Decoding) -> Prefix:
    """Return a prefix without tokens, with room for so many."""
    past = init_past(model.config, batch, room)
    layers, _, _, count, _ = past.key.shape
    window = decoding.repetition.window if decoding.repetition else 0
    counts = decoding.policy is not None and "words" in decoding.policy.needs
    return Prefix(
        past=past,
        pointer=jnp.zeros((layers, batch, count), jnp.int32),
        position=jnp.zeros(batch, jnp.int32),
        token=jnp.full(batch, BOS, jnp.int32),
        recent=_no_tokens(batch, window),
        finished=jnp.zeros(batch, bool),
        words=WordCount.begin((batch,)) if counts else None,
    )


def attempt(context: Context, prefix: Prefix, known: Known) -> Attempt:
    """Return what would be written next; T = 1."""
    state = LayerState(past=prefix.past, memory=known.memory, pointer=prefix.pointer)
    given = (prefix.token[:, None], prefix.position, state, known.progress)
    return context.apply(*given, context.control.selection, method="attempt")


def commit(prefix: Prefix, tried: Attempt, token: Array, write: Array, attempted: Array) -> Prefix:
    """Return the prefix with `token` [B] where `write` [B]; where `attempted`, pointers alone move.

    A layer's query depends on where the heads of the layers below attend. So what a layer rejected
    stays rejected only if all heads below had found their place: if one of them still waits, it
    will attend to more, and the layers above will judge anew.
    """
    rows, size = jnp.arange(len(token)), prefix.room
    place = jnp.where(write, prefix.position, size)  # beyond the array, where nothing is written

    def put(past: Array, new: Array) -> Array:
        return past.at[:, rows, place].set(new[:, :, 0], mode="drop")

    waits = tried.layers.look.waits[..., 0].any(-1)  # [layers, B]
    settled_below = jnp.cumsum(waits, 0) - waits == 0
    moves = write | (attempted & settled_below)
    recent = jnp.concatenate([prefix.recent, token[:, None]], 1)[:, 1:]
    return replace(
        prefix,
        past=jax.tree.map(put, prefix.past, tried.layers.added),
        pointer=jnp.where(moves[..., None], tried.layers.look.pointer[..., 0], prefix.pointer),
        position=prefix.position + write,
        token=jnp.where(write, token, prefix.token),
        recent=jnp.where(write[:, None], recent, prefix.recent),
    )


def replay(context: Context, prefix: Prefix, tokens: Array, known: Known) -> Prefix:
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


def _replay(context: Context, prefix: Prefix, tokens: Array, known: Known) -> Prefix:
    """Replay tokens [B, n], which are all that were written."""
    before = jnp.pad(tokens[:, :-1], [(0, 0), (1, 0)], constant_values=BOS)
    nothing = jax.tree.map(lambda a: a[:, :, :0], prefix.past)
    start = LayerState(past=nothing, memory=known.memory, pointer=jnp.zeros_like(prefix.pointer))
    selection = replace(context.control.selection, weights=False)  # none is needed
    given = (before, jnp.zeros_like(prefix.position), start, known.progress, selection)
    passed: Attempt = context.apply(*given, method="attempt")
    last = jnp.maximum(prefix.position - 1, 0)[None, :, None, None]
    pointer = jnp.take_along_axis(passed.layers.look.pointer, last, 3)[..., 0]

    def put(past: Array, new: Array) -> Array:
        return past.at[:, :, : tokens.shape[1]].set(new)

    return replace(
        prefix,
        past=jax.tree.map(put, prefix.past, passed.layers.added),
        pointer=jnp.where((prefix.position > 0)[:, None], pointer, 0),
    )


def take_prefixes(prefix: Prefix, rows: Array) -> Prefix:
    """Return the prefixes of these rows [J]."""
    layers_first = {"past": prefix.past, "pointer": prefix.pointer}
    others: Any = replace(prefix, past=None, pointer=None)  # pyright: ignore[reportArgumentType]
    taken = jax.tree.map(lambda a: a[rows], others)
    return replace(taken, **jax.tree.map(lambda a: a[:, rows], layers_first))


def recent_of(tokens: Array, count: Array, window: int) -> Array:
    """Return int32 [B, window]: the last of the first `count` [B] of tokens [B, N]."""
    place = count[:, None] - window + jnp.arange(window)
    found = jnp.take_along_axis(tokens, jnp.maximum(place, 0), 1)
    return jnp.where(place >= 0, found, _no_tokens(len(tokens), window))


def _no_tokens(batch: int, window: int) -> Array:
    """Return ids unlike every token and each other, so that nothing seems to repeat."""
    return jnp.broadcast_to(PAD - 1 - jnp.arange(window, dtype=jnp.int32), (batch, window))


def encode_speech(
    context: Context,
    features: Array,
    frames: Array,
    ended: Array,
    labels: Array | None = None,
    samples: Array | None = None,
) -> Known:
    """Return what is known after the first `frames` [B] of the features [B, F, D].

    Where `ended` [B], that is all of the source. `samples` [B] are noted. `units` are the words in
    the output of the CTC head, if the policy or else the model counts these.
    """

    def encode(model: JointModel) -> tuple[Encoded, Decisions]:
        encoded = model.encode_speech(features, frames, train=False)
        encoded = _count_source_words(context, _complete(model, encoded, frames, ended))
        return encoded, model.speech_decisions(encoded, labels, ended=ended)

    encoded, decisions = context.apply(method=encode)
    units = None if encoded.words is None else encoded.words[:, -1]
    known = known_of(context, encoded, decisions, ended)
    return replace(known, samples=samples, units=units)


def encode_text(context: Context, tokens: Array, lengths: Array, ended: Array) -> Known:
    """Return what is known after the first `lengths` [B] of the tokens [B, L]."""

    def encode(model: JointModel) -> tuple[Encoded, Decisions]:
        encoded = model.encode_text(tokens, lengths, train=False)
        return encoded, model.text_decisions(encoded)

    encoded, decisions = context.apply(method=encode)
    return known_of(context, encoded, decisions, ended)


def known_of(context: Context, encoded: Encoded, decisions: Decisions, ended: Array) -> Known:
    """Return the states as the decoder attends to them."""
    memory = context.apply(encoded.states, decisions.keys, method="remember")
    return Known(memory=memory, progress=progress_of(decisions, encoded.lengths, ended))


def _complete(model: JointModel, encoded: Encoded, frames: Array, ended: Array) -> Encoded:
    """Drop the states of a streaming encoder that still wait for what follows them."""
    speech = model.config.speech
    if speech is None or not speech.is_incremental:
        return encoded
    arrived = states_after(speech, frames)
    complete = chunking_of(speech).complete(arrived) * speech.chunk
    lengths = jnp.where(ended, encoded.lengths, complete)
    return replace(encoded, states=zero_padding(encoded.states, lengths), lengths=lengths)


def _count_source_words(context: Context, encoded: Encoded) -> Encoded:
    """Count the words of the CTC head, if anything needs them."""
    policy, words = context.decoding.policy, context.control.words
    by_policy = policy is not None and "units" in policy.needs
    by_model = words is not None and context.model.config.predecision.kind == "ctc_words"
    if not (by_policy or by_model):
        return encoded
    assert words is not None and encoded.ctc is not None
    trailing = policy.trailing if by_policy and isinstance(policy, WaitK) else "count"
    counted = ctc_word_counts(encoded.ctc, encoded.lengths, words.source, trailing=trailing)
    return replace(encoded, words=counted)


@flax.struct.dataclass
class Source:
    """A growing source, and the states whose decision waits for those to come."""

    known: Known
    window: Buffer


def init_source(context: Context, batch: int, states: int) -> Source:
    """Return a source without states, with room for so many."""
    c, step = context.model.config, _step(context.model)
    points, zero = -(-states // step), jnp.zeros(batch, jnp.int32)
    shapes = (
        jax.ShapeDtypeStruct((batch, size, c.width.model), c.width.dtype)
        for size in (states, points)
    )
    memory = jax.eval_shape(lambda *given: context.apply(*given, method="remember"), *shapes)
    learned = c.predecision.kind == "learnable"
    progress = SourceProgress(
        lengths=zero,
        ends=jnp.zeros((batch, points), jnp.int32),
        count=zero,
        ended=jnp.zeros(batch, bool),
        exists=jnp.zeros((batch, points), bool) if learned else None,
    )
    memory = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), memory)
    window = init_buffer(batch, step - 1, c.width.model, c.width.dtype)
    return Source(known=Known(memory=memory, progress=progress), window=window)


def append(context: Context, source: Source, states: Array, length: Array, ended: Array) -> Source:
    """Return the source with the first `length` [B] of more states [B, S, D].

    Where `ended` [B], no more follow. A source that has no more room has ended too.
    """
    progress, step = source.known.progress, _step(context.model)
    length = jnp.minimum(length, source.known.size - progress.lengths)
    total = progress.lengths + length
    ended = progress.ended | ended | (total == source.known.size)
    joined = extend(source.window, states, length)
    encoded = Encoded(states=joined.vectors, lengths=joined.count)
    decisions: Decisions = context.apply(encoded, method="speech_decisions")
    new = progress_of(decisions, joined.count, ended)
    used = jnp.minimum(new.count * step, joined.count)
    memory = context.apply(states, decisions.keys, method="remember")
    first = (progress.lengths - source.window.count)[:, None]
    old = source.known.memory
    at_states, at_points = (progress.lengths, length), (progress.count, new.count)
    known = Known(
        memory=Memory(
            value=_put(old.value, memory.value, *at_states),
            key=_put(old.key, memory.key, *at_states),
            decide=_put(old.decide, memory.decide, *at_points),
        ),
        progress=SourceProgress(
            lengths=total,
            ends=_put(progress.ends, new.ends + first, *at_points, axis=0),
            count=progress.count + new.count,
            ended=ended,
            exists=_put(progress.exists, new.exists, *at_points, axis=0),
        ),
    )
    return Source(known=known, window=drop(joined, used, step - 1))


def _step(model: JointModel) -> int:
    """Return the states to a decision."""
    chosen = model.config.predecision
    if chosen.kind in ("words", "phonemes"):
        raise ValueError(
            f"the model decides at {chosen.kind}, whose labels no stream carries; "
            "see simuljax.decode.simulate"
        )
    return chosen.step if chosen.kind == "fixed" else 1


def _put(room: Any, new: Any, start: Array, length: Array, axis: int = 1) -> Any:
    """Put the first `length` [B] of new [.., B, S, ..] at `start` [B]; the batch is at `axis`."""
    if room is None:
        return None
    count, size = new.shape[axis + 1], room.shape[axis + 1]
    place = jnp.where(real(length, count), start[:, None] + jnp.arange(count), size)
    rows = jnp.arange(len(start))[:, None]
    return room.at[(slice(None),) * axis + (rows, place)].set(new, mode="drop")
