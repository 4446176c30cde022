"""From a prepared corpus to `simuljax.batch.Batch`: random access by step, prefetched by Grain.

    corpus = open_corpus("data/phrasebook")
    examples = tokenise_split(corpus["train"], Vocabularies(source=..., target=...))
    batches = Batches(examples=examples, plan=make_plan(examples.lengths, Budget()))
    for batch in iterate(batches): ...

A batch is a function of its step, so a loader has no state but the next step. Grain keeps it, and
an iterator that is restored (`set_state`) continues with the identical batch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from data_pipelines.batching import Lengths, Plan, Shape
from data_pipelines.dataset import Split
from simuljax.audio import Filterbank, frame_count
from simuljax.batch import Batch
from simuljax.text import EOS, Vocabulary

if TYPE_CHECKING:
    import grain

ENDLESS = 2**40  # steps: training decides when a run ends


@dataclass(frozen=True, kw_only=True)
class Ragged:
    """Sequence i is `flat[start[i] : start[i] + length[i]]`."""

    flat: np.ndarray  # int32
    start: np.ndarray  # int64 [n]
    length: np.ndarray  # int64 [n]

    def __getitem__(self, i: int) -> np.ndarray:
        return self.flat[self.start[i] : self.start[i] + self.length[i]]

    @staticmethod
    def from_sequences(sequences: Iterable[Sequence[int]]) -> "Ragged":
        """Store the sequences one after the other."""
        arrays = [np.asarray(sequence, np.int32) for sequence in sequences]
        length = np.array([len(array) for array in arrays], np.int64)
        return Ragged(
            flat=np.concatenate([*arrays, np.zeros(0, np.int32)]),
            start=np.cumsum(length) - length,
            length=length,
        )


def tokenise(texts: Iterable[str], vocabulary: Vocabulary) -> Ragged:
    """Encode every text with its end-of-sentence; an empty text stays empty."""
    return Ragged.from_sequences([*vocabulary.encode(text), EOS] if text else [] for text in texts)


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
        """Return the share of this host."""
        if len(rows) % self.count:
            raise ValueError(
                f"{len(rows)} rows do not divide among {self.count} hosts: "
                f"set row_multiple to a multiple of {self.count}"
            )
        return np.split(rows, self.count)[self.index]


class BatchSource(Protocol):
    """Batches by step."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Batch: ...


@dataclass(frozen=True, kw_only=True)
class Batches:
    """The part of this host of the batch of every step, read from disk."""

    examples: Examples
    plan: Plan
    host: Host = Host()

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> Batch:
        planned = self.plan.batch(index)
        return load(self.examples, self.host.rows(planned.rows), planned.shape)


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """Batches of speech with `text_per_speech` text-only batches to each, evenly spread.

    Rows are not mixed within a batch: a row of text in a batch of speech would be padded with
    seconds of audio. Accumulate gradients over a few batches and every update sees both.
    """

    speech: BatchSource
    text: BatchSource
    text_per_speech: float

    def __post_init__(self) -> None:
        if not self.text_per_speech >= 0:
            raise ValueError(f"text_per_speech is {self.text_per_speech}; it must be 0 or more")

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> Batch:
        texts, after = self.texts_before(index), self.texts_before(index + 1)
        return self.text[texts] if after > texts else self.speech[index - texts]

    def texts_before(self, step: int) -> int:
        """Return the number of text batches among the first `step`."""
        return int(step * self.text_per_speech / (1 + self.text_per_speech))


def iterate(
    batches: BatchSource, *, start: int = 0, threads: int = 8, ahead: int = 8
) -> "grain.DatasetIterator[Batch]":
    """Iterate from step `start` on; threads read ahead, `set_state` resumes."""
    import grain

    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=ahead)
    iterator = iter(grain.MapDataset.source(batches).to_iter_dataset(options))
    if start:
        iterator.set_state({"next_index": start})
    return iterator


def load(examples: Examples, rows: np.ndarray, shape: Shape) -> Batch:
    """Read the examples at `rows` (-1: an empty row) into arrays of the shape's lengths."""
    real = [int(row) for row in rows if row >= 0]
    stored = {}
    if not examples.text_only:
        stored = dict(zip(real, examples.split.source.__getitems__(real), strict=True))
    sequence = [stored.get(int(row)) for row in rows]
    audio, audio_length = _stack([_field(e, "audio") for e in sequence], shape.audio, np.int16)
    source, source_length = _stack([_tokens(examples.source, r) for r in rows], shape.source)
    target, target_length = _stack([_tokens(examples.target, r) for r in rows], shape.target)
    table, frames = examples.split.table, frame_count(shape.audio, Filterbank())

    def stacked_labels(field: str) -> np.ndarray:
        return np.stack([labels(_field(e, field), frames) for e in sequence])

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


def labels(spans_ms: np.ndarray, frames: int) -> np.ndarray:
    """Return the number, from 1, of the word at the middle of each frame; 0 in silence."""
    result = np.zeros(frames, np.int16)
    # Frame j reaches from 10 j to 10 j + 25 ms.
    first = np.ceil((spans_ms.reshape(-1, 2) - 12.5) / 10).clip(0).astype(int)
    for number, (start, end) in enumerate(first.tolist(), 1):
        result[start:end] = number
    return result


def _field(example: dict[str, np.ndarray] | None, name: str) -> np.ndarray:
    return np.zeros(0, np.int16) if example is None else example[name]


def _tokens(sequences: Ragged, row: int) -> np.ndarray:
    return sequences[row] if row >= 0 else np.zeros(0, np.int32)


def _stack(
    arrays: Sequence[np.ndarray], size: int, dtype: type = np.int32
) -> tuple[np.ndarray, np.ndarray]:
    padded = np.zeros((len(arrays), size), dtype)
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return padded, np.array([len(array) for array in arrays], np.int32)
