"""Monotonic multihead attention (Ma et al. 2020): each head decides how far to read.

In training the alignment runs over W decision points, not over K states: states without a decision
have p = 0 and pass the probability on, so leaving them out changes nothing but the cost. `place`
brings an alignment back onto the states, where soft attention needs it.

In decoding, p is rounded to 0 or 1. For target i a head stands on the first decision that it
accepts, from where it stood for the target before:

    t[i] = min {j >= t[i-1] : accepted[i, j]},  t[-1] = 0,  or the number of decisions if none is

A head at that number has rejected all there is, and goes on from there once there is more. If there
will be no more, it attends as from the last decision, which is where training leaves its mass.
"""

import dataclasses

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jax import Array

from simuljax.config.model import Monotonic, Width
from simuljax.nn.attention import Heads, View, attend_view
from simuljax.nn.layers import dense, real
from simuljax.ops import (
    expected_delays,
    expected_soft_attention,
    monotonic_energy,
    pool_windows,
    preserved_alignment,
    selection_probability,
    wait_k_probability,
    window_ends,
    windowed_soft_attention,
)


@flax.struct.dataclass
class Decisions:
    """The decision points of a batch, in order."""

    keys: Array  # [B, W, D]: what the decision looks at
    ends: Array  # int32 [B, W]: the state it stands on, from 0
    count: Array  # int32 [B]
    gate: Array | None = None  # [B, W]: the chance that there is a decision at all
    step: int | None = flax.struct.field(pytree_node=False, default=None)  # of fixed windows
    everywhere: bool = flax.struct.field(pytree_node=False, default=False)  # W = K, at every state


def every_state(states: Array, lengths: Array, gate: Array | None = None) -> Decisions:
    """Decide at every state: text, or speech whose triggers are learned (`gate`)."""
    ends = jnp.broadcast_to(jnp.arange(states.shape[1]), states.shape[:2])
    return Decisions(keys=states, ends=ends, count=lengths, gate=gate, everywhere=True)


