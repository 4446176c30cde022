"""Monotonic multihead attention (Ma et al. 2020): each head decides how far to read."""

import dataclasses

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from simuljax.config.model import Monotonic, Width
from simuljax.nn.attention import Heads, View, attend_view
from simuljax.nn.decisions import Decisions, place
from simuljax.nn.layers import dense
from simuljax.nn.pointers import (
    Look,
    Memory,
    Selection,
    SourceProgress,
    attend_within,
    look_ahead,
    look_everywhere,
    look_wait_k,
)
from simuljax.ops import (
    expected_delays,
    expected_soft_attention,
    monotonic_energy,
    preserved_alignment,
    selection_probability,
    wait_k_probability,
    windowed_soft_attention,
)


@flax.struct.dataclass
class Source:
    """The source that the decoder attends to."""

    states: jax.Array  # [B, K, D]
    lengths: jax.Array  # int32 [B]
    decisions: Decisions
    k: jax.Array  # int32 []: of wait-k
    written: jax.Array | None = None  # int32 [B, T]: words before each target's, if these count


@flax.struct.dataclass
class Reading:
    """Alignment, delays and energies of a layer, for losses and figures."""

    energy: jax.Array | None  # [B, H, T, W], noise-free; None where nothing is learnt
    delays: jax.Array  # [B, H, T], in states from 1
    alpha: jax.Array | None  # [B, H, T, W]
    bias: jax.Array | None = None  # []: included in the energy


class MonotonicAttention(nn.Module):
    """Cross-attention with an expected alignment."""

    width: Width
    monotonic: Monotonic

    def setup(self) -> None:
        self.heads = Heads(self.width)
        if self.monotonic.policy == "learnt":
            size = self.width.model
            self.decide_query, self.decide_key = (dense(size, self.width) for _ in range(2))
            self.bias = self.param("bias", nn.initializers.constant(self.monotonic.bias), ())

    def __call__(self, x: jax.Array, source: Source, *, train: bool) -> tuple[jax.Array, Reading]:
        if self.monotonic.policy == "offline":
            return self._offline(x, source)
        energy, alpha = self._alignment(x, source, train)
        beta = self._soft(x, source, alpha)
        value = self.heads.split(self.heads.value(source.states))
        out = jnp.einsum("bhtk,bkhd->bthd", beta.astype(value.dtype), value)
        delays = expected_delays(alpha, source.decisions.ends + 1)
        bias = self.bias if self.monotonic.policy == "learnt" else None
        reading = Reading(energy=energy, delays=delays, alpha=alpha, bias=bias)
        return self.heads.merge(out), reading

    def _offline(self, x: jax.Array, source: Source) -> tuple[jax.Array, Reading]:
        (batch, targets, _), heads = x.shape, self.heads
        key, value = (heads.split(f(source.states)) for f in (heads.key, heads.value))
        out = attend_view(heads.split(heads.query(x)), key, value, View(lengths=source.lengths))
        everything = source.lengths[:, None, None].astype(jnp.float32)
        delays = jnp.broadcast_to(everything, (batch, self.width.heads, targets))
        return heads.merge(out), Reading(energy=None, delays=delays, alpha=None)

    def _alignment(self, x, source: Source, train: bool) -> tuple[jax.Array | None, jax.Array]:
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

    def energy(self, x: jax.Array, keys: jax.Array) -> jax.Array:
        """Return energies [B, H, T, W] of targets [B, T, D] at decision points [B, W, D]."""
        split = self.heads.split
        query, key = split(self.decide_query(x)), split(self.decide_key(keys))
        return monotonic_energy(query.swapaxes(1, 2), key.swapaxes(1, 2), self.bias)

    def _wait(self, x, source: Source) -> jax.Array:
        (batch, targets, _), points = x.shape, source.decisions.ends.shape[1]
        shape = (batch, self.width.heads, targets, points)
        p = wait_k_probability(source.k, targets, points, convention=self.monotonic.convention)
        if source.written is not None:
            p = p[source.written][:, None]  # of as many targets as there are words
        return jnp.broadcast_to(p, shape)

    def _soft(self, x: jax.Array, source: Source, alpha: jax.Array) -> jax.Array:
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

    def remember(self, states: jax.Array, keys: jax.Array) -> Memory:
        """Project states [B, K, D] and decision inputs [B, W, D] for `step`."""
        heads, split = self.heads, self.heads.split
        learnt = self.monotonic.policy == "learnt"
        return Memory(
            value=split(heads.value(states)),
            key=split(heads.key(states)) if self._span != 1 else None,
            decide=split(self.decide_key(keys)) if learnt else None,
        )

    def step(
        self,
        x: jax.Array,
        memory: Memory,
        progress: SourceProgress,
        selection: Selection,
        *,
        target: jax.Array,
        start: jax.Array,
    ) -> tuple[jax.Array, Look]:
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
        return {"hard": 1, "lookback": None, "chunkwise": self.monotonic.chunk}[
            self.monotonic.attention
        ]
