"""Streams whose encoder looks at everything: with every READ the source is encoded anew.

Sources grow, but shapes may not: samples, and tokens of a text, are padded to one of a few lengths,
each compiled once. A READ costs as much as the stream is long; the streaming encoder has no such
cost (`simuljax.decode.stream`).

Policies that compare hypotheses (local agreement) work here: after every READ the source is
translated to its end as if nothing followed, from what has been committed on. The policy says how
many tokens of it are committed, without end-of-sentence; once the source has ended, all of it is.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from simuljax.audio import RATE, Features, Statistics, features_of, frame_count
from simuljax.config.decoding import Beam, Decoding, check_policy
from simuljax.config.model import ModelConfig
from simuljax.decode.beam import beam_search
from simuljax.decode.greedy import Written, greedy_search, nothing_written
from simuljax.decode.policies import History, Hypotheses, Policy
from simuljax.decode.state import (
    Context,
    Known,
    Prefix,
    control_of,
    counting_of,
    encode_speech,
    encode_text,
    init_prefix,
    recent_of,
    replay,
)
from simuljax.decode.stream import Events, StreamLimits, StreamParams
from simuljax.models.joint import JointModel
from simuljax.nn.layers import real
from simuljax.text import BOS, EOS, Words

SHORTEST = 4 * RATE  # samples of the smallest shape; each further one is twice as long
SHORTEST_TEXT = 32  # tokens
NOTHING = -1  # in place of a token


@flax.struct.dataclass
class Targets:
    """All that was written, and the decoder as it was left."""

    prefix: Prefix
    written: Written
    hypotheses: jax.Array | None = None  # int32 [B, A, N]: the last ones, if they are compared


def no_targets(model: JointModel, batch: int, room: int, decoding: Decoding) -> Targets:
    """Return room for so many tokens."""
    policy, hypotheses = decoding.policy, None
    if policy is not None and policy.compares_hypotheses:
        hypotheses = jnp.full((batch, policy.looks_back, room), NOTHING, jnp.int32)
    return Targets(
        prefix=init_prefix(model, batch, room, decoding),
        written=nothing_written(batch, room),
        hypotheses=hypotheses,
    )


def write_targets(
    context: Context, targets: Targets, known: Known, *, delay: jax.Array, history: History
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
    context: Context,
    prefix: Prefix,
    written: Written,
    before: jax.Array,
    known: Known,
    delay: jax.Array,
) -> Targets:
    """Commit as much of a whole hypothesis as the policy says; `before` [B, A, N] came earlier."""
    policy, ended = context.policy, known.progress.ended
    assert policy is not None
    given = (prefix, written, _as_if_all(known), delay)
    trial, whole = _hypothesise(context.without_policy(), *given, policy.beam)
    is_token = real(whole.count, whole.tokens.shape[1]) & (whole.tokens != EOS)
    every = jnp.concatenate([before, jnp.where(is_token, whole.tokens, NOTHING)[:, None]], 1)
    count = jnp.maximum(policy.commit(Hypotheses(units=every)), written.count).astype(jnp.int32)
    count = jnp.where(ended, whole.count, count)
    count = jnp.where(prefix.finished, written.count, count)
    finished = prefix.finished | (ended & trial.finished)
    return Targets(
        prefix=_cut(trial, whole, count, finished),
        written=_first(whole, count),
        hypotheses=every[:, 1:],
    )


def _hypothesise(
    context: Context, prefix: Prefix, written: Written, known: Known, delay: jax.Array, beam: int
) -> tuple[Prefix, Written]:
    """Return a whole hypothesis that begins with what was written: greedy, or a beam's best."""
    if beam == 1:
        return greedy_search(context, prefix, written, known, delay=delay)
    found = beam_search(context, known, Beam(size=beam), (prefix, written))
    new = jnp.arange(written.tokens.shape[1]) >= written.count[:, None]
    best = Written(
        tokens=found.tokens[:, 0],
        count=found.lengths[:, 0],
        reach=jnp.where(new, found.delays[:, 0], written.reach),
        delays=jnp.where(new, delay[:, None], written.delays),
    )
    return dataclasses.replace(prefix, finished=jnp.ones_like(prefix.finished)), best


def _as_if_all(known: Known) -> Known:
    """Return the source as if it had ended, so that nothing waits."""
    progress = dataclasses.replace(known.progress, ended=jnp.ones_like(known.progress.ended))
    return dataclasses.replace(known, progress=progress)


def _first(written: Written, count: jax.Array) -> Written:
    """Return the first `count` [B] tokens."""
    there = real(count, written.tokens.shape[1])
    return Written(
        tokens=written.tokens * there,
        count=count,
        reach=written.reach * there,
        delays=written.delays * there,
    )


def _cut(prefix: Prefix, written: Written, count: jax.Array, finished: jax.Array) -> Prefix:
    """Return the prefix after `count` [B] of these tokens; its past is the hypothesis's."""
    last = jnp.take_along_axis(written.tokens, jnp.maximum(count - 1, 0)[:, None], 1)[:, 0]
    return dataclasses.replace(
        prefix,
        position=count,
        token=jnp.where(count > 0, last, BOS),
        recent=recent_of(written.tokens, count, prefix.recent.shape[1]),
        finished=finished,
    )