def fixed_windows(states: Array, lengths: Array, step: int, pooling: str) -> Decisions:
    """Decide every `step` states, on the pooled states of the window (Ma et al. 2020)."""
    keys = pool_windows(states, lengths, step, kind=pooling)
    ends = window_ends(lengths, states.shape[1], step)
    return Decisions(keys=keys, ends=ends, count=-(-lengths // step), step=step)


def at_triggers(states: Array, triggers: Array, pooling: str) -> Decisions:
    """Decide at every trigger [B, K], on the states pooled since the previous one."""
    size = states.shape[1]
    count = triggers.sum(-1)
    ends = jnp.argsort(~triggers, axis=-1, stable=True).astype(jnp.int32)
    keys = jnp.take_along_axis(states, ends[..., None], axis=1)
    if pooling == "average":
        # State k belongs to the window of the first trigger at or after it.
        window = jnp.cumsum(triggers, -1) - triggers
        member = window[:, None, :] == jnp.arange(size)[:, None]
        last = jnp.max(jnp.where(triggers, jnp.arange(size), -1), -1)[:, None, None]
        member &= jnp.arange(size) <= last
        share = member / jnp.maximum(member.sum(-1, keepdims=True), 1)
        keys = jnp.einsum("bwk,bkd->bwd", share.astype(states.dtype), states)
    return Decisions(keys=keys, ends=ends, count=count)


def word_points(
    states: Array, lengths: Array, words: Array, pooling: str, ended: Array | None = None
) -> Decisions:
    """Decide where the word count [B, K] grows, and at the last state of a source that has ended.

    `ended` [B] None: everything has, as in training.
    """
    risen = jnp.diff(words, axis=1, prepend=0) > 0
    last = jnp.arange(states.shape[1]) == lengths[:, None] - 1
    last = last if ended is None else last & ended[:, None]
    return at_triggers(states, risen | last, pooling)


def place(alpha: Array, decisions: Decisions, size: int) -> Array:
    """Map [B, H, T, W] on decision points to [B, H, T, size] on states."""
    if decisions.everywhere:
        return alpha
    stands = decisions.ends[..., None] == jnp.arange(size)
    stands &= real(decisions.count, decisions.ends.shape[1])[..., None]
    return jnp.einsum(
        "bhtw,bwk->bhtk", alpha, stands.astype(alpha.dtype), precision=jax.lax.Precision.HIGHEST
    )


@flax.struct.dataclass
class Memory:
    """The source as the heads of a layer see it, projected once and not once per target."""

    value: Array  # [B, K, H, d]
    key: Array | None  # the same; None for heads that attend to one state
    decide: Array | None  # [B, W, H, d]; None where no decision is learned


@flax.struct.dataclass
class Selection:
    """The decision rule of heads. Numbers are arrays, so that another value compiles nothing."""

    energy: Array  # float32 []: a decision is accepted from this energy on
    k: Array  # int32 []: the wait of heads that count decisions
    everything: bool = flax.struct.field(pytree_node=False, default=False)
    """Heads that count decisions attend to all there is: a policy outside the model decides."""
    weights: bool = flax.struct.field(pytree_node=False, default=False)
    """`Look.weights` are computed and kept."""


@flax.struct.dataclass
class SourceProgress:
    """The part of the source read so far, the same for all layers."""

    lengths: Array  # int32 [B]: states
    ends: Array  # int32 [B, W]: the state that each decision stands on
    count: Array  # int32 [B]: decisions that can be taken by now
    ended: Array  # bool [B]: nothing will follow
    exists: Array | None = None  # bool [B, W]: which decisions there are, where that is learned


@flax.struct.dataclass
class Look:
    """Where heads stand for each of T targets, and whether that will do."""

    pointer: Array  # int32 [B, H, T]: the decision, or the number of them for one to come
    reach: Array  # int32 [B, H, T]: the last state attended to; -1 if there is none
    waits: Array  # bool [B, H, T]: for a decision that may still come
    p: Array  # float32 [B, H, T]: of writing, at the decision it stands on
    weights: Array | None = None  # float32 [B, H, T, K]: on the states, if selected


def progress_of(decisions: Decisions, lengths: Array, ended: Array) -> SourceProgress:
    """Return the decisions possible by now; a window that is not full waits for the end."""
    count = decisions.count
    if decisions.step is not None:
        count = jnp.where(ended, count, lengths // decisions.step)
    exists = None if decisions.gate is None else decisions.gate >= 0.5
    return SourceProgress(
        lengths=lengths, ends=decisions.ends, count=count, ended=ended, exists=exists
    )


def look_ahead(energy: Array, start: Array, progress: SourceProgress, selection: Selection) -> Look:
    """Move every head [B, H] to the first decision it accepts; energies [B, H, T, W]."""
    accepted = (energy >= selection.energy) & real(progress.count, energy.shape[-1])[:, None, None]
    if progress.exists is not None:
        accepted &= progress.exists[:, None, None]
    pointer = first_accepted(accepted, start, progress.count)
    stands = _standing(pointer, progress)
    at = jnp.take_along_axis(energy, jnp.maximum(stands, 0)[..., None], -1)[..., 0]
    p = jnp.where(stands >= 0, jax.nn.sigmoid(at), 0)
    if progress.exists is not None:
        p = p * _per_head(progress.exists, stands)
    return _look(pointer, progress, p)


def look_wait_k(target: Array, heads: int, progress: SourceProgress, wait: Array) -> Look:
    """Put target i [B, T] on decision i + wait - 1, which may not be there yet."""
    pointer = jnp.minimum(target + wait - 1, progress.count[:, None])
    pointer = jnp.broadcast_to(pointer[:, None], (target.shape[0], heads, target.shape[1]))
    return _look(pointer, progress, (pointer < progress.count[:, None, None]).astype(jnp.float32))


def look_everywhere(shape: tuple[int, ...], progress: SourceProgress) -> Look:
    """Let every head, of [B, H, T], wait for the end, and then attend to everything."""

    def spread(x: Array) -> Array:
        return jnp.broadcast_to(x[:, None, None], shape)

    return Look(
        pointer=spread(progress.count),
        reach=spread(progress.lengths - 1),
        waits=spread(~progress.ended),
        p=spread(progress.ended.astype(jnp.float32)),
    )


def first_accepted(accepted: Array, start: Array, count: Array) -> Array:
    """Return t [B, H, T] above, with t[-1] = start [B, H]; accepted [B, H, T, W]."""
    place = jnp.arange(accepted.shape[-1], dtype=jnp.int32)

    def row(before: Array, accepted: Array) -> tuple[Array, Array]:
        open_to = accepted & (place >= before[..., None])
        first = jnp.argmax(open_to, -1).astype(jnp.int32)
        pointer = jnp.where(open_to.any(-1), first, count[:, None])
        return pointer, pointer

    _, pointers = jax.lax.scan(row, start, jnp.moveaxis(accepted, 2, 0))
    return jnp.moveaxis(pointers, 0, 2)


def attend_within(
    query: Array | None, memory: Memory, reach: Array, width: int | None
) -> tuple[Array, Array]:
    """Return softmax(q k^T / sqrt(d)) v over `width` states (None: all) up to reach [B, H, T].

    Without a query all of them count alike. The result is [B, T, H, d], zeros where reach is -1,
    and the weights [B, H, T, K].
    """
    state = jnp.arange(memory.value.shape[1])
    mask = state <= reach[..., None]
    if width is not None:
        mask &= state > reach[..., None] - width
    energy = jnp.zeros(mask.shape, jnp.float32)
    if query is not None:
        assert memory.key is not None
        dots = jnp.einsum("bthd,bkhd->bhtk", query, memory.key, preferred_element_type=jnp.float32)
        energy = dots * query.shape[-1] ** -0.5
    weight = jax.nn.softmax(jnp.where(mask, energy, -1e30)) * mask
    return jnp.einsum("bhtk,bkhd->bthd", weight.astype(memory.value.dtype), memory.value), weight


def _look(pointer: Array, progress: SourceProgress, p: Array) -> Look:
    stands = _standing(pointer, progress)
    reach = jnp.where(stands >= 0, _per_head(progress.ends, stands), -1)
    waits = (pointer >= progress.count[:, None, None]) & ~progress.ended[:, None, None]
    return Look(pointer=pointer, reach=reach, waits=waits, p=p)


def _standing(pointer: Array, progress: SourceProgress) -> Array:
    """Return the decision to attend from: the last for a head beyond it; -1 if there is none."""
    return jnp.minimum(pointer, progress.count[:, None, None] - 1)


def _per_head(x: Array, decision: Array) -> Array:
    """Return x [B, W] at decisions [B, H, T]."""
    batch, heads, targets = decision.shape
    place = jnp.maximum(decision, 0).reshape(batch, heads * targets)
    return jnp.take_along_axis(x, place, 1).reshape(decision.shape)


@flax.struct.dataclass
class Source:
    """The source that the decoder attends to."""

    states: Array  # [B, K, D]
    lengths: Array  # int32 [B]
    decisions: Decisions
    k: Array  # int32 []: of wait-k
    written: Array | None = None  # int32 [B, T]: words before each target's, if these count


@flax.struct.dataclass
class Reading:
    """Alignment, delays and energies of a layer, for losses and figures."""

    energy: Array | None  # [B, H, T, W], noise-free; None where nothing is learned
    delays: Array  # [B, H, T], in states from 1
    alpha: Array | None  # [B, H, T, W]
    bias: Array | None = None  # []: included in the energy


def whole_source(shape: tuple[int, ...], source: Source) -> Reading:
    """Return the reading of heads [..., B, H, T] that attend to everything."""
    delays = jnp.broadcast_to(source.lengths[:, None, None].astype(jnp.float32), shape)
    return Reading(energy=None, delays=delays, alpha=None)


class MonotonicAttention(nn.Module):
    """Cross-attention with an expected alignment."""

    width: Width
    monotonic: Monotonic

    def setup(self) -> None:
        self.heads = Heads(self.width)
        if self.monotonic.policy == "learned":
            size = self.width.model
            self.decide_query, self.decide_key = (dense(size, self.width) for _ in range(2))
            self.bias = self.param("bias", nn.initializers.constant(self.monotonic.bias), ())

    def __call__(self, x: Array, source: Source, *, train: bool) -> tuple[Array, Reading]:
        if self.monotonic.policy == "offline":
            return self._offline(x, source)
        energy, alpha = self._alignment(x, source, train)
        beta = self._soft(x, source, alpha)
        value = self.heads.split(self.heads.value(source.states))
        out = jnp.einsum("bhtk,bkhd->bthd", beta.astype(value.dtype), value)
        delays = expected_delays(alpha, source.decisions.ends + 1)
        bias = self.bias if self.monotonic.policy == "learned" else None
        reading = Reading(energy=energy, delays=delays, alpha=alpha, bias=bias)
        return self.heads.merge(out), reading

    def _offline(self, x: Array, source: Source) -> tuple[Array, Reading]:
        (batch, targets, _), heads = x.shape, self.heads
        key, value = (heads.split(f(source.states)) for f in (heads.key, heads.value))
        out = attend_view(heads.split(heads.query(x)), key, value, View(lengths=source.lengths))
        return heads.merge(out), whole_source((batch, self.width.heads, targets), source)

    def _alignment(self, x, source: Source, train: bool) -> tuple[Array | None, Array]:
        points = source.decisions
        if self.monotonic.policy == "wait_k":
            energy, p = None, self._wait(x, source)
        else:
            energy = self.energy(x, points.keys)
            noise = self.make_rng("noise") if train and self.monotonic.noise else None
            p = selection_probability(energy, points.count, key=noise, noise=self.monotonic.noise)
            if points.gate is not None:
                p = p * points.gate[:, None, None]
        with jax.named_scope("alignment"):
            return energy, preserved_alignment(p, points.count, method=self.monotonic.method)

    def energy(self, x: Array, keys: Array) -> Array:
        """Return energies [B, H, T, W] of targets [B, T, D] at decision points [B, W, D]."""
        split = self.heads.split
        query, key = split(self.decide_query(x)), split(self.decide_key(keys))
        return monotonic_energy(query.swapaxes(1, 2), key.swapaxes(1, 2), self.bias)

    def _wait(self, x, source: Source) -> Array:
        (batch, targets, _), points = x.shape, source.decisions.ends.shape[1]
        shape = (batch, self.width.heads, targets, points)
        p = wait_k_probability(source.k, targets, points, convention=self.monotonic.convention)
        if source.written is not None:
            p = p[source.written][:, None]  # of as many targets as there are words
        return jnp.broadcast_to(p, shape)

    def _soft(self, x: Array, source: Source, alpha: Array) -> Array:
        """Return beta [B, H, T, K] on states, from an alignment with decision points."""
        kind, points = self.monotonic.attention, source.decisions
        if kind == "hard":
            return place(alpha, points, source.states.shape[1])
        split, heads = self.heads.split, self.heads
        query, key = split(heads.query(x)), split(heads.key(source.states))
        u = monotonic_energy(query.swapaxes(1, 2), key.swapaxes(1, 2))
        if kind == "lookback" and points.step is not None:
            return windowed_soft_attention(alpha, u, source.lengths, step=points.step)
        chunk = self.monotonic.chunk if kind == "chunkwise" else None
        placed = place(alpha, points, source.states.shape[1])
        return expected_soft_attention(placed, u, source.lengths, chunk=chunk)

    def remember(self, states: Array, keys: Array) -> Memory:
        """Project states [B, K, D] and decision inputs [B, W, D] for `step`."""
        heads, split = self.heads, self.heads.split
        learned = self.monotonic.policy == "learned"
        return Memory(
            value=split(heads.value(states)),
            key=split(heads.key(states)) if self._span != 1 else None,
            decide=split(self.decide_key(keys)) if learned else None,
        )

    def step(
        self,
        x: Array,
        memory: Memory,
        progress: SourceProgress,
        selection: Selection,
        *,
        target: Array,
        start: Array,
    ) -> tuple[Array, Look]:
        """Decode T targets [B, T, D] with hard decisions, from the heads' positions [B, H].

        `target` [B, T] numbers them from 0.
        """
        look = self._look(x, memory, progress, selection, target, start)
        query = None if self._span == 1 else self.heads.split(self.heads.query(x))
        read, weights = attend_within(query, memory, look.reach, self._span)
        look = dataclasses.replace(look, weights=weights) if selection.weights else look
        return self.heads.merge(read), look

    def _look(
        self, x, memory: Memory, progress: SourceProgress, selection: Selection, target, start
    ) -> Look:
        match self.monotonic.policy:
            case "offline":
                return look_everywhere((*start.shape, x.shape[1]), progress)
            case "wait_k" if selection.everything or self.monotonic.counts == "words":
                return look_everywhere((*start.shape, x.shape[1]), progress)
            case "wait_k":
                wait = selection.k + (self.monotonic.convention == "papi")
                return look_wait_k(target, self.width.heads, progress, wait)
            case _:
                assert memory.decide is not None
                query = self.heads.split(self.decide_query(x))
                points = memory.decide.swapaxes(1, 2)
                energy = monotonic_energy(query.swapaxes(1, 2), points, self.bias)
                return look_ahead(energy, start, progress, selection)

    @property
    def _span(self) -> int | None:
        """Return the number of states a head attends to; None: all up to its position."""
        if self.monotonic.policy == "offline":
            return None
        spans = {"hard": 1, "lookback": None, "chunkwise": self.monotonic.chunk}
        return spans[self.monotonic.attention]
