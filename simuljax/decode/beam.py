"""Beam search: several hypotheses of a whole source at once, each with its own pointers.

Every live hypothesis is continued with every token. Of all continuations of a source, by the sum of
log-probabilities,

    the best K that do not end a sentence live on, and
    those among the best K that do have ended; the best K of them by score are kept:

    score(y) = log p(y | x) / |y| ** length_penalty,  |y| counting end-of-sentence

With equal sums, the continuation of the better hypothesis comes first, then the better token, then
the one with the lower id: so a beam of 1 is greedy decoding, token for token. What is at the limit
of length and has not ended comes after all that have, and is not ended by force.

A head stands where the tokens of its own hypothesis have led it. That is a part of `Prefix`, and
goes with the hypothesis as its keys and values do.

Translate whole sources: greedily, or with the best of a beam.

Where words are committed while the source is live there is no beam, since none can be taken back.
"""

import dataclasses
import functools
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from simuljax.config.decoding import Beam, Decoding
from simuljax.decode.greedy import Written, greedy_search, limit_of, nothing_written, repeated
from simuljax.decode.state import (
    Context,
    Control,
    Known,
    Prefix,
    attempt,
    commit,
    control_of,
    counting_of,
    encode_speech,
    encode_text,
    init_prefix,
    known_of,
    take_rows,
)
from simuljax.models.joint import Attempt, Encoded, JointModel
from simuljax.nn.monotonic import Decisions
from simuljax.text import EOS, Words


@flax.struct.dataclass
class BeamHypotheses:
    """K hypotheses of each source, the best first; 0 beyond the lengths, which count the end."""

    tokens: jax.Array  # int32 [B, K, N]
    lengths: jax.Array  # int32 [B, K]; without end-of-sentence where the limit came first
    delays: jax.Array  # int32 [B, K, N]: encoder states that the furthest head attends to
    log_prob: jax.Array  # float32 [B, K]; -inf where there is no such hypothesis
    score: jax.Array  # float32 [B, K]: the same, with regard to the length

    @property
    def last(self) -> jax.Array:
        """Return int32 [B, K]: the last tokens."""
        place = jnp.maximum(self.lengths - 1, 0)
        return jnp.take_along_axis(self.tokens, place[..., None], 2)[..., 0]

    def take(self, places: jax.Array) -> "BeamHypotheses":
        """Return the hypotheses at these places [B, J]."""

        def pick(a: jax.Array) -> jax.Array:
            return jnp.take_along_axis(a, places.reshape(places.shape + (1,) * (a.ndim - 2)), 1)

        return jax.tree.map(pick, self)

    def first(self, count: int) -> "BeamHypotheses":
        """Return the first so many."""
        return jax.tree.map(lambda a: a[:, :count], self)

    def best(self, count: int) -> "BeamHypotheses":
        """Return so many by score, the best first; equal ones stay in order."""
        return self.take(jax.lax.top_k(self.score, count)[1])

    def only(self, there: jax.Array) -> "BeamHypotheses":
        """Return the hypotheses as if there were no others than these [B, K]."""
        log_prob, score = (jnp.where(there, a, -jnp.inf) for a in (self.log_prob, self.score))
        return dataclasses.replace(self, log_prob=log_prob, score=score)

    def join(self, other: "BeamHypotheses") -> "BeamHypotheses":
        """Return these, and then the others, of the same sources."""
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), self, other)

    def unless(self, rows: jax.Array, other: "BeamHypotheses") -> "BeamHypotheses":
        """Return these, but the others of some sources [B]."""

        def choose(a: jax.Array, b: jax.Array) -> jax.Array:
            return jnp.where(rows.reshape(rows.shape + (1,) * (a.ndim - 1)), b, a)

        return jax.tree.map(choose, self, other)


def length_weights(beam: Beam, longest: int) -> jax.Array:
    """Return float32 [longest + 1]: the divisor of the log-probability of so many tokens."""
    lengths = np.maximum(np.arange(longest + 1), 1).astype(np.float64)
    return jnp.asarray(lengths**beam.length_penalty, jnp.float32)


def no_hypotheses(batch: int, size: int, room: int) -> BeamHypotheses:
    """Return no hypotheses, with room for so many tokens."""
    tokens = jnp.zeros((batch, size, room), jnp.int32)
    never = jnp.full((batch, size), -jnp.inf)
    return BeamHypotheses(
        tokens=tokens, lengths=tokens[..., 0], delays=tokens, log_prob=never, score=never
    )


@flax.struct.dataclass
class _Turn:
    prefix: Prefix  # of the live hypotheses, in B * K rows
    live: BeamHypotheses  # all of one length
    ended: BeamHypotheses
    over: jax.Array  # bool [B]: nothing changes any more


