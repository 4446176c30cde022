"""What a stream would write, and when, of sources that are there whole: a batch at a time.

With every READ more of the source is heard, and what has been heard is encoded from scratch: the
only way for an encoder that looks at all of it. The reference for every decision is the training-
time forward pass on exactly what has been heard, so the targets written before are passed through
the decoder anew too (history `recomputed`). With `kept` they stay as they were when written, which
is cheaper, and the same for encoders whose states do not change any more.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import flax.struct
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from simuljax.audio import Filterbank, frame_count
from simuljax.decode.listen import hear_speech, hear_text
from simuljax.decode.options import Decoding
from simuljax.decode.prefix import Known, Prefix, init_prefix, replay
from simuljax.decode.writing import Written, nothing_written, write_on
from simuljax.models.translator import Translator
from simuljax.nn.pointers import Rule
from simuljax.nn.subsampling import state_count

History = Literal["recomputed", "kept"]
Listen = Callable[[jax.Array, jax.Array], Known]


@dataclass(frozen=True, kw_only=True)
class Listening:
    """How much speech a READ is, and what becomes of targets written before it."""

    read_ms: int = 280
    history: History = "recomputed"
    filterbank: Filterbank = field(default_factory=Filterbank)

    def __post_init__(self) -> None:
        if self.history not in get_args(History):
            raise ValueError(f"history is {self.history!r}; choose one of {get_args(History)}")
        if self.read_ms < 1:
            raise ValueError(f"read_ms is {self.read_ms}; a READ takes at least 1 ms")

    @property
    def samples(self) -> int:
        """Of a READ."""
        return self.read_ms * self.filterbank.rate // 1000

    def fixed(self) -> "Listening":
        """What is compiled in."""
        return replace(self, read_ms=1)


@flax.struct.dataclass
class Simulation:
    """Tokens, and what had been heard and what was attended to when each was committed."""

    tokens: jax.Array  # int32 [B, N], 0 beyond the lengths
    lengths: jax.Array  # int32 [B]; end-of-sentence counts
    delays: jax.Array  # float32 [B, N]: ms of speech, tokens of text, or READs, that had been heard
    reach: jax.Array  # int32 [B, N]: encoder states that the furthest head attends to


@flax.struct.dataclass
class _Stream:
    reads: jax.Array  # int32 []
    prefix: Prefix
    written: Written


def simulate_speech(
    model: Translator,
    variables: Any,
    features: ArrayLike,
    samples: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    decoding: Decoding | None = None,
    listening: Listening | None = None,
) -> Simulation:
    """Streams of `samples` [B] samples each, whose normalised features [B, F, D] are given.

    `variables` are those of `model.apply`; `labels` [B, F] serve models that decide at words.
    """
    decoding, listening = decoding or Decoding(), listening or Listening()
    return _speech(
        model,
        decoding.fixed(),
        listening.fixed(),
        variables,
        features,
        jnp.asarray(samples, jnp.int32),
        labels,
        jnp.int32(listening.samples),
        decoding.rule(model.config.monotonic),
    )


def simulate_text(
    model: Translator,
    variables: Any,
    tokens: ArrayLike,
    lengths: ArrayLike,
    units: ArrayLike | None = None,
    *,
    decoding: Decoding | None = None,
    history: History = "recomputed",
) -> Simulation:
    """Transcripts [B, L] that arrive one token a READ, end-of-sentence included.

    With `units` [B, R], the tokens that are there after each READ, a READ may be a whole word
    (`simuljax.text.word_pieces`); the READ that follows them brings the end-of-sentence. Delays
    then count READs.
    """
    decoding, listening = decoding or Decoding(), Listening(history=history)
    rule, lengths = decoding.rule(model.config.monotonic), jnp.asarray(lengths, jnp.int32)
    return _text(model, decoding.fixed(), listening, variables, tokens, lengths, units, rule)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _speech(model, decoding, listening, variables, features, samples, labels, unit, rule):
    bank = listening.filterbank

    def listen(heard: jax.Array, ended: jax.Array) -> Known:
        frames = frame_count(heard, bank)
        return hear_speech(model, variables, features, frames, ended, labels)

    room = decoding.limit.of(state_count(features.shape[1]))
    start = _start(model, decoding, len(samples), room)
    end = _run(model, decoding, listening, variables, listen, start, samples, unit, rule)
    return _simulation(end, 1000 / bank.rate)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _text(model, decoding, listening, variables, tokens, lengths, units, rule) -> Simulation:
    def listen(heard: jax.Array, ended: jax.Array) -> Known:
        if units is not None:
            place = jnp.minimum(heard - 1, units.shape[1] - 1)[:, None]
            heard = jnp.where(ended, lengths, jnp.take_along_axis(units, place, 1)[:, 0])
        return hear_text(model, variables, tokens, heard, ended)

    total = lengths if units is None else (units < lengths[:, None]).sum(1) + 1
    start = _start(model, decoding, len(tokens), decoding.limit.of(tokens.shape[1]))
    end = _run(model, decoding, listening, variables, listen, start, total, 1, rule)
    return _simulation(end, 1.0)


def _start(model: Translator, decoding: Decoding, batch: int, room: int) -> _Stream:
    return _Stream(
        reads=jnp.int32(0),
        prefix=init_prefix(model, batch, room, decoding),
        written=nothing_written(batch, room),
    )


def _run(
    model: Translator,
    decoding: Decoding,
    listening: Listening,
    variables: Any,
    listen: Listen,
    start: _Stream,
    total: jax.Array,
    unit: jax.Array | int,
    rule: Rule,
) -> _Stream:
    """READ, then write, until every row is finished; `total` [B] are units of the source."""

    def read(stream: _Stream) -> _Stream:
        heard = jnp.minimum((stream.reads + 1) * unit, total)
        known, prefix = listen(heard, heard >= total), stream.prefix
        if listening.history == "recomputed":
            prefix = replay(model, variables, prefix, stream.written.tokens, known, rule)
        prefix, written = write_on(
            model,
            variables,
            prefix,
            stream.written,
            known,
            heard=heard,
            rule=rule,
            decoding=decoding,
        )
        return _Stream(reads=stream.reads + 1, prefix=prefix, written=written)

    return jax.lax.while_loop(lambda stream: ~stream.prefix.finished.all(), read, start)


def _simulation(stream: _Stream, scale: float) -> Simulation:
    written = stream.written
    return Simulation(
        tokens=written.tokens,
        lengths=written.count,
        delays=written.heard * jnp.float32(scale),
        reach=written.reach,
    )
