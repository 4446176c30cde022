"""CAAT's search (Liu et al. 2021): within a group a beam, from group to group the best.

A hypothesis is live until it takes the blank; then it rests until the next group. In every turn
each live one is continued by the blank and by its best K labels. Of all these and of those at rest
the best K by log-probability stay, and the group is over when all of them rest; `across` of them
live on. With K = 1 that is greedy decoding: the best label, or the blank if none is better.

While the source is live, end-of-sentence counts as blank: the blank has the probability of both.
In the last group there is nothing more to wait for, so no blank, and end-of-sentence is for good.

Equal texts are one hypothesis with the sum of their probabilities: ways to one node of the lattice.
That needs more than one across, since a text follows from another in one way only.
"""

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from simuljax.config.decoding import Blocks, Decoding
from simuljax.decode.beam import BeamHypotheses
from simuljax.decode.greedy import repeated
from simuljax.decode.state import recent_of
from simuljax.models.caat import BLANK
from simuljax.models.translator import Translator, init_past
from simuljax.nn.attention import Past
from simuljax.nn.pointers import Memory
from simuljax.text import EOS


@flax.struct.dataclass
class Candidates:
    """K hypotheses of each source, the best first, and what the predictor knows of them."""

    texts: BeamHypotheses  # their delays are the states in sight
    past: Past  # [layers, B, K, N, H, d]


@flax.struct.dataclass
class Group:
    """The question to the joiner in one group of each source."""

    memory: Memory  # layers first
    reach: jax.Array  # int32 [B]: states in sight
    limit: jax.Array  # int32 [B]: of tokens
    last: jax.Array  # bool [B]: nothing will follow
    due: jax.Array  # bool [B]: others are left as they are


@flax.struct.dataclass
class _Turn:
    beam: Candidates
    rests: jax.Array  # bool [B, K]
    count: jax.Array  # int32 []: turns


@flax.struct.dataclass
class _Ways:
    """C continuations."""

    texts: BeamHypotheses  # [B, C]
    rests: jax.Array  # bool [B, C]
    parent: jax.Array  # int32 [B, C]


def init_candidates(model: Translator, batch: int, room: int, blocks: Blocks) -> Candidates:
    """Return one empty hypothesis of each source."""
    size = blocks.inside
    tokens = jnp.zeros((batch, size, room), jnp.int32)
    log_prob = jnp.where(jnp.arange(size) == 0, 0.0, -jnp.inf) + jnp.zeros((batch, size))
    texts = BeamHypotheses(
        tokens=tokens, lengths=tokens[..., 0], delays=tokens, log_prob=log_prob, score=log_prob
    )
    past = init_past(model.config, batch * size, room)
    split = jax.tree.map(lambda a: a.reshape(a.shape[0], batch, size, *a.shape[2:]), past)
    return Candidates(texts=texts, past=split)


def search_group(
    model: Translator, variables: Any, beam: Candidates, group: Group, decoding: Decoding
) -> Candidates:
    """Return the hypotheses after a group: `across` of them."""
    blocks = decoding.blocks

    def turn(state: _Turn) -> _Turn:
        logits, past = _ask(model, variables, state.beam, group)
        ways = _ways(state, logits, group, decoding)
        ways = _merged(ways) if blocks.across > 1 else ways
        best = jax.lax.top_k(ways.texts.log_prob, blocks.inside)[1]
        parent, rests = (jnp.take_along_axis(a, best, 1) for a in (ways.parent, ways.rests))
        beam = Candidates(texts=ways.texts.take(best), past=_of_parents(past, parent))
        return _Turn(beam=beam, rests=rests, count=state.count + 1)

    start = _Turn(beam=beam, rests=~_live(beam.texts, group.due), count=jnp.int32(0))
    end = jax.lax.while_loop(
        lambda state: (~state.rests & _live(state.beam.texts, group.due)).any(), turn, start
    )
    return _first(end.beam, blocks.across)


def _live(texts: BeamHypotheses, due: jax.Array) -> jax.Array:
    """Return bool [B, K]: hypotheses that exist, of sources that are due."""
    return due[:, None] & (texts.log_prob > -jnp.inf)


def _ask(
    model: Translator, variables: Any, beam: Candidates, group: Group
) -> tuple[jax.Array, Past]:
    """Return logits [B, K, V] of the next token, and the past with the last one."""
    texts, (batch, size, room) = beam.texts, beam.texts.tokens.shape
    flat = jax.tree.map(lambda a: a.reshape(a.shape[0], batch * size, *a.shape[3:]), beam.past)
    before = jnp.where(texts.lengths > 0, texts.last, BLANK)  # which is begin-of-sentence
    position = texts.lengths.reshape(-1)
    given = (before.reshape(-1, 1), position, flat)
    predicted: Any = model.apply(variables, *given, method="predict")
    x, added = predicted
    joined: Any = model.apply(
        variables, x.reshape(batch, size, -1), group.memory, group.reach, method="join"
    )
    rows = jnp.arange(batch * size)

    def put(past: jax.Array, new: jax.Array) -> jax.Array:
        past = past.at[:, rows, jnp.minimum(position, room)].set(new[:, :, 0], mode="drop")
        return past.reshape(past.shape[0], batch, size, *past.shape[2:])

    return joined, jax.tree.map(put, flat, added)


