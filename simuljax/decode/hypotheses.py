"""Hypotheses: what may be the translation of a source, K at a time, and how they are picked."""

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp


@flax.struct.dataclass
class Hypotheses:
    """K of each source, the best first; 0 beyond the lengths, which count end-of-sentence."""

    tokens: jax.Array  # int32 [B, K, N]
    lengths: jax.Array  # int32 [B, K]; without end-of-sentence where the limit came first
    delays: jax.Array  # int32 [B, K, N]: encoder states that the furthest head attends to
    log_prob: jax.Array  # float32 [B, K]; -inf where there is no such hypothesis
    score: jax.Array  # float32 [B, K]: the same, with regard to the length

    @property
    def last(self) -> jax.Array:
        """int32 [B, K]: the tokens that were written last."""
        place = jnp.maximum(self.lengths - 1, 0)
        return jnp.take_along_axis(self.tokens, place[..., None], 2)[..., 0]

    def take(self, places: jax.Array) -> "Hypotheses":
        """Those at these places [B, J]."""

        def pick(a: jax.Array) -> jax.Array:
            return jnp.take_along_axis(a, places.reshape(places.shape + (1,) * (a.ndim - 2)), 1)

        return jax.tree.map(pick, self)

    def first(self, count: int) -> "Hypotheses":
        """The first so many."""
        return jax.tree.map(lambda a: a[:, :count], self)

    def best(self, count: int) -> "Hypotheses":
        """So many of them by score, the best first; of equal ones, first what was first."""
        return self.take(jax.lax.top_k(self.score, count)[1])

    def only(self, there: jax.Array) -> "Hypotheses":
        """As if there were no others than these [B, K]."""
        log_prob, score = (jnp.where(there, a, -jnp.inf) for a in (self.log_prob, self.score))
        return dataclasses.replace(self, log_prob=log_prob, score=score)

    def join(self, other: "Hypotheses") -> "Hypotheses":
        """These, and then the others, of the same sources."""
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), self, other)

    def unless(self, rows: jax.Array, other: "Hypotheses") -> "Hypotheses":
        """These, but of some sources [B] the others."""

        def choose(a: jax.Array, b: jax.Array) -> jax.Array:
            return jnp.where(rows.reshape(rows.shape + (1,) * (a.ndim - 1)), b, a)

        return jax.tree.map(choose, self, other)


def no_hypotheses(batch: int, size: int, room: int) -> Hypotheses:
    """Nothing, and room for so many tokens."""
    tokens = jnp.zeros((batch, size, room), jnp.int32)
    never = jnp.full((batch, size), -jnp.inf)
    return Hypotheses(
        tokens=tokens, lengths=tokens[..., 0], delays=tokens, log_prob=never, score=never
    )
