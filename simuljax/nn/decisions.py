"""Decision points: the inputs of read/write decisions, and the encoder states they end at.

The alignment runs over W decision points, not over K states: states without a decision have p = 0
and pass the probability on, so leaving them out changes nothing but the cost. `place` brings an
alignment back onto the states, where soft attention needs it.
"""

import flax.struct
import jax
import jax.numpy as jnp

from simuljax.nn.layers import real
from simuljax.ops import pool_windows, window_ends


@flax.struct.dataclass
class Decisions:
    """The decision points of a batch, in order."""

    keys: jax.Array  # [B, W, D]: what the decision looks at
    ends: jax.Array  # int32 [B, W]: the state it stands on, from 0
    count: jax.Array  # int32 [B]
    gate: jax.Array | None = None  # [B, W]: the chance that there is a decision at all
    step: int | None = flax.struct.field(pytree_node=False, default=None)  # of fixed windows
    everywhere: bool = flax.struct.field(pytree_node=False, default=False)  # W = K, at every state


def every_state(states: jax.Array, lengths: jax.Array, gate: jax.Array | None = None) -> Decisions:
    """Decide at every state: text, or speech whose triggers are learned (`gate`)."""
    ends = jnp.broadcast_to(jnp.arange(states.shape[1]), states.shape[:2])
    return Decisions(keys=states, ends=ends, count=lengths, gate=gate, everywhere=True)


def fixed_windows(states: jax.Array, lengths: jax.Array, step: int, pooling: str) -> Decisions:
    """Decide every `step` states, on the pooled states of the window (Ma et al. 2020)."""
    keys = pool_windows(states, lengths, step, kind=pooling)
    ends = window_ends(lengths, states.shape[1], step)
    return Decisions(keys=keys, ends=ends, count=-(-lengths // step), step=step)


def at_triggers(states: jax.Array, triggers: jax.Array, pooling: str) -> Decisions:
    """Decide at every trigger [B, K], on the states pooled since the previous one."""
    size = states.shape[1]
    count = triggers.sum(-1)
    ends = jnp.argsort(~triggers, axis=-1, stable=True).astype(jnp.int32)
    keys = jnp.take_along_axis(states, ends[..., None], axis=1)
    if pooling == "average":
        # State k belongs to the window of the first trigger at or after it.
        window = jnp.cumsum(triggers, -1) - triggers
        member = window[:, None, :] == jnp.arange(size)[:, None]
        member &= (
            jnp.arange(size)
            <= jnp.max(jnp.where(triggers, jnp.arange(size), -1), -1)[:, None, None]
        )
        share = member / jnp.maximum(member.sum(-1, keepdims=True), 1)
        keys = jnp.einsum("bwk,bkd->bwd", share.astype(states.dtype), states)
    return Decisions(keys=keys, ends=ends, count=count)


def word_points(
    states: jax.Array,
    lengths: jax.Array,
    words: jax.Array,
    pooling: str,
    ended: jax.Array | None = None,
) -> Decisions:
    """Decide where the word count [B, K] grows, and at the last state of a source that has ended.

    `ended` [B] None: everything has, as in training.
    """
    risen = jnp.diff(words, axis=1, prepend=0) > 0
    last = jnp.arange(states.shape[1]) == lengths[:, None] - 1
    last = last if ended is None else last & ended[:, None]
    return at_triggers(states, risen | last, pooling)


def place(alpha: jax.Array, decisions: Decisions, size: int) -> jax.Array:
    """Map [B, H, T, W] on decision points to [B, H, T, size] on states."""
    if decisions.everywhere:
        return alpha
    stands = decisions.ends[..., None] == jnp.arange(size)
    stands &= real(decisions.count, decisions.ends.shape[1])[..., None]
    return jnp.einsum(
        "bhtw,bwk->bhtk", alpha, stands.astype(alpha.dtype), precision=jax.lax.Precision.HIGHEST
    )
