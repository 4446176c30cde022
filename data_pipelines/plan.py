"""Plan the batches of a corpus: few static shapes, each example once an epoch.

Sorted by length, the examples are cut into at most `Budget.shapes` ranges, and each range is padded
to its longest member. With c(i, j) the padding of the range of lengths (i, j], the best cut is

    best[k, j] = min_i best[k-1, i] + c(i, j),

a shortest path that dynamic programming finds exactly over the distinct (rounded) lengths.

A `Plan` is a pure function of the seed and the step, so every host can compute every batch. In an
epoch every example comes exactly once. Within each shape the examples are shuffled and cut into
full batches; the few left over move up to the next longer shape, so that only the very last batch
of an epoch has empty rows. Then the batches are shuffled. The number of batches does not depend
on the shuffle, so step s is batch s mod n of epoch s div n.
"""

import functools
from dataclasses import dataclass

import numpy as np

from simuljax.audio.filterbank import SHIFT
from simuljax.config.experiment import Budget

ROUND = 10 * SHIFT  # audio shapes are multiples of 0.1 s


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
class BatchShape:
    """The static shape of a global batch."""

    rows: int
    audio: int  # samples
    source: int  # tokens
    target: int  # tokens


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A shape, and the examples that are too long for any shorter one, shortest bucket first."""

    shape: BatchShape
    members: np.ndarray  # int64, positions in the split


def cuts(lengths: np.ndarray, count: int) -> np.ndarray:
    """Return at most `count` increasing lengths to pad to, with the least padding in total."""
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


def make_plan(lengths: Lengths, budget: Budget, *, seed: int = 0, shuffle: bool = True) -> "Plan":
    """Plan the batches of a corpus, whose shapes are cut along audio, or along text without it."""
    if not len(lengths):
        raise ValueError("the split is empty: there is no example for a batch")
    if lengths.audio.any():
        main = -(-lengths.audio // ROUND) * ROUND
    else:
        main = np.maximum(lengths.source, lengths.target)
    ends = cuts(main, budget.shapes)
    which = np.searchsorted(ends, main)
    # A shape holds whatever a shorter one holds, also on the text axes.
    buckets = tuple(
        Bucket(shape=_shape(lengths[main <= end], budget), members=np.flatnonzero(which == k))
        for k, end in enumerate(ends)
    )
    return Plan(lengths=lengths, buckets=buckets, seed=seed, shuffle=shuffle)


def _shape(members: Lengths, budget: Budget) -> BatchShape:
    audio = int(-(-members.audio.max() // ROUND) * ROUND)
    source, target = int(members.source.max()), int(members.target.max())
    rows = budget.tokens // max(source, target)
    if audio:
        rows = min(rows, budget.frames * SHIFT // audio)
    rows -= rows % budget.row_multiple
    if rows == 0:
        raise ValueError(
            f"a global batch of {budget.frames} frames and {budget.tokens} tokens does not hold "
            f"{budget.row_multiple} examples of {audio // SHIFT} frames and "
            f"{max(source, target)} tokens: raise the budget, lower row_multiple, or leave out "
            "the longest examples"
        )
    return BatchShape(rows=rows, audio=audio, source=source, target=target)


@dataclass(frozen=True, kw_only=True)
class PlannedBatch:
    """One global batch: its shape and the examples in its rows; -1 is an empty row."""

    shape: BatchShape
    rows: np.ndarray  # int32 [shape.rows]


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """The batches of a corpus, for every step of a run however long."""

    lengths: Lengths
    buckets: tuple[Bucket, ...]
    seed: int = 0
    shuffle: bool = True

    @functools.cached_property
    def steps_per_epoch(self) -> int:
        """The number of batches of every epoch."""
        return len(self.epoch(0))

    def batch(self, step: int) -> PlannedBatch:
        """Return the global batch of a step, counted from 0 over all epochs."""
        epoch, position = divmod(step, self.steps_per_epoch)
        return self.epoch(epoch if self.shuffle else 0)[position]

    @functools.lru_cache(maxsize=8)  # noqa: B019 (shared by the few plans of a run, as long as it)
    def epoch(self, number: int) -> list[PlannedBatch]:
        random = np.random.Generator(np.random.PCG64([self.seed, number]))
        batches, left = [], np.zeros(0, np.int64)
        for bucket in self.buckets:
            members = random.permutation(bucket.members) if self.shuffle else bucket.members
            queue, rows = np.concatenate([left, members]), bucket.shape.rows
            if bucket is self.buckets[-1]:
                queue = np.concatenate([queue, np.full(-len(queue) % rows, -1)])
            full = len(queue) - len(queue) % rows
            cut = queue[:full].reshape(-1, rows)
            batches += [PlannedBatch(shape=bucket.shape, rows=r) for r in cut]
            left = queue[full:]
        order = random.permutation(len(batches)) if self.shuffle else range(len(batches))
        return [batches[i] for i in order]

    def first_steps(self) -> list[int]:
        steps: dict[BatchShape, int] = {}
        for step, planned in enumerate(self.epoch(0)):
            steps.setdefault(planned.shape, step)
        return list(steps.values())

    @property
    def padding(self) -> dict[str, float]:
        """Shares of the first epoch's positions that are padding, by axis that batches have.

        Empty rows and moved examples are included.
        """
        shapes, shares = [planned.shape for planned in self.epoch(0)], dict[str, float]()
        for name, axis in (("frames", "audio"), ("source", "source"), ("target", "target")):
            if padded := sum(shape.rows * getattr(shape, axis) for shape in shapes):
                shares[name] = 1 - float(getattr(self.lengths, axis).sum()) / padded
        return shares


def describe_plan(plan: Plan) -> str:
    """Return a table of the shapes and one line about padding."""
    lines = ["  rows   frames  source  target  examples"]
    for bucket in plan.buckets:
        shape = bucket.shape
        lines.append(
            f"{shape.rows:6d} {shape.audio // SHIFT:8d} {shape.source:7d} {shape.target:7d} "
            f"{len(bucket.members):9d}"
        )
    shares = plan.padding.items()
    padding = ", ".join(f"{share:.1%} of {axis}" for axis, share in shares if share)
    steps = f"{plan.steps_per_epoch} batches an epoch of {len(plan.buckets)} shapes"
    return "\n".join([*lines, f"{steps}; padding: {padding or 'none'}"])
