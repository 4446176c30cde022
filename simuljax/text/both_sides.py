"""Word boundaries of source and target, for models and policies that count words."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from simuljax.text.base import Vocabulary
from simuljax.text.word_count import WordBoundaries
from simuljax.text.words import word_boundaries


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True, eq=False)
class Words:
    """Word boundaries of two vocabularies, as arrays."""

    source: WordBoundaries
    target: WordBoundaries

    @classmethod
    def of(cls, source: Vocabulary, target: Vocabulary) -> "Words":
        """Build the word boundaries of two vocabularies."""
        tables = [jax.tree.map(jnp.asarray, word_boundaries(each)) for each in (source, target)]
        return cls(source=tables[0], target=tables[1])
