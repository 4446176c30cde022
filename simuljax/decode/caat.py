"""Decoding with CAAT: a live stream, or a batch of whole sources as streams would write them.

A group is searched once all of its states are there (`simuljax.decode.blocks`), and what all
hypotheses agree on after it is committed: with one across, all of it. So what is written does not
depend on how the sound is cut into READs, and a batch of whole sources needs no READs at all: a
token's delay is that of the first READ after which its group is complete.

As an offline model, with all of the source in sight from the start, CAAT decodes like any other:
`simuljax.decode.beam`.

CAAT's search (Liu et al. 2021): within a group a beam, from group to group the best.

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
import functools
from dataclasses import dataclass, replace
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from simuljax.audio import Filterbank, frame_count
from simuljax.config.decoding import Blocks, Decoding
from simuljax.config.model import ModelConfig
from simuljax.decode.beam import BeamHypotheses
from simuljax.decode.greedy import Written, limit_of, nothing_written, repeated
from simuljax.decode.simulate import Listening, Simulation
from simuljax.decode.state import Known, encode_speech, recent_of
from simuljax.decode.stream import Chunk, Events, StreamingDecoder, StreamParams, StreamState
from simuljax.models.caat import BLANK
from simuljax.models.joint import JointModel, init_past
from simuljax.nn.attention import Past
from simuljax.nn.monotonic import Memory
from simuljax.nn.subsampling import STRIDE, state_count
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


def init_candidates(model: JointModel, batch: int, room: int, blocks: Blocks) -> Candidates:
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
    model: JointModel, variables: Any, beam: Candidates, group: Group, decoding: Decoding
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
    model: JointModel, variables: Any, beam: Candidates, group: Group
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


@flax.struct.dataclass
class Search:
    """The state of the search, group by group."""

    candidates: Candidates
    written: Written  # committed; room for all tokens
    shown: jax.Array  # int32 [B]: of these, events that have been given out
    groups: jax.Array  # int32 [B]: searched
    finished: jax.Array  # bool [B]: nothing more will be written


@dataclass(frozen=True, kw_only=True)
class CaatDecoder(StreamingDecoder):
    """The step of a CAAT; see `StreamingDecoder`, with whose states and events it works."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model.config.decoder != "caat":
            raise ValueError(f"the decoder is {self.model.config.decoder!r}: use StreamingDecoder")

    def init(self, params: StreamParams, batch: int) -> StreamState:
        """Return streams that have read nothing."""
        search = init_search(self.model, batch, self.limits.tokens, self.decoding)
        state = replace(super().init(params, batch), prefix=search)  # pyright: ignore[reportArgumentType]
        return jax.tree.map(jnp.copy, state)

    def step(
        self, params: StreamParams, state: StreamState, chunk: Chunk
    ) -> tuple[StreamState, Events]:
        """Read a chunk and write what it allows. A stream that has ended reads no more."""
        before = state.source.known.progress.ended
        length = jnp.where(before, 0, chunk.length)
        state = self._encode(params, state, chunk, length, chunk.ended & ~before)
        known, search = state.source.known, state.prefix
        delays = jnp.broadcast_to(state.samples[:, None], known.progress.ends.shape)
        given = (self.model, params.variables, search, known)
        search = search_on(*given, delays=delays, decoding=self.decoding.fixed())  # pyright: ignore[reportArgumentType]
        search, events = _show(search, self.limits.events)
        return replace(state, prefix=search, more=events.more), events


def init_search(model: JointModel, batch: int, room: int, decoding: Decoding) -> Search:
    """Return a search that has read nothing, with room for so many tokens."""
    zero = jnp.zeros(batch, jnp.int32)
    return Search(
        candidates=init_candidates(model, batch, room, decoding.blocks),
        written=nothing_written(batch, room),
        shown=zero,
        groups=zero,
        finished=jnp.zeros(batch, bool),
    )


def search_on(
    model: JointModel,
    variables: Any,
    search: Search,
    known: Known,
    *,
    delays: jax.Array,
    decoding: Decoding,
) -> Search:
    """Search every complete group; `delays` [B, G] are noted beside a group's tokens."""

    def next_group(search: Search) -> Search:
        due, last = _due(search, known)
        at = jnp.clip(search.groups, 0, known.progress.count - 1)[:, None]
        ends = jnp.take_along_axis(known.progress.ends, jnp.maximum(at, 0), 1)[:, 0]
        reach = jnp.where(known.progress.count > 0, ends + 1, 0)
        room = search.written.tokens.shape[1]
        group = Group(
            memory=known.memory,
            reach=reach,
            limit=limit_of(replace(known.progress, lengths=reach), room, decoding),
            last=last,
            due=due,
        )
        candidates = search_group(model, variables, search.candidates, group, decoding)
        noted = jnp.take_along_axis(delays, jnp.maximum(at, 0), 1)[:, 0]
        return Search(
            candidates=candidates,
            written=_commit(search.written, candidates, group, noted),
            shown=search.shown,
            groups=search.groups + due,
            finished=search.finished | (due & last),
        )

    return jax.lax.while_loop(lambda search: _due(search, known)[0].any(), next_group, search)


