"""Beams on arrays: K hypotheses of each of B sources, proposed, continued, kept and reordered.

The searches of a whole source, of a group (CAAT) and of a window (Whisper) share these; each says
for itself which hypotheses have ended, which of them are kept, and when the search is over.
"""

from dataclasses import replace

import flax.struct
import jax
import jax.numpy as jnp
from jax import Array


@flax.struct.dataclass
class BeamHypotheses:
    """K hypotheses of each source; tokens and notes beyond the lengths mean nothing."""

    tokens: Array  # int32 [B, K, N]
    lengths: Array  # int32 [B, K]
    notes: Array  # [B, K, N]: a number beside each token
    log_prob: Array  # float32 [B, K]; -inf where there is no such hypothesis

    @property
    def last(self) -> Array:
        """Return int32 [B, K]: the last tokens."""
        place = jnp.maximum(self.lengths - 1, 0)
        return jnp.take_along_axis(self.tokens, place[..., None], 2)[..., 0]

    def take(self, places: Array) -> "BeamHypotheses":
        """Return the hypotheses at these places [B, J]."""
        return jax.tree.map(
            lambda a: jnp.take_along_axis(a, places.reshape(*places.shape, *[1] * (a.ndim - 2)), 1),
            self,
        )

    def first(self, count: int) -> "BeamHypotheses":
        return jax.tree.map(lambda a: a[:, :count], self)

    def only(self, chosen: Array) -> "BeamHypotheses":
        """Return the hypotheses as if there were no others than the chosen [B, K]."""
        return replace(self, log_prob=jnp.where(chosen, self.log_prob, -jnp.inf))

    def join(self, other: "BeamHypotheses") -> "BeamHypotheses":
        """Return these, and then the others, of the same sources."""
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), self, other)

    def existing(self, count: int) -> "BeamHypotheses":
        """Return the first so many that exist, in order."""
        return self.take(jnp.argsort(self.log_prob == -jnp.inf, stable=True)).first(count)

    def extended(
        self, parent: Array, token: Array, note: Array, log_prob: Array
    ) -> "BeamHypotheses":
        """Return the hypotheses of parents [B, J], each with one more token."""
        before = self.take(parent)
        at = jnp.arange(before.tokens.shape[2]) == before.lengths[..., None]
        return BeamHypotheses(
            tokens=jnp.where(at, token[..., None], before.tokens),
            lengths=before.lengths + 1,
            notes=jnp.where(at, note[..., None], before.notes),
            log_prob=log_prob,
        )


def empty_beam(tokens: Array, notes: Array) -> BeamHypotheses:
    """Return one hypothesis without tokens for each source, in arrays [B, K, N]; no others."""
    log_prob = jnp.where(jnp.arange(tokens.shape[1]) == 0, jnp.float32(0), -jnp.inf)
    return BeamHypotheses(
        tokens=tokens,
        lengths=jnp.zeros(tokens.shape[:2], jnp.int32),
        notes=notes,
        log_prob=jnp.broadcast_to(log_prob, tokens.shape[:2]),
    )


def propose(log_prob: Array, tokens: Array, log_p: Array) -> tuple[Array, Array, Array, Array]:
    """Return the best 2 K continuations, best first, [B, 2 K] each.

    Given are sums [B, K] and n tokens [B K, n] for each hypothesis, best first, with their log p.
    Result: sums, tokens, their log p, parents. Of equal sums the better parent comes first, then
    its better token.
    """
    batch, size = log_prob.shape
    sums = (log_prob.reshape(-1, 1) + log_p).reshape(batch, -1)
    total, place = jax.lax.top_k(sums, 2 * size)
    token, own = (jnp.take_along_axis(a.reshape(batch, -1), place, 1) for a in (tokens, log_p))
    return total, token, own, place // tokens.shape[1]


def going_on(ends: Array, size: int) -> Array:
    """Return int [B, size]: places of the first proposals [B, C] that do not end."""
    return jnp.argsort(ends, stable=True)[:, :size]
