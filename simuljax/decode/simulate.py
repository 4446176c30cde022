"""Simulate streams: what they would write, and when, of sources that are there whole, in batches.

With every READ more of the source is encoded from scratch: the only way for an encoder that looks
at all of it. The reference for every decision is the training-time forward pass on exactly the
source so far, so the targets written before are passed through the decoder again (history
`recomputed`). With `kept` they stay as they were when written, which is cheaper, and the same for
heads that decide by themselves over an encoder whose states do not change any more.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from simuljax.audio import RATE, Filterbank, frame_count
from simuljax.config.decoding import Decoding, check_policy
from simuljax.decode.caat import init_search, samples_of_group, search_on
from simuljax.decode.greedy import Written
from simuljax.decode.policies import History
from simuljax.decode.reencoding import Targets, no_targets, usual_history, write_targets
from simuljax.decode.state import Context, Known, context_of, encode_speech, encode_text
from simuljax.models.joint import JointModel
from simuljax.nn.subsampling import state_count
from simuljax.text import Words


@dataclass(frozen=True, kw_only=True)
class Listening:
    """The size of a READ, and the treatment of targets written before it.

    The first READ may be of another size. None: as the others; the history, as the policy has it.
    """

    read_ms: int = 280
    first_ms: int | None = None
    history: History | None = None
    filterbank: Filterbank = field(default_factory=Filterbank)

    @property
    def samples(self) -> Array:
        """Return int32 [2]: the samples of the first READ, and of every other."""
        given = (self.first_ms or self.read_ms, self.read_ms)
        return jnp.array([ms * RATE // 1000 for ms in given], jnp.int32)


def usual_listening(
    decoding: Decoding, read_ms: int | None = None, usual_ms: int = 280, **how: Any
) -> Listening:
    """Return READs of `read_ms`, or as the policy wants them, or of `usual_ms`."""
    policy = decoding.policy
    size: int = read_ms or (policy.read_ms if policy else None) or usual_ms
    return Listening(read_ms=size, first_ms=policy.first_read_ms if policy else None, **how)


@flax.struct.dataclass
class Simulation:
    """Tokens, and how much of the source was there when each was committed."""

    tokens: Array  # int32 [B, N], 0 beyond the lengths
    lengths: Array  # int32 [B]; end-of-sentence counts
    delays: Array  # float32 [B, N]: ms of speech, tokens of text, or READs, that had arrived
    reach: Array  # int32 [B, N]: encoder states that the furthest head attends to

    @classmethod
    def of(cls, written: Written, scale: float) -> "Simulation":
        """Return what was written, with delays in another unit."""
        return cls(
            tokens=written.tokens,
            lengths=written.count,
            delays=written.delays * jnp.float32(scale),
            reach=written.reach,
        )


def simulate_speech(
    model: JointModel,
    variables: Any,
    features: ArrayLike,
    samples: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    decoding: Decoding | None = None,
    listening: Listening | None = None,
    words: Words | None = None,
) -> Simulation:
    """Simulate streams of `samples` [B] samples with normalised features [B, F, D].

    `variables` are those of `model.apply`; `labels` [B, F] serve models that decide at words,
    `words` policies that count them. Without `listening`, READs are as the policy wants them. CAAT
    searches its groups, unless there is a policy.
    """
    decoding = decoding or Decoding()
    listening = listening or usual_listening(decoding)
    check_policy(decoding.policy, model.config)
    context = context_of(model, variables, decoding, words)
    samples, sizes = jnp.asarray(samples, jnp.int32), listening.samples
    if model.config.decoder == "caat" and decoding.policy is None:
        return _caat(context, listening.filterbank, features, samples, sizes)
    history = listening.history or usual_history(decoding.policy, model.config)
    return _speech(context, history, listening.filterbank, features, samples, labels, sizes)


def simulate_text(
    model: JointModel,
    variables: Any,
    tokens: ArrayLike,
    lengths: ArrayLike,
    units: ArrayLike | None = None,
    *,
    decoding: Decoding | None = None,
    history: History = "recomputed",
    words: Words | None = None,
) -> Simulation:
    """Simulate transcripts [B, L] that arrive one token a READ, end-of-sentence included.

    With `units` [B, R], the tokens that are there after each READ, a READ may be a whole word
    (`simuljax.text.words`); the READ that follows them brings the end-of-sentence. Delays
    then count READs, and so does wait-k.
    """
    decoding = decoding or Decoding()
    check_policy(decoding.policy, model.config, "text")
    context = context_of(model, variables, decoding, words)
    return _text(context, history, tokens, jnp.asarray(lengths, jnp.int32), units)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _speech(context, history, bank, features, samples, labels, sizes) -> Simulation:
    def encode(read: Array, ended: Array) -> Known:
        return encode_speech(context, features, frame_count(read, bank), ended, labels, read)

    room = context.decoding.limit.of(state_count(features.shape[1]))
    targets = no_targets(context, len(samples), room)
    end = _run(context, history, encode, targets, samples, sizes)
    return Simulation.of(end.written, 1000 / RATE)


@functools.partial(jax.jit, static_argnums=1)
def _caat(context, bank, features, samples, sizes) -> Simulation:
    model, ended = context.model, jnp.ones(samples.shape, bool)
    known = encode_speech(context, features, frame_count(samples, bank), ended)
    count, places = known.progress.count[:, None], jnp.arange(known.progress.ends.shape[1])
    first, other = sizes
    reads = jnp.maximum(-(-(samples_of_group(model.config, places, bank) - first) // other), 0)
    delays = jnp.minimum(first + reads * other, samples[:, None])
    delays = jnp.where(places >= count - 1, samples[:, None], delays)
    room = context.decoding.limit.of(state_count(features.shape[1]))
    search = init_search(model, len(samples), room, context.decoding)
    search = search_on(context, search, known, delays)
    return Simulation.of(search.written, 1000 / RATE)


@functools.partial(jax.jit, static_argnums=1)
def _text(context, history, tokens, lengths, units) -> Simulation:
    def encode(reads: Array, ended: Array) -> Known:
        read = reads
        if units is not None:
            place = jnp.minimum(reads - 1, units.shape[1] - 1)[:, None]
            read = jnp.where(ended, lengths, jnp.take_along_axis(units, place, 1)[:, 0])
        return replace(encode_text(context, tokens, read, ended), units=reads)

    total = lengths if units is None else (units < lengths[:, None]).sum(1) + 1
    targets = no_targets(context, len(tokens), context.decoding.limit.of(tokens.shape[1]))
    end = _run(context, history, encode, targets, total, jnp.ones(2, jnp.int32))
    return Simulation.of(end.written, 1.0)


def _run(
    context: Context,
    history: History,
    encode: Callable[[Array, Array], Known],
    targets: Targets,
    total: Array,
    sizes: Array,
) -> Targets:
    """Read and write until every row is finished.

    `total` [B] is how long each source is, `sizes` [2] are those of the first READ and the others.
    """

    def read(state: tuple[Array, Targets]) -> tuple[Array, Targets]:
        reads, targets = state
        amount = jnp.minimum(sizes[0] + reads * sizes[1], total)
        known = encode(amount, amount >= total)
        return reads + 1, write_targets(context, targets, known, delay=amount, history=history)

    start = (jnp.int32(0), targets)
    return jax.lax.while_loop(lambda state: ~state[1].prefix.finished.all(), read, start)[1]
