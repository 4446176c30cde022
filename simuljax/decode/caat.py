"""Decoding with CAAT (Liu et al. 2021): within a group a beam, from group to group the best.

A group is searched once all of its states are there, and what all hypotheses agree on after it is
committed: with one across, all of it. So what is written does not depend on how the sound is cut
into READs, and a batch of whole sources needs no READs at all (`simulate_groups`): a
token's delay is that of the first READ after which its group is complete. As an offline model, with
all of the source in sight from the start, CAAT decodes like any other: `simuljax.decode.beam`.

A hypothesis is live until it takes the blank; then it rests until the next group. In every turn
each live one is continued by the blank and by its best K labels. Of all these and of those at rest
the best K by log-probability stay, and the group is over when all of them rest; `across` of them
live on. With K = 1 that is greedy decoding: the best label, or the blank if none is better.

While the source is live, end-of-sentence counts as blank: the blank has the probability of both.
In the last group there is nothing more to wait for, so no blank, and end-of-sentence is for good.

Equal texts are one hypothesis with the sum of their probabilities: ways to one node of the lattice.
That needs more than one across, since a text follows from another in one way only.
"""

import functools
from dataclasses import dataclass, replace

import flax.struct
import jax
import jax.numpy as jnp
from jax import Array

from simuljax.audio import Filterbank, frame_count
from simuljax.config.decoding import Decoding
from simuljax.config.model import ModelConfig
from simuljax.decode.context import Context, Known, encode_speech
from simuljax.decode.greedy import (
    Events,
    Written,
    limit_of,
    nothing_written,
    recent_of,
    repeated,
)
from simuljax.decode.stream import StreamingDecoder, StreamState
from simuljax.models.caat import BLANK
from simuljax.models.joint import JointModel, init_past
from simuljax.models.streaming import frames_before
from simuljax.nn.attention import Past
from simuljax.nn.beam import BeamHypotheses, empty_beam
from simuljax.nn.monotonic import Memory
from simuljax.nn.subsampling import state_count
from simuljax.text import EOS


@flax.struct.dataclass
class Candidates:
    """K hypotheses of each source, the best first, and what the predictor knows of them."""

    texts: BeamHypotheses  # notes are the states in sight
    past: Past  # [layers, B, K, N, H, d]


@flax.struct.dataclass
class Group:
    """The question to the joiner in one group of each source."""

    memory: Memory  # layers first
    reach: Array  # int32 [B]: states in sight
    limit: Array  # int32 [B]: of tokens
    last: Array  # bool [B]: nothing will follow
    due: Array  # bool [B]: others are left as they are


@flax.struct.dataclass
class _Turn:
    beam: Candidates
    rests: Array  # bool [B, K]
    count: Array  # int32 []: turns


def search_group(context: Context, beam: Candidates, group: Group) -> Candidates:
    """Return the hypotheses after a group: `across` of them."""
    blocks = context.decoding.blocks

    def turn(state: _Turn) -> _Turn:
        logits, past = _ask(context, state.beam, group)
        texts, rests, parent = _continue(state, logits, group, context.decoding)
        texts = _merged(texts, rests) if blocks.across > 1 else texts
        best = jax.lax.top_k(texts.log_prob, blocks.inside)[1]
        parent, rests = (jnp.take_along_axis(a, best, 1) for a in (parent, rests))
        beam = Candidates(texts=texts.take(best), past=_of_parents(past, parent))
        return _Turn(beam=beam, rests=rests, count=state.count + 1)

    def live(texts: BeamHypotheses) -> Array:
        return group.due[:, None] & (texts.log_prob > -jnp.inf)

    start = _Turn(beam=beam, rests=~live(beam.texts), count=jnp.int32(0))
    end = jax.lax.while_loop(
        lambda state: (~state.rests & live(state.beam.texts)).any(), turn, start
    ).beam
    return replace(end, texts=end.texts.only(jnp.arange(blocks.inside) < blocks.across))


