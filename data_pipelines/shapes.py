"""Few static shapes for sentences of every length, chosen so that as little as possible is padding.

Sorted by length, the sentences are cut into at most `count` ranges, and each range is padded to
its longest member. With c(i, j) the padding of the range of lengths (i, j], the best cut is

    best[k, j] = min_i best[k-1, i] + c(i, j),

a shortest path that dynamic programming finds exactly over the distinct (rounded) lengths.
"""

from dataclasses import dataclass

import numpy as np

from simuljax.config.data import Budget


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Per example: samples of audio, tokens of transcript and translation (with their ends)."""

    audio: np.ndarray  # int64 [n]
    source: np.ndarray
    target: np.ndarray

    def __len__(self) -> int:
        return len(self.audio)

    def __getitem__(self, rows: np.ndarray) -> "Lengths":
        return Lengths(audio=self.audio[rows], source=self.source[rows], target=self.target[rows])


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The static shape of a global batch."""

    rows: int
    audio: int  # samples
    source: int  # tokens
    target: int  # tokens


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A shape, and the examples that are too long for any shorter one."""

    shape: Shape
    members: np.ndarray  # int64, positions in the split


FRAME = 160  # samples in 10 ms
ROUND = 10 * FRAME  # audio shapes are multiples of 0.1 s


def cuts(lengths: np.ndarray, count: int) -> np.ndarray:
    """The `count` or fewer increasing lengths to pad to that waste least in total."""
    distinct, weight = np.unique(lengths, return_counts=True)
    n, total = len(distinct), np.concatenate([[0], np.cumsum(weight)])
    # cost[i, j]: positions taken when sentences i..j-1 are padded to the longest of them.
    cost = np.where(
        np.arange(n + 1)[:, None] < np.arange(n + 1),
        (total[None, :] - total[:, None]) * np.concatenate([[0], distinct])[None, :].astype(float),
        np.inf,
    )
    best, came_from = cost[0], []
    for _ in range(min(count, n) - 1):
        through = best[:, None] + cost
        came_from.append(np.argmin(through, axis=0))
        best = np.min(through, axis=0)
    ends = [n]
    for step in reversed(came_from):
        ends.append(int(step[ends[-1]]))
    return distinct[np.array(ends[::-1]) - 1]


def make_buckets(lengths: Lengths, budget: Budget) -> tuple[Bucket, ...]:
    """The shapes of a corpus, shortest first; cut along audio, or along text where all is text."""
    if not len(lengths):
        raise ValueError("there is no example to make batches of: the split is empty")
    main = main_axis(lengths)
    ends = cuts(main, budget.shapes)
    # A shape holds whatever a shorter one holds, also on the text axes.
    held = (lengths[main <= end] for end in ends)
    which = np.searchsorted(ends, main)
    return tuple(
        Bucket(shape=_shape(up_to, budget), members=np.flatnonzero(which == k))
        for k, up_to in enumerate(held)
    )


def main_axis(lengths: Lengths) -> np.ndarray:
    """What decides an example's shape: its audio in tenths of a second, else its longer text."""
    if lengths.audio.any():
        return -(-lengths.audio // ROUND) * ROUND
    return np.maximum(lengths.source, lengths.target)


def _shape(members: Lengths, budget: Budget) -> Shape:
    audio = int(-(-members.audio.max() // ROUND) * ROUND)
    source, target = int(members.source.max()), int(members.target.max())
    rows = budget.tokens // max(source, target)
    if audio:
        rows = min(rows, budget.frames * FRAME // audio)
    rows -= rows % budget.row_multiple
    if rows == 0:
        raise ValueError(
            f"a global batch of {budget.frames} frames and {budget.tokens} tokens does not hold "
            f"{budget.row_multiple} examples of {audio // FRAME} frames and "
            f"{max(source, target)} tokens: raise the budget, lower row_multiple, or leave out "
            "the longest examples"
        )
    return Shape(rows=rows, audio=audio, source=source, target=target)
