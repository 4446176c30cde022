"""What policies decide, on plain arrays: any attention encoder-decoder can be asked.

Each function says of B rows whether the next token has to wait until more has been heard.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from simuljax.decode.policies import Convention, Scores
from simuljax.text import EOS, WordCount


def lacks_units(
    heard: jax.Array, written: jax.Array, k: jax.Array, *, convention: Convention
) -> jax.Array:
    """bool [B]: a word after `written` [B] words is not due yet (Papi et al. 2022).

    It is due while heard >= written + k (`stacl`), or heard > written + k (`papi`).
    """
    ahead = heard - written
    return ahead < k if convention == "stacl" else ahead <= k


def begun(words: WordCount) -> jax.Array:
    """int32 [B]: words of which something has been written."""
    return jnp.asarray(words.completed + words.open)


def needs_unit(before: WordCount, after: WordCount, token: jax.Array) -> jax.Array:
    """bool [B]: whether the token between these counts does not just go on with a word.

    It may begin one, end the sentence, or say nothing where no word is under way.
    """
    goes_on = jnp.asarray(before.open) & (begun(after) == begun(before))
    return ~goes_on | (token == EOS)


def attention_of(weights: jax.Array, layer: int | None, heads: int | Literal["mean"]) -> jax.Array:
    """[B, K]: of weights [layers, B, H, K], those of one layer and head from 1, or means."""
    of_layers = weights.mean(0) if layer is None else weights[layer - 1]
    return of_layers.mean(1) if heads == "mean" else of_layers[:, heads - 1]


def aligned_with_end(
    attention: jax.Array, lengths: jax.Array, frames: jax.Array, *, scores: Scores = "paper"
) -> jax.Array:
    """bool [B]: the most attended of `lengths` [B] states is among the last `frames` (AlignAtt).

    `attention` [B, K] is that of the next token; of equals, the first counts.
    """
    count = lengths - (scores == "release")
    seen = jnp.where(_before(count, attention), attention, -1)
    return seen.argmax(-1) >= count - frames


def attends_to_end(
    attention: jax.Array,
    lengths: jax.Array,
    frames: jax.Array,
    alpha: jax.Array,
    *,
    scores: Scores = "paper",
) -> jax.Array:
    """bool [B]: attention [B, K] on the last `frames` of `lengths` [B] states >= alpha (EDAtt)."""
    count = lengths - (scores == "release")
    seen = attention * _before(count, attention)
    if scores == "release":
        seen = seen / jnp.maximum(jnp.linalg.norm(seen, axis=-1, keepdims=True), 1e-12)
    last = ~_before(count - frames, attention)
    return (seen * last).sum(-1) >= alpha


def in_common(hypotheses: jax.Array) -> jax.Array:
    """int32 [B]: with how many tokens all of [B, A, N] begin; what is negative is no token."""
    first = hypotheses[:, :1]
    alike = ((hypotheses == first) & (first >= 0)).all(1)
    return jnp.cumprod(alike, -1).sum(-1).astype(jnp.int32)


def _before(count: jax.Array, attention: jax.Array) -> jax.Array:
    """bool [B, K]: the first `count` [B] states."""
    return jnp.arange(attention.shape[-1]) < count[:, None]
