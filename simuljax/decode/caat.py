"""Decoding with CAAT: a live stream, or a batch of whole sources as streams would write them.

A group is searched once all of its states are there (`simuljax.decode.blocks`), and what all
hypotheses agree on after it is committed: with one across, all of it. So what is written does not
depend on how the sound is cut into READs, and a batch of whole sources needs no READs at all: a
token's delay is that of the first READ after which its group is complete.

As an offline model, with all of the source in sight from the start, CAAT decodes like any other:
`simuljax.decode.offline`.
"""

import functools
from dataclasses import dataclass, replace
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from simuljax.audio import Filterbank, frame_count
from simuljax.config.decoding import Decoding
from simuljax.config.model import ModelConfig
from simuljax.decode.caat_search import Candidates, Group, init_candidates, search_group
from simuljax.decode.greedy import Written, limit_of, nothing_written
from simuljax.decode.simulate import Listening, Simulation
from simuljax.decode.source import encode_speech
from simuljax.decode.state import Known
from simuljax.decode.stream import Chunk, Events, StreamingDecoder, StreamParams, StreamState
from simuljax.models.translator import Translator
from simuljax.nn.subsampling import STRIDE, state_count


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


def init_search(model: Translator, batch: int, room: int, decoding: Decoding) -> Search:
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
    model: Translator,
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
    model: Translator,
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
