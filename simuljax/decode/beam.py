"""Translate whole sources: greedily, or with the best of a beam.

Every live hypothesis is continued with every token. Of all continuations of a source, by the sum of
log-probabilities,

    the best K that do not end a sentence live on, and
    those among the best K that do have ended; the best K of them by score are kept:

    score(y) = log p(y | x) / |y| ** length_penalty,  |y| counting end-of-sentence

With equal sums, the continuation of the better hypothesis comes first, then the better token, then
the one with the lower id: so a beam of 1 is greedy decoding, token for token. What is at the limit
of length and has not ended comes after all that have, and is not ended by force. The pointers of
heads are a part of `Prefix`, and go with the hypothesis as its keys and values do.

Where words are committed while the source is live there is no beam, since none can be taken back.
"""

import functools
from dataclasses import replace
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from simuljax.config.decoding import Beam, Decoding
from simuljax.decode.greedy import Written, greedy_search, limit_of, nothing_written, repeated
from simuljax.decode.state import (
    Context,
    Known,
    Prefix,
    attempt,
    commit,
    context_of,
    encode_speech,
    encode_text,
    init_prefix,
    take_prefixes,
)
from simuljax.models.joint import Attempt, JointModel
from simuljax.nn.beam import BeamHypotheses, empty_beam, going_on, propose
from simuljax.text import EOS, Words


@flax.struct.dataclass
class _Turn:
    prefix: Prefix  # of the live hypotheses, in B * K rows
    live: BeamHypotheses  # all of one length; notes are states that the furthest head attends to
    ended: BeamHypotheses
    over: Array  # bool [B]: nothing changes any more


def beam_search(
    context: Context, known: Known, beam: Beam, start: tuple[Prefix, Written] | None = None
) -> BeamHypotheses:
    """Return the best hypotheses of sources that have ended; zeros where there is none.

    With `start`, those that begin with what has been written, which has no influence on scores but
    by its length; a prefix that is finished stays as it is.
    """
    size, decoding = beam.size, context.decoding
    room = decoding.limit.of(known.size) if start is None else start[0].room
    limit = limit_of(known.progress, room, decoding)
    lengths = np.maximum(np.arange(room + 1), 1).astype(np.float64)
    divisors = jnp.asarray(lengths**beam.length_penalty, jnp.float32)
    sources = Known(  # every source K times, once for each of its hypotheses
        memory=jax.tree.map(lambda a: jnp.repeat(a, size, 1), known.memory),
        progress=jax.tree.map(lambda a: jnp.repeat(a, size, 0), known.progress),
    )

    def turn(state: _Turn) -> _Turn:
        tried = attempt(context, state.prefix, sources)
        further, parent = _continue(state, tried, decoding)
        ends = further.last == EOS
        lives = going_on(ends, size)
        live = jax.tree.map(
            lambda old, new: jnp.where(_as_axis(state.over, new.ndim), old, new),
            state.live,
            further.take(lives),
        )
        ended = state.ended.join(further.only(ends & ~state.over[:, None]).first(size))
        ended = ended.take(jax.lax.top_k(ended.log_prob / divisors[ended.lengths], size)[1])
        over = state.over | _is_over(live, ended, limit)
        prefix = _follow(state.prefix, tried, jnp.take_along_axis(parent, lives, 1), live)
        return _Turn(prefix=prefix, live=live, ended=ended, over=over)

    first = _begin(context, known.batch, room, size, limit, start)
    last = jax.lax.while_loop(lambda state: ~state.over.all(), turn, first)
    found = last.ended.join(last.live).existing(size)
    exists = found.log_prob > -jnp.inf
    return replace(
        found,
        tokens=found.tokens * exists[..., None],
        lengths=found.lengths * exists,
        notes=found.notes * exists[..., None],
    )


def _as_axis(rows: Array, axes: int) -> Array:
    return rows.reshape(-1, *[1] * (axes - 1))


