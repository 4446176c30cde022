"""Encode the source anew at every READ: the only way for an encoder that looks at all of it.

`simulate_speech` and `simulate_text` find what streams would write, and when, of a batch of sources
that are there whole. `ReencodingDecoder` has the same READ for live streams. Sources grow there,
but shapes may not: samples, and tokens of a text, are padded to one of a few lengths, each compiled
once. A READ costs as much as the stream is long; the streaming encoder has no such cost
(`simuljax.decode.stream`).

The reference for every decision is the training-time forward pass on exactly the source so far, so
the targets written before are passed through the decoder again (history `recomputed`). With `kept`
they stay as they were when written, which is cheaper, and the same for heads that decide by
themselves over an encoder whose states do not change any more.

Policies that compare hypotheses (local agreement) work here: after every READ the source is
translated to its end as if nothing followed, from what has been committed on. The policy says how
many tokens of it are committed, without end-of-sentence; once the source has ended, all of it is.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from simuljax.audio import RATE, Filterbank, features_of, frame_count
from simuljax.config.decoding import Beam, Decoding, check_policy
from simuljax.config.model import ModelConfig
from simuljax.decode.beam import write_whole
from simuljax.decode.caat import simulate_groups
from simuljax.decode.context import (
    Context,
    Known,
    ModelDecoder,
    StreamParams,
    context_of,
    encode_speech,
    encode_text,
)
from simuljax.decode.greedy import (
    Events,
    Prefix,
    Written,
    greedy_search,
    init_prefix,
    nothing_written,
    recent_of,
    replay,
)
from simuljax.decode.policies import History, Hypotheses, Policy
from simuljax.models.joint import JointModel
from simuljax.nn.layers import real
from simuljax.nn.subsampling import state_count
from simuljax.text import BOS, EOS, Words

SHORTEST = 4 * RATE  # samples of the smallest shape; each further one is twice as long
SHORTEST_TEXT = 32  # tokens
NOTHING = -1  # in place of a token


def simulate_speech(
    model: JointModel,
    variables: Any,
    features: ArrayLike,
    samples: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    decoding: Decoding | None = None,
    filterbank: Filterbank | None = None,
    history: History | None = None,
    words: Words | None = None,
) -> Written:
    """Simulate streams of `samples` [B] samples with normalised features [B, F, D].

    Delays are milliseconds of speech that had arrived. `variables` are those of `model.apply`;
    `labels` [B, F] serve models that decide at words, `words` policies that count them. CAAT
    searches its groups, unless there is a policy.
    """
    decoding, bank = decoding or Decoding(), filterbank or Filterbank()
    check_policy(decoding.policy, model.config)
    context = context_of(model, variables, decoding, words)
    reads_ms = decoding.reads_ms(model.config.predecision.step_ms)
    given = (features, jnp.asarray(samples, jnp.int32))
    sizes = jnp.array([ms * RATE // 1000 for ms in reads_ms], jnp.int32)
    if model.config.decoder == "caat" and decoding.policy is None:
        written = simulate_groups(context, bank, *given, sizes)
    else:
        history = history or usual_history(decoding.policy, model.config)
        written = _speech(context, history, bank, *given, labels, sizes)
    return replace(written, delays=written.delays * jnp.float32(1000 / RATE))


def simulate_text(
    model: JointModel,
    variables: Any,
    tokens: ArrayLike,
    lengths: ArrayLike,
    units: ArrayLike | None = None,
    *,
    decoding: Decoding | None = None,
    words: Words | None = None,
) -> Written:
    """Simulate transcripts [B, L] that arrive one token a READ, end-of-sentence included.

    With `units` [B, R], the tokens that are there after each READ, a READ may be a whole word
    (`simuljax.text.words`); the READ that follows them brings the end-of-sentence. Delays
    then count READs, and so does wait-k.
    """
    decoding = decoding or Decoding()
    check_policy(decoding.policy, model.config, "text")
    context = context_of(model, variables, decoding, words)
    return _text(context, tokens, jnp.asarray(lengths, jnp.int32), units)


def usual_history(policy: Policy | None, model: ModelConfig) -> History:
    """Return what becomes of targets when more of the source arrives, by default.

    A streaming encoder keeps its states, and a stream over it its targets.
    """
    if policy is None:
        return "recomputed"
    streams = model.speech is not None and model.speech.is_incremental
    return "kept" if streams and policy.is_incremental else policy.history


@flax.struct.dataclass
class Targets:
    """All that was written, and the decoder as it was left."""

    prefix: Prefix
    written: Written
    hypotheses: Array | None = None  # int32 [B, A, N]: the last ones, if they are compared


def no_targets(context: Context | ModelDecoder, batch: int, room: int) -> Targets:
    """Return room for so many tokens."""
    policy, hypotheses = context.decoding.policy, None
    if policy is not None and policy.compares_hypotheses:
        hypotheses = jnp.full((batch, policy.looks_back, room), NOTHING, jnp.int32)
    return Targets(
        prefix=init_prefix(context.model, batch, room, context.decoding),
        written=nothing_written(batch, room),
        hypotheses=hypotheses,
    )


@functools.partial(jax.jit, static_argnums=(1, 2))
def _speech(context, history, bank, features, samples, labels, sizes) -> Written:
    def encode(read: Array, ended: Array) -> Known:
        return encode_speech(context, features, frame_count(read, bank), ended, labels, read)

    room = context.decoding.limit.of(state_count(features.shape[1]))
    return _run(context, history, encode, room, samples, sizes)


@jax.jit
def _text(context, tokens, lengths, units) -> Written:
    def encode(reads: Array, ended: Array) -> Known:
        read = reads
        if units is not None:
            place = jnp.minimum(reads - 1, units.shape[1] - 1)[:, None]
            read = jnp.where(ended, lengths, jnp.take_along_axis(units, place, 1)[:, 0])
        return replace(encode_text(context, tokens, read, ended), units=reads)

    total = lengths if units is None else (units < lengths[:, None]).sum(1) + 1
    room = context.decoding.limit.of(tokens.shape[1])
    return _run(context, "recomputed", encode, room, total, jnp.ones(2, jnp.int32))


def _run(
    context: Context,
    history: History,
    encode: Callable[[Array, Array], Known],
    room: int,
    total: Array,
    sizes: Array,
) -> Written:
    """Read and write until every row is finished; there is room for so many tokens.

    `total` [B] is how long each source is, `sizes` [2] are those of the first READ and the others.
    """

    def read(state: tuple[Array, Targets]) -> tuple[Array, Targets]:
        reads, targets = state
        amount = jnp.minimum(sizes[0] + reads * sizes[1], total)
        known = encode(amount, amount >= total)
        return reads + 1, write_targets(context, targets, known, delay=amount, history=history)

    start = (jnp.int32(0), no_targets(context, len(total), room))
    _, end = jax.lax.while_loop(lambda state: ~state[1].prefix.finished.all(), read, start)
    return end.written


def write_targets(
    context: Context, targets: Targets, known: Known, *, delay: Array, history: History
) -> Targets:
    """Write what the source allows; targets stay, or are passed again (`recomputed`)."""
    prefix, written = targets.prefix, targets.written
    if history == "recomputed":
        prefix = replay(context, prefix, written.tokens, known)
    if targets.hypotheses is None:
        prefix, written = greedy_search(context, prefix, written, known, delay=delay)
        return Targets(prefix=prefix, written=written)
    return _write_hypothesis(context, prefix, written, targets.hypotheses, known, delay)


def _write_hypothesis(
    context: Context, prefix: Prefix, written: Written, before: Array, known: Known, delay: Array
) -> Targets:
    """Commit as much of a whole hypothesis as the policy says; `before` [B, A, N] came earlier."""
    policy, ended = context.policy, known.progress.ended
    assert policy is not None
    as_if_all = replace(known, progress=replace(known.progress, ended=jnp.ones_like(ended)))
    free = replace(context, decoding=replace(context.decoding, policy=None))
    beam = None if policy.beam == 1 else Beam(size=policy.beam)
    trial, whole = write_whole(free, beam, as_if_all, (prefix, written), delay)
    is_token = real(whole.lengths, whole.tokens.shape[1]) & (whole.tokens != EOS)
    every = jnp.concatenate([before, jnp.where(is_token, whole.tokens, NOTHING)[:, None]], 1)
    count = jnp.maximum(policy.commit(Hypotheses(units=every)), written.lengths).astype(jnp.int32)
    count = jnp.where(ended, whole.lengths, count)
    count = jnp.where(prefix.finished, written.lengths, count)
    last = jnp.take_along_axis(whole.tokens, jnp.maximum(count - 1, 0)[:, None], 1)[:, 0]
    cut = replace(  # its past is the hypothesis's
        trial,
        position=count,
        token=jnp.where(count > 0, last, BOS),
        recent=recent_of(whole.tokens, count, trial.recent.shape[1]),
        finished=prefix.finished | (ended & trial.finished),
    )
    return Targets(prefix=cut, written=whole.first(count), hypotheses=every[:, 1:])


@flax.struct.dataclass
class ReencodingState:
    """Streams between two READs."""

    targets: Targets
    reads: Array  # int32 [B]


@dataclass(frozen=True, kw_only=True)
class ReencodingDecoder(ModelDecoder):
    """The READ of a model of speech or text; for text, `limits.states` are tokens.

    Methods are pure, like those of `StreamingDecoder`.
    """

    def init(self, batch: int) -> ReencodingState:
        """Return streams that have read nothing."""
        targets = no_targets(self, batch, self.limits.tokens)
        return ReencodingState(targets=targets, reads=jnp.zeros(batch, jnp.int32))

    def read(
        self,
        params: StreamParams,
        state: ReencodingState,
        source: Array,
        length: Array,
        ended: Array,
    ) -> tuple[ReencodingState, Events]:
        """Read the first `length` [B] of the source [B, N]; write what that allows.

        The source is samples, or tokens with end-of-sentence if `ended` [B].
        """
        context, before = self.context(params), state.targets.written.lengths
        if self.branch == "speech":
            assert params.statistics is not None
            features = features_of(source, self.features, params.statistics)
            frames = frame_count(length, self.features.filterbank)
            known = encode_speech(context, features, frames, ended, samples=length)
            history = usual_history(self.decoding.policy, self.model.config)
        else:
            known = encode_text(context, source, length, ended)
            known, history = replace(known, units=state.reads + 1), "recomputed"
        targets = write_targets(context, state.targets, known, delay=length, history=history)
        written = targets.written
        events = Events(
            written=written.after(before, written.lengths - before, written.tokens.shape[1]),
            finished=targets.prefix.finished,
            more=jnp.zeros_like(targets.prefix.finished),
        )
        return ReencodingState(targets=targets, reads=state.reads + 1), events


def padded_size(length: int, shortest: int = SHORTEST) -> int:
    """Return the next size that is compiled for so many samples or tokens."""
    size = shortest
    while size < length:
        size *= 2
    return size


def sizes_to(longest: int, shortest: int = SHORTEST) -> list[int]:
    """Return one length for every size that is compiled for up to so many samples or tokens."""
    count = (padded_size(longest, shortest) // shortest).bit_length()
    return [min(shortest << power, longest) for power in range(count)]


def padded(source: np.ndarray, shortest: int = SHORTEST) -> np.ndarray:
    """Return samples or tokens [N], and zeros up to the next size, [1, S]."""
    return np.pad(source, (0, padded_size(len(source), shortest) - len(source)))[None]