def _ask(context: Context, beam: Candidates, group: Group) -> tuple[Array, Past]:
    """Return logits [B, K, V] of the next token, and the past with the last one."""
    texts, (batch, size, room) = beam.texts, beam.texts.tokens.shape
    flat = jax.tree.map(lambda a: a.reshape(a.shape[0], batch * size, *a.shape[3:]), beam.past)
    before = jnp.where(texts.lengths > 0, texts.last, BLANK)  # which is begin-of-sentence
    position = texts.lengths.reshape(-1)

    def ask(model: JointModel) -> tuple[Array, Past]:
        x, added = model.decoder.predict(before.reshape(-1, 1), position, flat)
        return model.decoder.join(x.reshape(batch, size, -1), group.memory, group.reach), added

    joined, added = context.apply(method=ask)
    rows = jnp.arange(batch * size)

    def put(past: Array, new: Array) -> Array:
        past = past.at[:, rows, jnp.minimum(position, room)].set(new[:, :, 0], mode="drop")
        return past.reshape(past.shape[0], batch, size, *past.shape[2:])

    return joined, jax.tree.map(put, flat, added)


def _continue(
    state: _Turn, logits: Array, group: Group, decoding: Decoding
) -> tuple[BeamHypotheses, Array, Array]:
    """Continue every hypothesis by the blank, then by its best labels.

    Return C continuations, bool [B, C]: those at rest, and int32 [B, C]: their parents.
    """
    texts, (batch, size, _) = state.beam.texts, state.beam.texts.tokens.shape
    full = (texts.lengths >= group.limit[:, None]) | (
        ~group.last[:, None] & (state.count >= decoding.blocks.longest)
    )
    stay, labels = _scores(logits, texts, full, group, decoding)
    stayed = replace(texts, log_prob=texts.log_prob + jnp.where(state.rests, 0, stay))
    best, tokens = jax.lax.top_k(labels, size)
    best = jnp.where(state.rests[..., None], -jnp.inf, texts.log_prob[..., None] + best)
    own = jnp.broadcast_to(jnp.arange(size), (batch, size))
    parent, token = jnp.repeat(own, size, 1), tokens.reshape(batch, -1)
    reach = jnp.broadcast_to(group.reach[:, None], token.shape)
    longer = texts.extended(parent, token, reach, best.reshape(batch, -1))
    rests = jnp.concatenate([jnp.ones((batch, size), bool), token == EOS], 1)
    return stayed.join(longer), rests, jnp.concatenate([own, parent], 1)


def _scores(
    logits: Array, texts: BeamHypotheses, full: Array, group: Group, decoding: Decoding
) -> tuple[Array, Array]:
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


def _merged(texts: BeamHypotheses, rests: Array) -> BeamHypotheses:
    """Merge equal texts that are equally at rest: the sum in the first, -inf elsewhere."""
    inside = jnp.arange(texts.tokens.shape[-1]) < texts.lengths[..., None]
    tokens = jnp.where(inside, texts.tokens, -1)
    equal = (tokens[:, :, None] == tokens[:, None]).all(-1) & (rests[:, :, None] == rests[:, None])
    log_prob = texts.log_prob[:, None]
    there = equal & (log_prob > -jnp.inf)
    first = there.argmax(-1) == jnp.arange(rests.shape[1])
    total = jax.nn.logsumexp(jnp.where(there, log_prob, -jnp.inf), axis=-1)
    return replace(texts, log_prob=jnp.where(first & there.any(-1), total, -jnp.inf))


def _of_parents(past: Past, parent: Array) -> Past:
    """Return the past of every hypothesis, from that of its parent [B, K]."""
    if parent.shape[1] == 1:
        return past
    place = parent[None, :, :, None, None, None]
    return jax.tree.map(lambda a: jnp.take_along_axis(a, place, 2), past)


@flax.struct.dataclass
class Search:
    """The state of the search, group by group."""

    candidates: Candidates
    written: Written  # committed; room for all tokens
    shown: Array  # int32 [B]: of these, events that have been given out
    groups: Array  # int32 [B]: searched
    finished: Array  # bool [B]: nothing more will be written


def init_search(model: JointModel, batch: int, room: int, decoding: Decoding) -> Search:
    """Return a search that has read nothing, with room for so many tokens."""
    size = decoding.blocks.inside
    zeros = jnp.zeros((batch, size, room), jnp.int32)
    past = init_past(model.config, batch * size, room)
    past = jax.tree.map(lambda a: a.reshape(a.shape[0], batch, size, *a.shape[2:]), past)
    return Search(
        candidates=Candidates(texts=empty_beam(zeros, zeros), past=past),
        written=nothing_written(batch, room),
        shown=jnp.zeros(batch, jnp.int32),
        groups=jnp.zeros(batch, jnp.int32),
        finished=jnp.zeros(batch, bool),
    )


