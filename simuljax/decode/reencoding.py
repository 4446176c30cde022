"""Streams whose encoder looks at everything: with every READ the source is encoded anew.

Sources grow, but shapes may not: samples, and tokens of a text, are padded to one of a few lengths,
each compiled once. A READ costs as much as the stream is long; the streaming encoder has no such
cost (`simuljax.decode.stream`).

Policies that compare hypotheses (local agreement) work here: after every READ the source is
translated to its end as if nothing followed, from what has been committed on. The policy says how
many tokens of it are committed, without end-of-sentence; once the source has ended, all of it is.
"""

from dataclasses import dataclass, replace

import flax.struct
import jax.numpy as jnp
import numpy as np
from jax import Array

from simuljax.audio import RATE, features_of, frame_count
from simuljax.config.decoding import Beam
from simuljax.config.model import ModelConfig
from simuljax.decode.beam import beam_search
from simuljax.decode.greedy import Written, greedy_search, nothing_written
from simuljax.decode.policies import History, Hypotheses, Policy
from simuljax.decode.state import (
    Context,
    Known,
    Prefix,
    encode_speech,
    encode_text,
    init_prefix,
    recent_of,
    replay,
)
from simuljax.decode.stream import Events, ModelDecoder, StreamParams
from simuljax.nn.layers import real
from simuljax.text import BOS, EOS

SHORTEST = 4 * RATE  # samples of the smallest shape; each further one is twice as long
SHORTEST_TEXT = 32  # tokens
NOTHING = -1  # in place of a token


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
    trial, whole = _hypothesise(free, prefix, written, as_if_all, delay, policy.beam)
    is_token = real(whole.count, whole.tokens.shape[1]) & (whole.tokens != EOS)
    every = jnp.concatenate([before, jnp.where(is_token, whole.tokens, NOTHING)[:, None]], 1)
    count = jnp.maximum(policy.commit(Hypotheses(units=every)), written.count).astype(jnp.int32)
    count = jnp.where(ended, whole.count, count)
    count = jnp.where(prefix.finished, written.count, count)
    last = jnp.take_along_axis(whole.tokens, jnp.maximum(count - 1, 0)[:, None], 1)[:, 0]
    cut = replace(  # its past is the hypothesis's
        trial,
        position=count,
        token=jnp.where(count > 0, last, BOS),
        recent=recent_of(whole.tokens, count, trial.recent.shape[1]),
        finished=prefix.finished | (ended & trial.finished),
    )
    return Targets(prefix=cut, written=whole.first(count), hypotheses=every[:, 1:])


def _hypothesise(
    context: Context, prefix: Prefix, written: Written, known: Known, delay: Array, beam: int
) -> tuple[Prefix, Written]:
    """Return a whole hypothesis that begins with what was written: greedy, or a beam's best."""
    if beam == 1:
        return greedy_search(context, prefix, written, known, delay=delay)
    found = beam_search(context, known, Beam(size=beam), (prefix, written))
    new = jnp.arange(written.tokens.shape[1]) >= written.count[:, None]
    best = Written(
        tokens=found.tokens[:, 0],
        count=found.lengths[:, 0],
        reach=jnp.where(new, found.notes[:, 0], written.reach),
        delays=jnp.where(new, delay[:, None], written.delays),
    )
    return replace(prefix, finished=jnp.ones_like(prefix.finished)), best


def usual_history(policy: Policy | None, model: ModelConfig) -> History:
    """Return what becomes of targets when more of the source arrives, by default.

    A streaming encoder keeps its states, and a stream over it its targets.
    """
    if policy is None:
        return "recomputed"
    streams = model.speech is not None and model.speech.is_incremental
    return "kept" if streams and policy.is_incremental else policy.history


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
        context, before = self.context(params), state.targets.written.count
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
            written=written.after(before, written.count - before, written.tokens.shape[1]),
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
