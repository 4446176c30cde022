"""Which examples make which batch: a pure function of the seed and the step.

Nothing is read and nothing remembered here, so that any host can say what any step holds. In an
epoch every example comes exactly once. Within each shape the examples are shuffled and cut into
full batches; the few left over move up to the next longer shape, so that only the very last batch
of an epoch has empty rows. Then the batches are shuffled. The number of batches does not depend
on the shuffle, so step s is batch s mod n of epoch s div n.
"""

import functools
from dataclasses import dataclass

import numpy as np

from data_pipelines.shapes import FRAME, Bucket, Lengths, Shape, make_buckets
from simuljax.config.data import Budget


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One global batch: its shape and the examples in its rows; -1 is an empty row."""

    shape: Shape
    rows: np.ndarray  # int32 [shape.rows]


@dataclass(frozen=True, kw_only=True)
class Waste:
    """The shares of an epoch's positions that are padding; None where a batch has no such axis."""

    frames: float | None
    source: float | None
    target: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """The batches of a corpus, for every step of a run however long."""

    lengths: Lengths
    buckets: tuple[Bucket, ...]
    seed: int = 0
    shuffle: bool = True

    @functools.cached_property
    def steps_per_epoch(self) -> int:
        return len(self.epoch(0))

    def batch(self, step: int) -> Planned:
        """The global batch of a step, counted from 0 over all epochs."""
        epoch, position = divmod(step, self.steps_per_epoch)
        return self.epoch(epoch if self.shuffle else 0)[position]

    @functools.lru_cache(maxsize=8)  # noqa: B019 (shared by the few plans of a run, as long as it)
    def epoch(self, number: int) -> list[Planned]:
        """Every batch of an epoch, in order."""
        random = np.random.Generator(np.random.PCG64([self.seed, number]))
        batches, left = [], np.zeros(0, np.int64)
        for bucket in self.buckets:
            members = random.permutation(bucket.members) if self.shuffle else bucket.members
            queue, rows = np.concatenate([left, members]), bucket.shape.rows
            if bucket is self.buckets[-1]:
                queue = np.concatenate([queue, np.full(-len(queue) % rows, -1)])
            full = len(queue) - len(queue) % rows
            batches += [Planned(shape=bucket.shape, rows=r) for r in queue[:full].reshape(-1, rows)]
            left = queue[full:]
        order = random.permutation(len(batches)) if self.shuffle else range(len(batches))
        return [batches[i] for i in order]

    def firsts(self) -> list[int]:
        """The first step of each shape in the first epoch."""
        steps: dict[Shape, int] = {}
        for step, planned in enumerate(self.epoch(0)):
            steps.setdefault(planned.shape, step)
        return list(steps.values())

    @property
    def waste(self) -> Waste:
        """Padding over the first epoch, empty rows and moved examples included."""
        shapes = [planned.shape for planned in self.epoch(0)]

        def share(axis: str) -> float | None:
            padded = sum(shape.rows * getattr(shape, axis) for shape in shapes)
            return 1 - float(getattr(self.lengths, axis).sum()) / padded if padded else None

        target = share("target")
        assert target is not None
        return Waste(frames=share("audio"), source=share("source"), target=target)


def make_plan(lengths: Lengths, budget: Budget, *, seed: int = 0, shuffle: bool = True) -> Plan:
    """The plan of a corpus whose examples have these lengths."""
    return Plan(lengths=lengths, buckets=make_buckets(lengths, budget), seed=seed, shuffle=shuffle)


def describe(plan: Plan) -> str:
    """A table of the shapes and one line about padding."""
    lines = ["  rows   frames  source  target  examples"]
    for bucket in plan.buckets:
        shape = bucket.shape
        lines.append(
            f"{shape.rows:6d} {shape.audio // FRAME:8d} {shape.source:7d} {shape.target:7d} "
            f"{len(bucket.members):9d}"
        )
    shares = {"frames": plan.waste.frames, "source": plan.waste.source, "target": plan.waste.target}
    padding = ", ".join(f"{share:.1%} of {axis}" for axis, share in shares.items() if share)
    steps = f"{plan.steps_per_epoch} batches an epoch of {len(plan.buckets)} shapes"
    return "\n".join([*lines, f"{steps}; padding: {padding or 'none'}"])
