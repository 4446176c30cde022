"""Tokens of a text that arrives word by word; tokens already read never change.

For unigram, bpe and characters no piece reaches over a space, so the pieces of the words one by one
are the pieces of the whole text; but where a unigram model finds two cuts just as likely ("." ".."
and ".." "."), rounding decides, and not always alike. The Moses tokens of subword_nmt depend on
what follows in a few places (quotation marks, "dogs'"; 7 of 100 sentences of TED talks): a word by
itself is cut as at the end of a sentence. The phonemes of a word depend on its neighbours
throughout, and such a text cannot be read word by word.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from simuljax.text.base import EOS, UNK, Vocabulary
from simuljax.text.character_vocabulary import SPACE
from simuljax.text.errors import VocabularyError


@dataclass(frozen=True, kw_only=True)
class WordedTexts:
    """Texts read word by word; `simulate_text` takes the first three fields."""

    tokens: np.ndarray  # int32 [B, L], 0 beyond the lengths
    lengths: np.ndarray  # int32 [B]; end-of-sentence counts
    units: np.ndarray  # int32 [B, R]: tokens that are there after each word; then the length
    words: np.ndarray  # int32 [B]


def pieces_of_word(vocabulary: Vocabulary, word: str, *, is_first: bool) -> list[int]:
    """Return the tokens that a word adds to a text; none for a word of invisible characters."""
    if vocabulary.kind == "phonemes":
        raise VocabularyError(
            "the source is phonemes, and those of a word depend on the next: such a text is not "
            "read word by word. Translate it whole, or train with pieces of words."
        )
    pieces = vocabulary.encode(word)
    if vocabulary.kind == "characters" and pieces and not is_first:
        return [vocabulary.ids.get(SPACE, UNK), *pieces]
    return pieces


def read_by_words(
    vocabulary: Vocabulary, texts: Sequence[str], *, multiple: int = 32
) -> WordedTexts:
    """Batch texts, each with its end-of-sentence; sizes are rounded up, so that few shapes compile.

    Words are what `str.split` gives, as in SimulEval. A text without words has no end either.
    """
    pieces = [_pieces(vocabulary, text.split()) for text in texts]
    tokens = [[*chain.from_iterable(words), EOS] if words else [] for words in pieces]
    lengths, words = (np.array([len(row) for row in rows], np.int32) for rows in (tokens, pieces))
    size, reads = (-(-max([1, *counts]) // multiple) * multiple for counts in (lengths, words))
    filled = np.zeros((len(texts), size), np.int32)
    units = np.repeat(lengths[:, None], reads, 1)
    for row, (ids, parts) in enumerate(zip(tokens, pieces, strict=True)):
        filled[row, : len(ids)] = ids
        units[row, : len(parts)] = np.cumsum([len(part) for part in parts])
    return WordedTexts(tokens=filled, lengths=lengths, units=units, words=words)


def _pieces(vocabulary: Vocabulary, words: Sequence[str]) -> list[list[int]]:
    """Return the tokens of every word; leading words without tokens add nothing."""
    pieces: list[list[int]] = []
    for word in words:
        pieces.append(pieces_of_word(vocabulary, word, is_first=not any(pieces)))
    return pieces