def beam_search(
    context: Context, known: Known, beam: Beam, start: tuple[Prefix, Written] | None = None
) -> BeamHypotheses:
    """Return the best hypotheses of sources that have ended.

    With `start`, those that begin with what has been written, which has no influence on scores but
    by its length; a prefix that is finished stays as it is.
    """
    decoding = context.decoding
    room = decoding.limit.of(known.size) if start is None else start[0].room
    limit, weights, size = (
        limit_of(known.progress, room, decoding),
        length_weights(beam, room),
        beam.size,
    )
    sources = _repeat(known, size)

    def turn(state: _Turn) -> _Turn:
        tried = attempt(context, state.prefix, sources)
        further, parent = _continue(state, tried, weights, decoding)
        ends = further.last == EOS
        lives = jnp.argsort(ends, stable=True)[:, :size]
        live = further.take(lives).unless(state.over, state.live)
        new = further.only(ends & ~state.over[:, None]).first(size)
        ended = state.ended.join(new).best(size)
        over = state.over | _is_over(live, ended, limit, weights, beam)
        prefix = _follow(state.prefix, tried, jnp.take_along_axis(parent, lives, 1), live)
        return _Turn(prefix=prefix, live=live, ended=ended, over=over)

    first = _begin(context, known.batch, room, beam, limit, start)
    last = jax.lax.while_loop(lambda state: ~state.over.all(), turn, first)
    return _in_order(last, weights)


def _begin(
    context: Context,
    batch: int,
    room: int,
    beam: Beam,
    limit: jax.Array,
    start: tuple[Prefix, Written] | None,
) -> _Turn:
    """Begin with one hypothesis of each source: nothing, or what has been written."""
    nothing = no_hypotheses(batch, beam.size, room)
    live = dataclasses.replace(nothing, log_prob=nothing.log_prob.at[:, 0].set(0))
    if start is None:
        prefix = init_prefix(context.model, batch * beam.size, room, context.decoding)
        return _Turn(prefix=prefix, live=live, ended=nothing, over=limit == 0)
    prefix, written = start
    given = (written.tokens, written.count, written.reach)
    tokens, lengths, delays = (jnp.repeat(a[:, None], beam.size, 1) for a in given)
    return _Turn(
        prefix=take_rows(prefix, jnp.repeat(jnp.arange(batch), beam.size)),
        live=dataclasses.replace(live, tokens=tokens, lengths=lengths, delays=delays),
        ended=nothing,
        over=prefix.finished | (written.count >= limit),
    )


def _repeat(known: Known, size: int) -> Known:
    """Repeat every source K times, once for each of its hypotheses."""
    return Known(
        memory=jax.tree.map(lambda a: jnp.repeat(a, size, 1), known.memory),
        progress=jax.tree.map(lambda a: jnp.repeat(a, size, 0), known.progress),
    )


def _continue(
    state: _Turn, tried: Attempt, weights: jax.Array, decoding: Decoding
) -> tuple[BeamHypotheses, jax.Array]:
    """Return the best 2 K continuations, the best first, and int32 [B, 2 K]: their parents.

    At most K of them end a sentence, so K that do not are among them.
    """
    live, (batch, size) = state.live, state.live.log_prob.shape
    tokens, log_p = _likeliest(tried.logits[:, 0], state.prefix, 2 * size, decoding)
    total = (live.log_prob.reshape(-1, 1) + log_p).reshape(batch, -1)
    log_prob, place = jax.lax.top_k(total, 2 * size)
    parent = place // tokens.shape[1]
    token = jnp.take_along_axis(tokens.reshape(batch, -1), place, 1)
    reach = (tried.layers.look.reach[..., 0].max((0, 2)) + 1).reshape(batch, size)
    before = live.take(parent)
    at = jnp.arange(before.tokens.shape[2]) == before.lengths[..., None]
    delay = jnp.take_along_axis(reach, parent, 1)
    further = BeamHypotheses(
        tokens=jnp.where(at, token[..., None], before.tokens),
        lengths=before.lengths + 1,
        delays=jnp.where(at, delay[..., None], before.delays),
        log_prob=log_prob,
        score=log_prob / weights[before.lengths + 1],
    )
    return further, parent


def _likeliest(
    logits: jax.Array, prefix: Prefix, count: int, decoding: Decoding
) -> tuple[jax.Array, jax.Array]:
    """Return the best tokens that may follow each row, the best first, and their log-probabilities.

    They are ordered by logits, whose order is exact: sums of log-probabilities may round to ties.
    """
    allowed, vocabulary = logits, logits.shape[-1]
    if decoding.repetition is not None:
        again = repeated(prefix.recent, vocabulary, decoding.repetition)
        allowed = jnp.where(again & (jnp.arange(vocabulary) != EOS), -jnp.inf, logits)
    best, tokens = jax.lax.top_k(allowed, min(count, vocabulary))
    log_p = jax.nn.log_softmax(logits.astype(jnp.float32))
    log_p = jnp.take_along_axis(log_p, tokens, 1)
    return tokens, jnp.where(best > -jnp.inf, log_p, -jnp.inf)


def _is_over(
    live: BeamHypotheses, ended: BeamHypotheses, limit: jax.Array, weights: jax.Array, beam: Beam
) -> jax.Array:
    """Return bool [B]: the search is over (see `Beam`), also without a live hypothesis."""
    last = ended.score[:, -1]
    over = live.log_prob[:, 0] / weights[limit] <= last
    if beam.until == "full":
        over |= last > -jnp.inf
    return over | (live.lengths[:, 0] >= limit)


