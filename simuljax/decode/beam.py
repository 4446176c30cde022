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
from simuljax.decode.context import Context, Known, context_of, encode_speech, encode_text
from simuljax.decode.greedy import (
    Prefix,
    Written,
    attempt,
    commit,
    greedy_search,
    init_prefix,
    limit_of,
    nothing_written,
    repeated,
    take_prefixes,
)
from simuljax.models.decoders import Attempt
from simuljax.models.joint import JointModel
from simuljax.nn.beam import BeamHypotheses, empty_beam, going_on, propose
from simuljax.nn.layers import real
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
    prefix, written = start or _no_targets(context, known)
    limit = limit_of(known.progress, prefix.room, decoding)
    lengths = np.maximum(np.arange(prefix.room + 1), 1).astype(np.float64)
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
            lambda old, new: jnp.where(state.over.reshape(-1, *[1] * (new.ndim - 1)), old, new),
            state.live,
            further.take(lives),
        )
        ended = state.ended.join(further.only(ends & ~state.over[:, None]).first(size))
        ended = ended.take(jax.lax.top_k(ended.log_prob / divisors[ended.lengths], size)[1])
        over = state.over | _is_over(live, ended, limit)
        prefix = _follow(state.prefix, tried, jnp.take_along_axis(parent, lives, 1), live)
        return _Turn(prefix=prefix, live=live, ended=ended, over=over)

    given = (written.tokens, written.reach, written.lengths)
    tokens, notes, begun = (jnp.repeat(a[:, None], size, 1) for a in given)
    live = replace(empty_beam(tokens, notes), lengths=begun)
    first = _Turn(
        prefix=take_prefixes(prefix, jnp.repeat(jnp.arange(known.batch), size)),
        live=live,
        ended=live.only(jnp.zeros((known.batch, size), bool)),
        over=prefix.finished | (written.lengths >= limit),
    )
    last = jax.lax.while_loop(lambda state: ~state.over.all(), turn, first)
    found = last.ended.join(last.live).existing(size)
    exists = found.log_prob > -jnp.inf
    return replace(
        found,
        tokens=found.tokens * exists[..., None],
        lengths=found.lengths * exists,
        notes=found.notes * exists[..., None],
    )


def _no_targets(context: Context, known: Known) -> tuple[Prefix, Written]:
    """Return targets of which nothing is written, with room for as many as a source allows."""
    batch, room = known.batch, context.decoding.limit.of(known.size)
    return init_prefix(context.model, batch, room, context.decoding), nothing_written(batch, room)


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
) -> Written:
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
) -> Written:
    """Return the best tokens for transcripts [B, L], end-of-sentence included."""
    context = context_of(model, variables, replace(decoding or Decoding(), policy=None))
    return _text(context, beam, tokens, jnp.asarray(lengths))


@functools.partial(jax.jit, static_argnums=1)
def _speech(context: Context, beam: Beam | None, features, frames, labels) -> Written:
    known = encode_speech(context, features, frames, jnp.ones(frames.shape, bool), labels)
    return write_whole(context, beam, known)[1]


@functools.partial(jax.jit, static_argnums=1)
def _text(context: Context, beam: Beam | None, tokens, lengths) -> Written:
    known = encode_text(context, tokens, lengths, jnp.ones(lengths.shape, bool))
    return write_whole(context, beam, known)[1]


def write_whole(
    context: Context,
    beam: Beam | None,
    known: Known,
    start: tuple[Prefix, Written] | None = None,
    delay: Array | None = None,
) -> tuple[Prefix, Written]:
    """Write sources that have ended, from the start on: greedily, or with the best of a beam."""
    prefix, written = start or _no_targets(context, known)
    delay = known.progress.lengths if delay is None else delay
    if beam is None:
        return greedy_search(context, prefix, written, known, delay=delay)
    best = jax.tree.map(lambda a: a[:, 0], beam_search(context, known, beam, (prefix, written)))
    is_new = real(best.lengths, prefix.room) & ~real(written.lengths, prefix.room)
    delays = jnp.where(is_new, delay[:, None], written.delays)
    written = Written(tokens=best.tokens, lengths=best.lengths, reach=best.notes, delays=delays)
    return replace(prefix, finished=jnp.ones_like(prefix.finished)), written