def _ways(state: _Turn, logits: jax.Array, group: Group, decoding: Decoding) -> _Ways:
    """Continue every hypothesis by the blank, then by its best labels."""
    texts, (batch, size, room) = state.beam.texts, state.beam.texts.tokens.shape
    full = (texts.lengths >= group.limit[:, None]) | (
        ~group.last[:, None] & (state.count >= decoding.blocks.longest)
    )
    stay, labels = _scores(logits, texts, full, group, decoding)
    stays = texts.log_prob + jnp.where(state.rests, 0, stay)
    best, tokens = jax.lax.top_k(labels, size)
    best = jnp.where(state.rests[..., None], -jnp.inf, texts.log_prob[..., None] + best)
    parent = jnp.broadcast_to(jnp.arange(size), (batch, size))
    parents = jnp.concatenate([parent, jnp.repeat(parent, size, 1)], 1)
    before, token = texts.take(parents[:, size:]), tokens.reshape(batch, -1)
    at = jnp.arange(room) == before.lengths[..., None]
    log_prob = best.reshape(batch, -1)
    longer = BeamHypotheses(
        tokens=jnp.where(at, token[..., None], before.tokens),
        lengths=before.lengths + 1,
        delays=jnp.where(at, group.reach[:, None, None], before.delays),
        log_prob=log_prob,
        score=log_prob,
    )
    stayed = dataclasses.replace(texts, log_prob=stays, score=stays)
    rests = jnp.concatenate([jnp.ones((batch, size), bool), token == EOS], 1)
    return _Ways(texts=stayed.join(longer), rests=rests, parent=parents)


def _scores(
    logits: jax.Array, texts: BeamHypotheses, full: jax.Array, group: Group, decoding: Decoding
) -> tuple[jax.Array, jax.Array]:
    """Return log-probabilities of resting [B, K] and of every label [B, K, V]."""
    log_p = jax.nn.log_softmax(logits.astype(jnp.float32))
    last, ids = group.last[:, None], jnp.arange(log_p.shape[-1])
    blank = jnp.logaddexp(log_p[..., BLANK], log_p[..., EOS])
    stay = jnp.where(last, jnp.where(full, 0.0, -jnp.inf), blank)
    forbidden = (ids == BLANK) | ((ids == EOS) & ~last[..., None]) | full[..., None]
    if decoding.repetition is not None:
        flat, count = texts.tokens.reshape(-1, texts.tokens.shape[-1]), texts.lengths.reshape(-1)
        recent = recent_of(flat, count, decoding.repetition.window)
        again = repeated(recent, log_p.shape[-1], decoding.repetition).reshape(log_p.shape)
        forbidden |= again & (ids != EOS)
    return stay, jnp.where(forbidden, -jnp.inf, log_p)


def _merged(ways: _Ways) -> _Ways:
    """Merge equal texts that are equally at rest: the sum in the first, -inf elsewhere."""
    texts, rests = ways.texts, ways.rests
    inside = jnp.arange(texts.tokens.shape[-1]) < texts.lengths[..., None]
    tokens = jnp.where(inside, texts.tokens, -1)
    equal = (tokens[:, :, None] == tokens[:, None]).all(-1) & (rests[:, :, None] == rests[:, None])
    log_prob = texts.log_prob[:, None]
    there = equal & (log_prob > -jnp.inf)
    first = there.argmax(-1) == jnp.arange(rests.shape[1])
    total = jax.nn.logsumexp(jnp.where(there, log_prob, -jnp.inf), axis=-1)
    total = jnp.where(first & there.any(-1), total, -jnp.inf)
    return dataclasses.replace(ways, texts=dataclasses.replace(texts, log_prob=total, score=total))


def _of_parents(past: Past, parent: jax.Array) -> Past:
    """Return the past of every hypothesis, from that of its parent [B, K]."""
    if parent.shape[1] == 1:
        return past
    place = parent[None, :, :, None, None, None]
    return jax.tree.map(lambda a: jnp.take_along_axis(a, place, 2), past)


def _first(beam: Candidates, count: int) -> Candidates:
    """Keep the first so many."""
    there = jnp.arange(beam.texts.log_prob.shape[1]) < count
    return dataclasses.replace(beam, texts=beam.texts.only(there))
