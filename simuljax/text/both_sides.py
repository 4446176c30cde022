"""What words are on both sides of a translator, for models and policies that count them."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from simuljax.text.base import Vocabulary
from simuljax.text.word_count import WordBoundaries
from simuljax.text.words import word_boundaries


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True, eq=False)
class Words:
    """What the ids of two vocabularies say about words; arrays."""

    source: WordBoundaries
    target: WordBoundaries

    @classmethod
    def of(cls, source: Vocabulary, target: Vocabulary) -> "Words":
        """Those of a run's vocabularies."""
        tables = [jax.tree.map(jnp.asarray, word_boundaries(each)) for each in (source, target)]
        return cls(source=tables[0], target=tables[1])
