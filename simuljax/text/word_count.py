"""Word counts inside a jitted decode step, from the word boundaries of each id.

The count has three numbers of state: words complete, whether one is under way, and whether the
last piece joins the next. They depend on the ids only through the last one that says anything, so
that a whole sequence is counted at once (`count_words`) as well as id by id (`WordCount.push`).
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

Arrays = Array | np.ndarray


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True, eq=False)
class WordBoundaries:
    """The word boundaries of each id: arrays over the vocabulary, for use inside jit.

    An id with none of the four is passed over (padding, begin, end).
    """

    starts_word: Bool[Arrays, " V"]  # the word before it is complete
    ends_word: Bool[Arrays, " V"]  # the word is complete with it
    has_text: Bool[Arrays, " V"]  # it is more than a separator
    joins_next: Bool[Arrays, " V"]  # what follows belongs to the same word in any case


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True, eq=False)
class WordCount:
    """The number of complete words, and a flag for a word begun since; arrays of one shape."""

    completed: Int[Arrays, "..."]
    open: Bool[Arrays, "..."]
    joined: Bool[Arrays, "..."]  # the last piece joins whatever comes next

    @classmethod
    def begin(cls, shape: tuple[int, ...] = ()) -> "WordCount":
        """Return the count before anything is written."""
        no = jnp.zeros(shape, bool)
        return cls(completed=jnp.zeros(shape, jnp.int32), open=no, joined=no)

    def push(self, boundaries: WordBoundaries, ids: Int[Arrays, "..."]) -> "WordCount":
        """Return the count after one more id in each place."""
        says = _look_up(boundaries, ids)
        completed = self.completed + _completed(says, self.open, self.joined)
        keep = ~_tells(says)
        return WordCount(
            completed=completed,
            open=(keep & self.open) | (says.has_text & ~says.ends_word),
            joined=(keep & self.joined) | says.joins_next,
        )


def count_words(
    boundaries: WordBoundaries,
    ids: Int[Arrays, "... T"],
    *,
    trailing: Literal["leave", "count"] = "leave",
) -> Int[Arrays, "... T"]:
    """Count the words that are complete after each position; NumPy for NumPy, JAX for JAX.

    `trailing="count"` includes the word under way, as the adaptive wait-k of Papi 2022 does.
    """
    xp = jnp if isinstance(ids, jax.Array) else np
    ids = xp.asarray(ids)
    says = _look_up(boundaries, ids)
    # What is open depends on the last id that says anything: its position is a running maximum.
    position = xp.where(_tells(says), xp.arange(1, ids.shape[-1] + 1), 0)
    latest = xp.maximum.accumulate(position, axis=-1)
    before = xp.concatenate([xp.zeros_like(latest[..., :1]), latest[..., :-1]], axis=-1)
    opens = says.has_text & ~says.ends_word
    new = _completed(says, _at(xp, opens, before), _at(xp, says.joins_next, before))
    completed = xp.cumsum(new, axis=-1, dtype=xp.int32)
    return completed + _at(xp, opens, latest) if trailing == "count" else completed


def _completed(says: WordBoundaries, is_open, joined):
    """Count the words completed by an id: the one before it, the one it ends, both or none."""
    previous = says.starts_word & is_open & ~joined
    own = says.ends_word & (says.has_text | (is_open & ~previous))
    return previous.astype("int32") + own.astype("int32")


def _look_up(boundaries: WordBoundaries, ids) -> WordBoundaries:
    xp = jnp if isinstance(ids, jax.Array) else np
    return jax.tree.map(lambda table: xp.asarray(table)[ids], boundaries)


def _tells(says: WordBoundaries):
    return says.starts_word | says.ends_word | says.has_text


def _at(xp, values, position):
    """Return values at positions counted from 1; False at 0."""
    found = xp.take_along_axis(values, xp.maximum(position - 1, 0), axis=-1)
    return found & (position > 0)