def _begin(
    context: Context,
    batch: int,
    room: int,
    size: int,
    limit: Array,
    start: tuple[Prefix, Written] | None,
) -> _Turn:
    """Begin with one hypothesis of each source: nothing, or what has been written."""
    zeros = jnp.zeros((batch, size, room), jnp.int32)
    live = empty_beam(zeros, zeros)
    ended = live.only(jnp.zeros((batch, size), bool))
    if start is None:
        prefix = init_prefix(context.model, batch * size, room, context.decoding)
        return _Turn(prefix=prefix, live=live, ended=ended, over=limit == 0)
    prefix, written = start
    given = (written.tokens, written.count, written.reach)
    tokens, lengths, notes = (jnp.repeat(a[:, None], size, 1) for a in given)
    return _Turn(
        prefix=take_prefixes(prefix, jnp.repeat(jnp.arange(batch), size)),
        live=replace(live, tokens=tokens, lengths=lengths, notes=notes),
        ended=ended,
        over=prefix.finished | (written.count >= limit),
    )


def _continue(state: _Turn, tried: Attempt, decoding: Decoding) -> tuple[BeamHypotheses, Array]:
    """Return the best 2 K continuations, the best first, and int32 [B, 2 K]: their parents.

    At most K of them end a sentence, so K that do not are among them.
    """
    live, (batch, size) = state.live, state.live.log_prob.shape
    best = _likeliest(tried.logits[:, 0], state.prefix, 2 * size, decoding)
    log_prob, token, _, parent = propose(live.log_prob, *best)
    reach = (tried.layers.look.reach[..., 0].max((0, 2)) + 1).reshape(batch, size)
    return live.extended(parent, token, jnp.take_along_axis(reach, parent, 1), log_prob), parent


def _likeliest(
    logits: Array, prefix: Prefix, count: int, decoding: Decoding
) -> tuple[Array, Array]:
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


def _is_over(live: BeamHypotheses, ended: BeamHypotheses, limit: Array) -> Array:
    """Return bool [B]: K have ended, none lives, or the limit of length is reached."""
    full = ended.log_prob[:, -1] > -jnp.inf
    return full | (live.log_prob[:, 0] == -jnp.inf) | (live.lengths[:, 0] >= limit)


def _follow(prefix: Prefix, tried: Attempt, parent: Array, live: BeamHypotheses) -> Prefix:
    """Return the prefix of every live hypothesis, from that of its parent [B, K]."""
    batch, size = parent.shape
    rows = (jnp.arange(batch)[:, None] * size + parent).reshape(-1)
    tried = replace(tried, layers=jax.tree.map(lambda a: a[:, rows], tried.layers))
    everywhere = jnp.ones(rows.shape, bool)
    return commit(take_prefixes(prefix, rows), tried, live.last.reshape(-1), everywhere, everywhere)


@flax.struct.dataclass
class Translation:
    """Tokens and their delays; 0 beyond the lengths, which count end-of-sentence."""

    tokens: Array  # int32 [B, N]
    lengths: Array  # int32 [B]; without end-of-sentence where the limit came first
    delays: Array  # int32 [B, N]: encoder states that the furthest head attends to


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
    `labels` [B, F] serve models that decide at words or phonemes, `words` those that count words by
    their CTC head. Without a beam: greedily.
    """
    context = context_of(model, variables, replace(decoding or Decoding(), policy=None), words)
    return _speech(context, beam, features, jnp.asarray(frames), labels)


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
    context = context_of(model, variables, replace(decoding or Decoding(), policy=None))
    return _text(context, beam, tokens, jnp.asarray(lengths))


@functools.partial(jax.jit, static_argnums=1)
def _speech(context: Context, beam: Beam | None, features, frames, labels) -> Translation:
    known = encode_speech(context, features, frames, jnp.ones(frames.shape, bool), labels)
    return write_whole(context, beam, known)


@functools.partial(jax.jit, static_argnums=1)
def _text(context: Context, beam: Beam | None, tokens, lengths) -> Translation:
    known = encode_text(context, tokens, lengths, jnp.ones(lengths.shape, bool))
    return write_whole(context, beam, known)


def write_whole(context: Context, beam: Beam | None, known: Known) -> Translation:
    """Return the best tokens for sources that have ended."""
    if beam is not None:
        found = jax.tree.map(lambda a: a[:, 0], beam_search(context, known, beam))
        return Translation(tokens=found.tokens, lengths=found.lengths, delays=found.notes)
    batch, room = known.batch, context.decoding.limit.of(known.size)
    prefix = init_prefix(context.model, batch, room, context.decoding)
    given = (prefix, nothing_written(batch, room), known)
    _, written = greedy_search(context, *given, delay=known.progress.lengths)
    return Translation(tokens=written.tokens, lengths=written.count, delays=written.reach)