@dataclass(frozen=True, kw_only=True)
class CaatDecoder(StreamingDecoder):
    """The step of a CAAT; see `StreamingDecoder`, with whose states and events it works."""

    def init_targets(self, batch: int) -> Search:
        """Return targets of streams that have written nothing."""
        return init_search(self.model, batch, self.limits.tokens, self.decoding)

    def write(
        self, context: Context, state: StreamState, length: Array, states: Array
    ) -> tuple[Search, Events]:
        """Search every complete group; give out the next committed tokens."""
        known, found = state.source.known, state.prefix
        delays = jnp.broadcast_to(state.samples[:, None], known.progress.ends.shape)
        found = search_on(context, found, known, delays)  # pyright: ignore[reportArgumentType]
        shown, committed = found.shown, found.written.lengths
        count = jnp.minimum(committed - shown, self.limits.events)
        written = found.written.after(shown, count, self.limits.events)
        more = shown + count < committed
        events = Events(written=written, finished=found.finished & ~more, more=more)
        return replace(found, shown=shown + count), events


def search_on(context: Context, search: Search, known: Known, delays: Array) -> Search:
    """Search every complete group; `delays` [B, G] are noted beside a group's tokens."""
    ended, count = known.progress.ended, known.progress.count

    def due(search: Search) -> Array:
        return ~search.finished & (ended | (search.groups < count))

    def next_group(search: Search) -> Search:
        last = ended & (search.groups >= count - 1)
        at = jnp.maximum(jnp.clip(search.groups, 0, count - 1), 0)[:, None]
        ends = jnp.take_along_axis(known.progress.ends, at, 1)[:, 0]
        reach = jnp.where(count > 0, ends + 1, 0)
        progress, room = replace(known.progress, lengths=reach), search.written.tokens.shape[1]
        group = Group(
            memory=known.memory,
            reach=reach,
            limit=limit_of(progress, room, context.decoding),
            last=last,
            due=due(search),
        )
        candidates = search_group(context, search.candidates, group)
        noted = jnp.take_along_axis(delays, at, 1)[:, 0]
        return Search(
            candidates=candidates,
            written=_commit(search.written, candidates.texts, group, noted),
            shown=search.shown,
            groups=search.groups + group.due,
            finished=search.finished | (group.due & last),
        )

    return jax.lax.while_loop(lambda search: due(search).any(), next_group, search)


def _commit(written: Written, texts: BeamHypotheses, group: Group, delay: Array) -> Written:
    """Commit what all hypotheses begin with, or all of the best one after the last group."""
    place = jnp.arange(written.tokens.shape[1])
    there = (texts.log_prob > -jnp.inf)[..., None]
    inside = place < texts.lengths[..., None]
    same = ((texts.tokens == texts.tokens[:, :1]) & inside | ~there).all(1)
    agreed = jnp.cumprod(same & inside[:, 0], axis=1).sum(1)
    count = jnp.where(group.last, texts.lengths[:, 0], agreed)
    count = jnp.where(group.due, count, written.lengths)
    new = (place >= written.lengths[:, None]) & (place < count[:, None])
    return Written(
        tokens=jnp.where(new, texts.tokens[:, 0], written.tokens),
        lengths=count,
        reach=jnp.where(new, texts.notes[:, 0], written.reach),
        delays=jnp.where(new, delay[:, None], written.delays),
    )


@functools.partial(jax.jit, static_argnums=1)
def simulate_groups(context, bank, features, samples, sizes) -> Written:
    """Search all groups of whole sources; delays are samples, `sizes` [2] those of READs."""
    model, ended = context.model, jnp.ones(samples.shape, bool)
    known = encode_speech(context, features, frame_count(samples, bank), ended)
    count, places = known.progress.count[:, None], jnp.arange(known.progress.ends.shape[1])
    first, other = sizes
    reads = jnp.maximum(-(-(_samples_of_group(model.config, places, bank) - first) // other), 0)
    delays = jnp.minimum(first + reads * other, samples[:, None])
    delays = jnp.where(places >= count - 1, samples[:, None], delays)
    room = context.decoding.limit.of(state_count(features.shape[1]))
    search = init_search(model, len(samples), room, context.decoding)
    return search_on(context, search, known, delays).written


def _samples_of_group(model: ModelConfig, group: Array, bank: Filterbank) -> Array:
    """Return the samples after which a group, from 0, is complete, if it is not the last."""
    assert model.speech is not None
    chunks = -(-(group + 1) * model.predecision.step // model.speech.chunk)
    states = chunks * model.speech.chunk + model.speech.right
    framing, frames = bank.framing, frames_before(model.speech, states)
    return (frames - 1) * framing.shift + framing.length - framing.history