def _due(search: Search, known: Known) -> tuple[jax.Array, jax.Array]:
    """Return bool [B] twice: a group can be searched; it is the last."""
    ended, count = known.progress.ended, known.progress.count
    last = ended & (search.groups >= count - 1)
    return ~search.finished & (ended | (search.groups < count)), last


def _commit(written: Written, candidates: Candidates, group: Group, delay: jax.Array) -> Written:
    """Commit what all hypotheses begin with, or all of the best one after the last group."""
    texts, place = candidates.texts, jnp.arange(written.tokens.shape[1])
    there = (texts.log_prob > -jnp.inf)[..., None]
    inside = place < texts.lengths[..., None]
    same = ((texts.tokens == texts.tokens[:, :1]) & inside | ~there).all(1)
    agreed = jnp.cumprod(same & inside[:, 0], axis=1).sum(1)
    count = jnp.where(group.last, texts.lengths[:, 0], agreed)
    count = jnp.where(group.due, count, written.count)
    new = (place >= written.count[:, None]) & (place < count[:, None])
    return Written(
        tokens=jnp.where(new, texts.tokens[:, 0], written.tokens),
        count=count,
        reach=jnp.where(new, texts.delays[:, 0], written.reach),
        delays=jnp.where(new, delay[:, None], written.delays),
    )


def _show(search: Search, events: int) -> tuple[Search, Events]:
    """Give out the next committed tokens, as many as a step holds."""
    written, room = search.written, search.written.tokens.shape[1]
    count = jnp.minimum(written.count - search.shown, events)
    place = jnp.minimum(search.shown[:, None] + jnp.arange(events), room - 1)
    real = jnp.arange(events) < count[:, None]

    def shown(values: jax.Array) -> jax.Array:
        return jnp.where(real, jnp.take_along_axis(values, place, 1), 0)

    search = replace(search, shown=search.shown + count)
    more = search.shown < written.count
    given = Written(
        tokens=shown(written.tokens),
        count=count,
        reach=shown(written.reach),
        delays=shown(written.delays),
    )
    return search, Events(written=given, finished=search.finished & ~more, more=more)


def simulate_caat(
    model: JointModel,
    variables: Any,
    features: ArrayLike,
    samples: ArrayLike,
    *,
    decoding: Decoding | None = None,
    listening: Listening | None = None,
) -> Simulation:
    """Simulate streams of `samples` [B] samples with features [B, F, D], like `simulate_speech`."""
    decoding, listening = decoding or Decoding(), listening or Listening()
    sizes = jnp.array(listening.samples, jnp.int32)
    given = (variables, features, jnp.asarray(samples, jnp.int32), sizes)
    return _simulate(model, decoding.fixed(), listening.filterbank, *given)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _simulate(model, decoding, bank, variables, features, samples, sizes) -> Simulation:
    ended = jnp.ones(samples.shape, bool)
    known = encode_speech(model, variables, features, frame_count(samples, bank), ended)
    count, places = known.progress.count[:, None], jnp.arange(known.progress.ends.shape[1])
    needed = samples_of_group(model.config, places, bank)
    first, other = sizes
    reads = jnp.maximum(-(-(needed - first) // other), 0)
    delays = jnp.minimum(first + reads * other, samples[:, None])
    delays = jnp.where(places >= count - 1, samples[:, None], delays)
    room = decoding.limit.of(state_count(features.shape[1]))
    search = init_search(model, len(samples), room, decoding)
    search = search_on(model, variables, search, known, delays=delays, decoding=decoding)
    written = search.written
    return Simulation(
        tokens=written.tokens,
        lengths=written.count,
        delays=written.delays * jnp.float32(1000 / bank.rate),
        reach=written.reach,
    )


def samples_of_group(model: ModelConfig, group: jax.Array, bank: Filterbank) -> jax.Array:
    """Return the samples after which a group, from 0, is complete, if it is not the last."""
    assert model.speech is not None
    chunks = -(-(group + 1) * model.predecision.step // model.speech.chunk)
    states = chunks * model.speech.chunk + model.speech.right
    framing, frames = bank.framing, STRIDE * (states - 1) + 1
    return (frames - 1) * framing.shift + framing.length - framing.history
