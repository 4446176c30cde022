"""Many token sequences of different lengths in one flat array."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from simuljax.text import EOS, Vocabulary


@dataclass(frozen=True, kw_only=True)
class Ragged:
    """Sequence i is `flat[start[i] : start[i] + length[i]]`."""

    flat: np.ndarray  # int32
    start: np.ndarray  # int64 [n]
    length: np.ndarray  # int64 [n]

    def __getitem__(self, i: int) -> np.ndarray:
        return self.flat[self.start[i] : self.start[i] + self.length[i]]

    @staticmethod
    def of(sequences: Iterable[Sequence[int]]) -> "Ragged":
        """The sequences, one after the other."""
        arrays = [np.asarray(sequence, np.int32) for sequence in sequences]
        length = np.array([len(array) for array in arrays], np.int64)
        return Ragged(
            flat=np.concatenate([*arrays, np.zeros(0, np.int32)]),
            start=np.cumsum(length) - length,
            length=length,
        )


def tokenise(texts: Iterable[str], vocabulary: Vocabulary) -> Ragged:
    """Every text with its end-of-sentence; an empty text stays empty."""
    return Ragged.of([*vocabulary.encode(text), EOS] if text else [] for text in texts)
