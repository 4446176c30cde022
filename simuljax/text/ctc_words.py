"""Words in the output of a CTC head, counted inside jit.

The collapsed argmax stays in place, a label at the state where it is heard best and padding
everywhere else: `count_words` passes padding over, so that it counts after every state at once.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from simuljax.text.base import PAD
from simuljax.text.word_count import WordBoundaries, count_words


def ctc_labels(logits: Float[Array, "B K C"], lengths: Int[Array, " B"]) -> Int[Array, "B K"]:
    """Return the best label of each state, repetitions merged and blanks (the last class) dropped.

    A label stands at its peak: of the neighbouring states that agree on it, the one (the first,
    if several) that finds it most probable. `PAD` stands at all others.
    """
    size, blank = logits.shape[1], logits.shape[-1] - 1
    real = jnp.arange(size) < lengths[:, None]
    best = jnp.where(real, logits.argmax(-1), blank).astype(jnp.int32)
    sure = jax.nn.log_softmax(logits.astype(jnp.float32)).max(-1)
    begins = jnp.pad(best[:, 1:] != best[:, :-1], [(0, 0), (1, 0)])
    peaks = jax.vmap(_peaks)(sure, jnp.cumsum(begins, -1))
    return jnp.where(peaks & (best != blank), best, PAD)


def words_heard(
    logits: Float[Array, "B K C"],
    lengths: Int[Array, " B"],
    boundaries: WordBoundaries,
    *,
    trailing: Literal["leave", "count"] = "count",
) -> Int[Array, "B K"]:
    """Count the words up to each state; a word counts from the peak of its last token on.

    The last column is `count_words` of the collapsed labels: with `trailing="leave"`, without a
    word that may still go on (Papi et al. 2022 count it).
    """
    labels = ctc_labels(logits, lengths)
    number = count_words(boundaries, labels, trailing="count")  # of the word that a label is in
    has_text = jnp.asarray(boundaries.has_text)[labels]
    most = jnp.iinfo(number.dtype).max
    coming = jax.lax.cummin(jnp.where(has_text, number, most), axis=1, reverse=True)
    coming = jnp.pad(coming[:, 1:], [(0, 0), (0, 1)], constant_values=most)
    heard = jnp.cumsum(has_text & (coming > number), -1, dtype=jnp.int32)
    if trailing == "count":
        return heard
    return jnp.minimum(heard, count_words(boundaries, labels)[:, -1:])


def _peaks(sure: Float[Array, " K"], run: Int[Array, " K"]) -> Array:
    """Mark the first of the most probable states of each run (bool [K]); runs are numbered."""
    size = sure.shape[0]
    is_top = sure == jax.ops.segment_max(sure, run, size)[run]
    place = jnp.arange(size)
    first = jax.ops.segment_min(jnp.where(is_top, place, size), run, size)
    return place == first[run]
