"""From a prepared corpus to `simuljax.batch.Batch`: random access by step, prefetched by Grain.

    corpus = open_corpus("data/phrasebook")
    examples = tokenise_split(corpus["train"], Vocabularies(source=..., target=...))
    batches = Batches(examples=examples, plan=make_plan(examples.lengths, Budget()))
    for batch in iterate(batches): ...

A batch is a function of its step, so a loader has no state but the next step. Grain keeps it, and
an iterator that is restored (`set_state`) continues with the identical batch.

Batches have few static shapes. Sorted by length, the examples are cut into at most
`Budget.shapes` ranges, and each range is padded to its longest member. With c(i, j) the padding
of the range of lengths (i, j], the best cut is

    best[k, j] = min_i best[k-1, i] + c(i, j),

a shortest path that dynamic programming finds exactly over the distinct (rounded) lengths.

A `Plan` is a pure function of the seed and the step, so every host can compute every batch. In an
epoch every example comes exactly once. Within each shape the examples are shuffled and cut into
full batches; the few left over move up to the next longer shape, so that only the very last batch
of an epoch has empty rows. Then the batches are shuffled. The number of batches does not depend
on the shuffle, so step s is batch s mod n of epoch s div n.
"""

import functools
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import flax.struct
import numpy as np

from data_pipelines.dataset import Split
from simuljax.audio import Filterbank, frame_count
from simuljax.batch import Batch
from simuljax.config.experiment import Budget
from simuljax.text import EOS, Vocabulary

if TYPE_CHECKING:
    import grain

    from data_pipelines.input import Resident

FRAME = 160  # samples in 10 ms
ROUND = 10 * FRAME  # audio shapes are multiples of 0.1 s


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
    """A shape, and the examples that are too long for any shorter one, shortest bucket first."""

    shape: Shape
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


@dataclass(frozen=True, kw_only=True)
class PlannedBatch:
    """One global batch: its shape and the examples in its rows; -1 is an empty row."""

    shape: Shape
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
        steps: dict[Shape, int] = {}
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
            f"{shape.rows:6d} {shape.audio // FRAME:8d} {shape.source:7d} {shape.target:7d} "
            f"{len(bucket.members):9d}"
        )
    shares = plan.padding.items()
    padding = ", ".join(f"{share:.1%} of {axis}" for axis, share in shares if share)
    steps = f"{plan.steps_per_epoch} batches an epoch of {len(plan.buckets)} shapes"
    return "\n".join([*lines, f"{steps}; padding: {padding or 'none'}"])


ENDLESS = 2**40  # steps: training decides when a run ends


@flax.struct.dataclass
class Ragged:
    """Sequences one after the other: sequence i is `flat[start[i] : start[i] + length[i]]`."""

    flat: Any  # array [total, ...]
    start: Any  # int [n]
    length: Any  # int [n]

    def __getitem__(self, i: int) -> np.ndarray:
        return self.flat[self.start[i] : self.start[i] + self.length[i]]


def tokenise(texts: Iterable[str], vocabulary: Vocabulary) -> Ragged:
    """Encode every text with its end-of-sentence; an empty text stays empty."""
    sequences = [[*vocabulary.encode(text), EOS] if text else [] for text in texts]
    length = np.array([len(sequence) for sequence in sequences], np.int64)
    flat = np.fromiter(itertools.chain.from_iterable(sequences), np.int32, int(length.sum()))
    return Ragged(flat=flat, start=np.cumsum(length) - length, length=length)


@dataclass(frozen=True, kw_only=True)
class Vocabularies:
    """The vocabularies of the transcripts and of the translations; they may be the same."""

    source: Vocabulary
    target: Vocabulary


