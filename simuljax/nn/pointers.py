"""Hard decisions: where each head stands among the decision points, and what it then attends to.

What training does in expectation is done here with p rounded to 0 or 1. For target i a head stands
on the first decision that it accepts, from where it stood for the target before:

    t[i] = min {j >= t[i-1] : accepted[i, j]},  t[-1] = 0,  or the number of decisions if none is

A head at that number has rejected all there is, and goes on from there once there is more. If there
will be no more, it attends as from the last decision, which is where training leaves its mass.
"""

import flax.struct
import jax
import jax.numpy as jnp

from simuljax.nn.decisions import Decisions
from simuljax.nn.layers import real


@flax.struct.dataclass
class Memory:
    """The source as the heads of a layer see it, projected once and not once per target."""

    value: jax.Array  # [B, K, H, d]
    key: jax.Array | None  # the same; None for heads that attend to one state
    decide: jax.Array | None  # [B, W, H, d]; None where no decision is learnt


@flax.struct.dataclass
class Selection:
    """The decision rule of heads. Numbers are arrays, so that another value compiles nothing."""

    energy: jax.Array  # float32 []: a decision is accepted from this energy on
    k: jax.Array  # int32 []: the wait of heads that count decisions
    everything: bool = flax.struct.field(pytree_node=False, default=False)
    """Heads that count decisions attend to all there is: a policy outside the model decides."""
    weights: bool = flax.struct.field(pytree_node=False, default=False)
    """`Look.weights` are computed and kept."""


@flax.struct.dataclass
class SourceProgress:
    """The part of the source read so far, the same for all layers."""

    lengths: jax.Array  # int32 [B]: states
    ends: jax.Array  # int32 [B, W]: the state that each decision stands on
    count: jax.Array  # int32 [B]: decisions that can be taken by now
    ended: jax.Array  # bool [B]: nothing will follow
    exists: jax.Array | None = None  # bool [B, W]: which decisions there are, where that is learnt


@flax.struct.dataclass
class Look:
    """Where heads stand for each of T targets, and whether that will do."""

    pointer: jax.Array  # int32 [B, H, T]: the decision, or the number of them for one to come
    reach: jax.Array  # int32 [B, H, T]: the last state attended to; -1 if there is none
    waits: jax.Array  # bool [B, H, T]: for a decision that may still come
    p: jax.Array  # float32 [B, H, T]: of writing, at the decision it stands on
    weights: jax.Array | None = None  # float32 [B, H, T, K]: on the states, if selected


def progress_of(decisions: Decisions, lengths: jax.Array, ended: jax.Array) -> SourceProgress:
    """Return the decisions possible by now; a window that is not full waits for the end."""
    count = decisions.count
    if decisions.step is not None:
        count = jnp.where(ended, count, lengths // decisions.step)
    exists = None if decisions.gate is None else decisions.gate >= 0.5
    return SourceProgress(
        lengths=lengths, ends=decisions.ends, count=count, ended=ended, exists=exists
    )


def look_ahead(
    energy: jax.Array, start: jax.Array, progress: SourceProgress, selection: Selection
) -> Look:
    """Every head [B, H] from its start to the first decision it accepts; energies [B, H, T, W]."""
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


def look_wait_k(target: jax.Array, heads: int, progress: SourceProgress, wait: jax.Array) -> Look:
    """Target i [B, T] stands on decision i + wait - 1, which may not be there yet."""
    pointer = jnp.minimum(target + wait - 1, progress.count[:, None])
    pointer = jnp.broadcast_to(pointer[:, None], (target.shape[0], heads, target.shape[1]))
    return _look(pointer, progress, (pointer < progress.count[:, None, None]).astype(jnp.float32))


def look_everywhere(shape: tuple[int, ...], progress: SourceProgress) -> Look:
    """Every head, of [B, H, T], waits for the end, and then attends to everything."""

    def spread(x: jax.Array) -> jax.Array:
        return jnp.broadcast_to(x[:, None, None], shape)

    return Look(
        pointer=spread(progress.count),
        reach=spread(progress.lengths - 1),
        waits=spread(~progress.ended),
        p=spread(progress.ended.astype(jnp.float32)),
    )


def first_accepted(accepted: jax.Array, start: jax.Array, count: jax.Array) -> jax.Array:
    """t [B, H, T] of the equation above, with t[-1] = start [B, H]; accepted [B, H, T, W]."""
    place = jnp.arange(accepted.shape[-1], dtype=jnp.int32)

    def row(before: jax.Array, accepted: jax.Array) -> tuple[jax.Array, jax.Array]:
        open_to = accepted & (place >= before[..., None])
        first = jnp.argmax(open_to, -1).astype(jnp.int32)
        pointer = jnp.where(open_to.any(-1), first, count[:, None])
        return pointer, pointer

    _, pointers = jax.lax.scan(row, start, jnp.moveaxis(accepted, 2, 0))
    return jnp.moveaxis(pointers, 0, 2)


def attend_within(
    query: jax.Array | None, memory: Memory, reach: jax.Array, width: int | None
) -> tuple[jax.Array, jax.Array]:
    """softmax(q k^T / sqrt(d)) v over the `width` states that end at reach [B, H, T]; None: all.

    Without a query all of them count alike. Gives [B, T, H, d], zeros where reach is -1, and the
    weights [B, H, T, K].
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


def _look(pointer: jax.Array, progress: SourceProgress, p: jax.Array) -> Look:
    stands = _standing(pointer, progress)
    reach = jnp.where(stands >= 0, _per_head(progress.ends, stands), -1)
    waits = (pointer >= progress.count[:, None, None]) & ~progress.ended[:, None, None]
    return Look(pointer=pointer, reach=reach, waits=waits, p=p)


def _standing(pointer: jax.Array, progress: SourceProgress) -> jax.Array:
    """The decision to attend from: the last one for a head that is beyond it; -1 if none is."""
    return jnp.minimum(pointer, progress.count[:, None, None] - 1)


def _per_head(x: jax.Array, decision: jax.Array) -> jax.Array:
    """x [B, W] at decisions [B, H, T]."""
    batch, heads, targets = decision.shape
    place = jnp.maximum(decision, 0).reshape(batch, heads * targets)
    return jnp.take_along_axis(x, place, 1).reshape(decision.shape)