def _follow(prefix: Prefix, tried: Attempt, parent: jax.Array, live: BeamHypotheses) -> Prefix:
    """Return the prefix of every live hypothesis, from that of its parent [B, K]."""
    batch, size = parent.shape
    rows = (jnp.arange(batch)[:, None] * size + parent).reshape(-1)
    layers = jax.tree.map(lambda a: a[:, rows], tried.layers)
    everywhere = jnp.ones(rows.shape, bool)
    tried = dataclasses.replace(tried, layers=layers)
    return commit(take_rows(prefix, rows), tried, live.last.reshape(-1), everywhere, everywhere)


def _in_order(last: _Turn, weights: jax.Array) -> BeamHypotheses:
    """Return ended hypotheses, then those at the limit; zeros where there is none."""
    live = dataclasses.replace(last.live, score=last.live.log_prob / weights[last.live.lengths])
    both = last.ended.join(live)
    order = jnp.argsort(both.log_prob == -jnp.inf, stable=True)
    found = both.take(order).first(live.log_prob.shape[1])
    there = found.log_prob > -jnp.inf
    return dataclasses.replace(
        found,
        tokens=found.tokens * there[..., None],
        lengths=found.lengths * there,
        delays=found.delays * there[..., None],
    )


@flax.struct.dataclass
class Translation:
    """Tokens and their delays; 0 beyond the lengths, which count end-of-sentence."""

    tokens: jax.Array  # int32 [B, N]
    lengths: jax.Array  # int32 [B]; without end-of-sentence where the limit came first
    delays: jax.Array  # int32 [B, N]: encoder states that the furthest head attends to


def translate_speech(
    model: JointModel,
    variables: Any,
    features: ArrayLike,
    frames: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    decoding: Decoding | None = None,
    beam: Beam | None = None,
    words: Words | None = None,
) -> Translation:
    """Return the best tokens for normalised features [B, F, D] of `frames` [B] real frames.

    `variables` are those of `model.apply`: {"params": ...} and BatchNorm's statistics, if any.
    `labels` [B, F] serve models that decide at words or phonemes, `words` those that hear words by
    themselves. Without a beam: greedily.
    """
    decoding = _unhurried(decoding)
    control = control_of(decoding, model.config.monotonic, words)
    given = (variables, features, jnp.asarray(frames), labels, control)
    return _speech(model, decoding.fixed(), beam, *given)


def translate_text(
    model: JointModel,
    variables: Any,
    tokens: ArrayLike,
    lengths: ArrayLike,
    *,
    decoding: Decoding | None = None,
    beam: Beam | None = None,
) -> Translation:
    """Return the best tokens for transcripts [B, L], end-of-sentence included."""
    decoding = _unhurried(decoding)
    control = control_of(decoding, model.config.monotonic)
    given = (variables, tokens, jnp.asarray(lengths), control)
    return _text(model, decoding.fixed(), beam, *given)


def translate_states(
    model: JointModel,
    variables: Any,
    encoded: Encoded,
    decisions: Decisions,
    *,
    decoding: Decoding | None = None,
    beam: Beam | None = None,
) -> Translation:
    """Return the best tokens for encoder states."""
    decoding = _unhurried(decoding)
    control = control_of(decoding, model.config.monotonic)
    return _states(model, decoding.fixed(), beam, variables, encoded, decisions, control)


def _unhurried(decoding: Decoding | None) -> Decoding:
    """Drop the policy: the whole source is there."""
    return dataclasses.replace(decoding, policy=None) if decoding else Decoding()


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _speech(model, decoding, beam, variables, features, frames, labels, control) -> Translation:
    given = (features, frames, jnp.ones(frames.shape, bool), labels)
    counting = counting_of(model.config, decoding, control)
    known = encode_speech(model, variables, *given, counting=counting)
    return _write(model, decoding, beam, variables, known, control)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _text(model, decoding, beam, variables, tokens, lengths, control) -> Translation:
    known = encode_text(model, variables, tokens, lengths, jnp.ones(lengths.shape, bool))
    return _write(model, decoding, beam, variables, known, control)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _states(model, decoding, beam, variables, encoded, decisions, control) -> Translation:
    known = known_of(model, variables, encoded, decisions, jnp.ones(encoded.lengths.shape, bool))
    return _write(model, decoding, beam, variables, known, control)


def _write(model, decoding, beam, variables, known: Known, control: Control) -> Translation:
    context = Context(model=model, variables=variables, control=control, decoding=decoding)
    if beam is not None:
        found = beam_search(context, known, beam)
        tokens, lengths, delays = found.tokens, found.lengths, found.delays
        return Translation(tokens=tokens[:, 0], lengths=lengths[:, 0], delays=delays[:, 0])
    batch, room = known.batch, decoding.limit.of(known.size)
    prefix = init_prefix(model, batch, room, decoding)
    given = (prefix, nothing_written(batch, room), known)
    _, written = greedy_search(context, *given, delay=known.progress.lengths)
    return Translation(tokens=written.tokens, lengths=written.count, delays=written.reach)