@dataclass(frozen=True, kw_only=True)
class Examples:
    """A split with its texts as tokens: all that a batch needs except the audio."""

    split: Split
    source: Ragged
    target: Ragged
    text_only: bool = False  # ignore the audio

    @property
    def lengths(self) -> Lengths:
        samples = self.split.table.samples
        return Lengths(
            audio=np.zeros_like(samples) if self.text_only else samples,
            source=self.source.length,
            target=self.target.length,
        )

    def load(self, rows: np.ndarray, shape: Shape) -> Batch:
        """Read the examples at `rows` (-1: an empty row) into arrays of the shape's lengths."""
        real = [] if self.text_only else [int(row) for row in rows if row >= 0]
        stored = dict(zip(real, self.split.read(real), strict=True))
        nothing = np.zeros(0, np.int16)

        def fields(name: str) -> list[np.ndarray]:
            return [stored[row][name] if row in stored else nothing for row in rows.tolist()]

        def tokens(sequences: Ragged) -> list[np.ndarray]:
            return [sequences[row] if row >= 0 else nothing for row in rows]

        def stacked_labels(name: str) -> np.ndarray:
            return np.stack([labels(times, frames) for times in fields(name)])

        audio, audio_length = stack(fields("audio"), shape.audio, np.int16)
        source, source_length = stack(tokens(self.source), shape.source)
        target, target_length = stack(tokens(self.target), shape.target)
        table, frames = self.split.table, frame_count(shape.audio, Filterbank())

        return Batch(
            audio=audio,
            audio_length=audio_length,
            source=source,
            source_length=source_length,
            target=target,
            target_length=target_length,
            index=rows.astype(np.int32),
            words=stacked_labels("word_ms") if table.words.any() and shape.audio else None,
            phonemes=stacked_labels("phoneme_ms") if table.phonemes.any() and shape.audio else None,
        )


def tokenise_split(split: Split, vocabularies: Vocabularies, task: str = "translation") -> Examples:
    """Encode the texts of a split; in transcription the transcript is the target."""
    table = split.table
    targets = table.translation if task == "translation" else table.transcript
    return Examples(
        split=split,
        source=tokenise(table.transcript, vocabularies.source),
        target=tokenise(targets, vocabularies.target),
    )


@dataclass(frozen=True, kw_only=True)
class Host:
    """The part of every global batch that this host reads: an equal share of the rows, in order."""

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ValueError(
                f"host is {self.index} of {self.count}; it must be at least 0 and below"
            )

    def rows(self, rows: np.ndarray) -> np.ndarray:
        if len(rows) % self.count:
            raise ValueError(
                f"{len(rows)} rows do not divide among {self.count} hosts: "
                f"set row_multiple to a multiple of {self.count}"
            )
        return np.split(rows, self.count)[self.index]


@dataclass(frozen=True, kw_only=True)
class Batches:
    """The part of this host of the batch of every step."""

    examples: "Examples | Resident"  # on disk, or on a device
    plan: Plan
    host: Host = Host()

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> Batch:
        planned = self.plan.batch(index)
        return self.examples.load(self.host.rows(planned.rows), planned.shape)


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """Batches of speech with `text_per_speech` text-only batches to each, evenly spread.

    Rows are not mixed within a batch: a row of text in a batch of speech would be padded with
    seconds of audio. Accumulate gradients over a few batches and every update sees both.
    """

    speech: Batches
    text: Batches
    text_per_speech: float

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> Batch:
        texts, after = self.texts_before(index), self.texts_before(index + 1)
        return self.text[texts] if after > texts else self.speech[index - texts]

    def texts_before(self, step: int) -> int:
        """Return the number of text batches among the first `step`."""
        return int(step * self.text_per_speech / (1 + self.text_per_speech))


def iterate(
    batches: Batches | Mixed, *, threads: int = 8, ahead: int = 8
) -> "grain.DatasetIterator[Batch]":
    """Iterate from the first step on; threads read ahead, `set_state` resumes."""
    import grain

    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=ahead)
    return iter(grain.MapDataset.source(batches).to_iter_dataset(options))


def labels(spans_ms: np.ndarray, frames: int) -> np.ndarray:
    """Return the number, from 1, of the word at the middle of each frame; 0 in silence."""
    result = np.zeros(frames, np.int16)
    # Frame j reaches from 10 j to 10 j + 25 ms.
    first = np.ceil((spans_ms.reshape(-1, 2) - 12.5) / 10).clip(0).astype(int)
    for number, (start, end) in enumerate(first.tolist(), 1):
        result[start:end] = number
    return result


def stack(
    arrays: Sequence[np.ndarray], size: int, dtype: type = np.int32
) -> tuple[np.ndarray, np.ndarray]:
    """Return sequences as rows padded with zeros to `size`, and their lengths."""
    padded = np.zeros((len(arrays), size), dtype)
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return padded, np.array([len(array) for array in arrays], np.int32)
