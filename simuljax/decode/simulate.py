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
from typing import Any, get_args

import flax.struct
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from simuljax.audio import Filterbank, frame_count
from simuljax.config.decoding import Decoding, check_policy
from simuljax.decode.policies import History
from simuljax.decode.reencoding import Targets, no_targets, usual_history, write_targets
from simuljax.decode.state import (
    Context,
    Known,
    control_of,
    counting_of,
    encode_speech,
    encode_text,
)
from simuljax.models.joint import JointModel
from simuljax.nn.subsampling import state_count
from simuljax.text import Words

Listen = Callable[[jax.Array, jax.Array], Known]


@dataclass(frozen=True, kw_only=True)
class Listening:
    """The size of a READ, and the treatment of targets written before it.

    The first READ may be of another size. None: as the others; the history, as the policy has it.
    """

    read_ms: int = 280
    first_ms: int | None = None
    history: History | None = None
    filterbank: Filterbank = field(default_factory=Filterbank)

    def __post_init__(self) -> None:
        if self.history is not None and self.history not in get_args(History):
            raise ValueError(f"history is {self.history!r}; choose one of {get_args(History)}")
        if min(self.read_ms, self.first_ms or self.read_ms) < 1:
            raise ValueError(f"read_ms is {self.read_ms}; a READ takes at least 1 ms")

    @property
    def samples(self) -> tuple[int, int]:
        """Return the samples of the first READ, and of every other."""
        rate = self.filterbank.rate
        return (self.first_ms or self.read_ms) * rate // 1000, self.read_ms * rate // 1000

    def fixed(self, history: History) -> "Listening":
        """Return the settings that are compiled in; a history that is None is this one."""
        return replace(self, read_ms=1, first_ms=None, history=self.history or history)


def usual_listening(
    decoding: Decoding, read_ms: int | None = None, usual_ms: int = 280, **how: Any
) -> Listening:
    """Return READs of `read_ms`, or as the policy wants them, or of `usual_ms`."""
    policy = decoding.policy
    read_ms = read_ms or (policy.read_ms if policy else None) or usual_ms
    return Listening(read_ms=read_ms, first_ms=policy.first_read_ms if policy else None, **how)


@flax.struct.dataclass
class Simulation:
    """Tokens, and how much of the source was there when each was committed."""

    tokens: jax.Array  # int32 [B, N], 0 beyond the lengths
    lengths: jax.Array  # int32 [B]; end-of-sentence counts
    delays: jax.Array  # float32 [B, N]: ms of speech, tokens of text, or READs, that had been heard
    reach: jax.Array  # int32 [B, N]: encoder states that the furthest head attends to


@flax.struct.dataclass
class _Stream:
    reads: jax.Array  # int32 []
    targets: Targets


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
    `words` policies that count them. Without `listening`, READs are as the policy wants them.
    """
    decoding = decoding or Decoding()
    listening = listening or usual_listening(decoding)
    check_policy(decoding.policy, model.config)
    return _speech(
        model,
        decoding.fixed(),
        listening.fixed(usual_history(decoding.policy, model.config)),
        variables,
        features,
        jnp.asarray(samples, jnp.int32),
        labels,
        jnp.array(listening.samples, jnp.int32),
        control_of(decoding, model.config.monotonic, words),
    )


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
    decoding, listening = decoding or Decoding(), Listening(history=history)
    check_policy(decoding.policy, model.config, "text")
    control, lengths = (
        control_of(decoding, model.config.monotonic, words),
        jnp.asarray(lengths, jnp.int32),
    )
    return _text(model, decoding.fixed(), listening, variables, tokens, lengths, units, control)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _speech(model, decoding, listening, variables, features, samples, labels, sizes, control):
    bank, counting = listening.filterbank, counting_of(model.config, decoding, control)

    def listen(heard: jax.Array, ended: jax.Array) -> Known:
        given = (features, frame_count(heard, bank), ended, labels)
        return encode_speech(model, variables, *given, counting=counting, samples=heard)

    room = decoding.limit.of(state_count(features.shape[1]))
    targets = no_targets(model, len(samples), room, decoding)
    context = Context(model=model, variables=variables, control=control, decoding=decoding)
    end = _run(context, listening.history, listen, targets, samples, sizes)
    return _simulation(end, 1000 / bank.rate)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _text(model, decoding, listening, variables, tokens, lengths, units, control) -> Simulation:
    def listen(reads: jax.Array, ended: jax.Array) -> Known:
        heard = reads
        if units is not None:
            place = jnp.minimum(heard - 1, units.shape[1] - 1)[:, None]
            heard = jnp.where(ended, lengths, jnp.take_along_axis(units, place, 1)[:, 0])
        return replace(encode_text(model, variables, tokens, heard, ended), units=reads)

    total = lengths if units is None else (units < lengths[:, None]).sum(1) + 1
    targets = no_targets(model, len(tokens), decoding.limit.of(tokens.shape[1]), decoding)
    sizes = jnp.ones(2, jnp.int32)
    context = Context(model=model, variables=variables, control=control, decoding=decoding)
    end = _run(context, listening.history, listen, targets, total, sizes)
    return _simulation(end, 1.0)


def _run(
    context: Context,
    history: History,
    listen: Listen,
    targets: Targets,
    total: jax.Array,
    sizes: jax.Array,
) -> Targets:
    """Read and write until every row is finished.

    `total` [B] is how long each source is, `sizes` [2] are those of the first READ and the others.
    """

    def read(stream: _Stream) -> _Stream:
        heard = jnp.minimum(sizes[0] + stream.reads * sizes[1], total)
        known = listen(heard, heard >= total)
        targets = write_targets(context, stream.targets, known, delay=heard, history=history)
        return _Stream(reads=stream.reads + 1, targets=targets)

    start = _Stream(reads=jnp.int32(0), targets=targets)
    end = jax.lax.while_loop(lambda stream: ~stream.targets.prefix.finished.all(), read, start)
    return end.targets


def _simulation(targets: Targets, scale: float) -> Simulation:
    written = targets.written
    return Simulation(
        tokens=written.tokens,
        lengths=written.count,
        delays=written.delays * jnp.float32(scale),
        reach=written.reach,
    )