def usual_history(policy: Policy | None, model: ModelConfig) -> History:
    """Return what becomes of targets when more has been heard, by default.

    A streaming encoder keeps its states, and a stream over it its targets.
    """
    if policy is None:
        return "recomputed"
    streams = model.speech is not None and model.speech.kind == "streaming"
    return "kept" if streams and policy.is_incremental else policy.history


@flax.struct.dataclass
class ReencodingState:
    """Streams between two READs."""

    targets: Targets
    reads: jax.Array  # int32 [B]


@dataclass(frozen=True, kw_only=True)
class _Reencoding:
    """The part that speech and text have in common: all that comes after the encoder."""

    model: JointModel
    decoding: Decoding = field(default_factory=Decoding)
    limits: StreamLimits = field(default_factory=StreamLimits)

    def init(self, batch: int) -> ReencodingState:
        """Return streams that have read nothing."""
        targets = no_targets(self.model, batch, self.limits.tokens, self.decoding)
        return ReencodingState(targets=targets, reads=jnp.zeros(batch, jnp.int32))

    def _write(
        self,
        params: StreamParams,
        state: ReencodingState,
        known: Known,
        delay: jax.Array,
        history: History,
    ) -> tuple[ReencodingState, Events]:
        context = Context(
            model=self.model,
            variables=params.variables,
            control=params.control,
            decoding=self.decoding.fixed(),
        )
        targets = write_targets(context, state.targets, known, delay=delay, history=history)
        events = Events(
            written=_after(targets.written, state.targets.written.count),
            finished=targets.prefix.finished,
            more=jnp.zeros_like(targets.prefix.finished),
        )
        return ReencodingState(targets=targets, reads=state.reads + 1), events


@dataclass(frozen=True, kw_only=True)
class ReencodingDecoder(_Reencoding):
    """The READ of one model of speech. Methods are pure, like those of `StreamingDecoder`."""

    features: Features = field(default_factory=Features)

    def params(
        self, variables: Any, statistics: Statistics, words: Words | None = None
    ) -> StreamParams:
        """Return what `read` takes first; `words` serve policies that count them."""
        check_policy(self.decoding.policy, self.model.config)
        control = control_of(self.decoding, self.model.config.monotonic, words)
        return StreamParams(variables=variables, statistics=statistics, control=control)

    def read(
        self,
        params: StreamParams,
        state: ReencodingState,
        samples: jax.Array,
        length: jax.Array,
        ended: jax.Array,
    ) -> tuple[ReencodingState, Events]:
        """Read the first `length` [B] of samples [B, N]; write what that allows."""
        assert params.statistics is not None
        features = features_of(samples, self.features, params.statistics)
        frames = frame_count(length, self.features.filterbank)
        known = encode_speech(
            *(self.model, params.variables, features, frames, ended),
            counting=counting_of(self.model.config, self.decoding, params.control),
            samples=length,
        )
        history = usual_history(self.decoding.policy, self.model.config)
        return self._write(params, state, known, length, history)


@dataclass(frozen=True, kw_only=True)
class ReencodingTextDecoder(_Reencoding):
    """The READ of one model of text. Of the limits, `states` are tokens."""

    def params(self, variables: Any, words: Words | None = None) -> StreamParams:
        """Return what `read` takes first; `words` serve policies that count them."""
        check_policy(self.decoding.policy, self.model.config, "text")
        control = control_of(self.decoding, self.model.config.monotonic, words)
        return StreamParams(variables=variables, statistics=None, control=control)

    def read(
        self,
        params: StreamParams,
        state: ReencodingState,
        tokens: jax.Array,
        length: jax.Array,
        ended: jax.Array,
    ) -> tuple[ReencodingState, Events]:
        """Read the first `length` [B] of tokens [B, L], end-of-sentence included if `ended`."""
        known = encode_text(self.model, params.variables, tokens, length, ended)
        known = dataclasses.replace(known, units=state.reads + 1)
        return self._write(params, state, known, length, "recomputed")


def padded_size(length: int, shortest: int = SHORTEST) -> int:
    """Return the next size that is compiled for so many samples or tokens."""
    size = shortest
    while size < length:
        size *= 2
    return size


def padded(source: np.ndarray, shortest: int = SHORTEST) -> np.ndarray:
    """Return samples or tokens [N], and zeros up to the next size, [1, S]."""
    return np.pad(source, (0, padded_size(len(source), shortest) - len(source)))[None]


def _after(written: Written, before: jax.Array) -> Written:
    """Return what was written since there were `before` [B] tokens."""
    size = written.tokens.shape[1]
    place = before[:, None] + jnp.arange(size)

    def shifted(values: jax.Array) -> jax.Array:
        return jnp.take_along_axis(values, jnp.minimum(place, size - 1), 1)

    return dataclasses.replace(
        written,
        tokens=shifted(written.tokens),
        reach=shifted(written.reach),
        delays=shifted(written.delays),
        count=written.count - before,
    )
