"""From a prepared corpus to `simuljax.batch.Batch`: random access by step, prefetched by Grain.

    corpus = open_corpus("data/phrasebook")
    examples = tokenise_split(corpus["train"], Vocabularies(source=..., target=...))
    batches = Batches(examples=examples, plan=make_plan(examples.lengths, Budget()))
    for batch in iterate(batches): ...

A batch is a function of its step, so a loader has no state but the next step. Grain keeps it, and
an iterator that is restored (`set_state`) continues with the identical batch.

A small corpus may be kept in device memory (`load_resident`), where a step sends nothing but row
numbers. Audio is stored there in blocks of 0.1 s, so that an utterance is a run of whole blocks and
a batch is one gather: a day of speech is 2.8 GB. The batches are the same, number for number.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from data_pipelines.dataset import Split
from data_pipelines.plan import ROUND, BatchShape, Lengths, Plan
from data_pipelines.utterance import CorpusError
from simuljax.audio import Filterbank, frame_count
from simuljax.audio.filterbank import SHIFT
from simuljax.batch import Batch, BatchIterator
from simuljax.text import EOS, Vocabulary

ENDLESS = 2**40  # steps: training decides when a run ends
FRAMES_PER_BLOCK = ROUND // SHIFT
READ = 512  # examples at a time
SHARE = 0.75  # of a device's memory that a split may take
MOST_GB = 32.0  # the same for a device that does not tell how much it has


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

    def load(self, rows: np.ndarray, shape: BatchShape) -> Batch:
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


@flax.struct.dataclass
class Resident:
    """A whole split on a device."""

    audio: Ragged  # int16 [blocks, ROUND]; start in blocks, length in samples
    source: Ragged  # int32 [tokens]
    target: Ragged  # int32 [tokens]
    words: jax.Array | None  # int16 [blocks, FRAMES_PER_BLOCK]
    phonemes: jax.Array | None

    def load(self, rows: np.ndarray, shape: BatchShape) -> Batch:
        """Return the batch of these rows, as `Examples.load` would read it."""
        return gather(self, jnp.asarray(rows, jnp.int32), shape)


def load_resident(examples: Examples) -> Resident:
    """Read a split into device memory; raise CorpusError if it is too large for that."""
    table = examples.split.table
    blocks = -(-table.samples // ROUND)
    gigabytes = int(blocks.sum()) * ROUND * 2 / 1e9
    memory = jax.local_devices()[0].memory_stats() or {}
    most_gb = SHARE * memory["bytes_limit"] / 1e9 if "bytes_limit" in memory else MOST_GB
    if gigabytes > most_gb:
        raise CorpusError(
            f"split {examples.split.name} takes {gigabytes:.3g} GB, more than the {most_gb:.3g} GB "
            "that it may take of a device: set --data.held disk"
        )
    start = np.cumsum(blocks) - blocks
    audio = np.zeros((int(blocks.sum()), ROUND), np.int16)
    aligned = {"word_ms": table.words.any(), "phoneme_ms": table.phonemes.any()}
    empty = np.zeros((len(audio), FRAMES_PER_BLOCK), np.int16)
    marks = {field: empty.copy() for field, there in aligned.items() if there}
    for i, example in _read(examples, len(table)):
        here, frames = slice(start[i], start[i] + blocks[i]), int(blocks[i]) * FRAMES_PER_BLOCK
        audio[here].reshape(-1)[: table.samples[i]] = example["audio"]
        for field, mark in marks.items():
            mark[here] = labels(example[field], frames).reshape(-1, FRAMES_PER_BLOCK)
    return Resident(
        audio=_on_device(Ragged(flat=audio, start=start, length=table.samples)),
        source=_on_device(examples.source),
        target=_on_device(examples.target),
        words=jnp.asarray(marks["word_ms"]) if "word_ms" in marks else None,
        phonemes=jnp.asarray(marks["phoneme_ms"]) if "phoneme_ms" in marks else None,
    )


def _read(examples: Examples, count: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield every example with its number; reading many at a time is several times as fast."""
    progress = tqdm(total=count, desc="into device memory", unit="utt", mininterval=2)
    for first in range(0, count, READ):
        rows = range(first, min(first + READ, count))
        yield from zip(rows, examples.split.read(rows), strict=True)
        progress.update(len(rows))
    progress.close()


def _on_device(ragged: Ragged) -> Ragged:
    start, length = (jnp.asarray(each, jnp.int32) for each in (ragged.start, ragged.length))
    return Ragged(flat=jnp.asarray(ragged.flat), start=start, length=length)


@functools.partial(jax.jit, static_argnames="shape")
def gather(resident: Resident, rows: jax.Array, shape: BatchShape) -> Batch:
    """Return the batch of these rows (-1: empty) with the lengths of the shape."""
    blocks = shape.audio // ROUND
    frames = frame_count(shape.audio, Filterbank())
    audio, audio_length = _take(resident.audio, rows, blocks, shape.audio)
    source, source_length = _take(resident.source, rows, shape.source, shape.source)
    target, target_length = _take(resident.target, rows, shape.target, shape.target)

    def marks(flat: jax.Array | None) -> jax.Array | None:
        if flat is None:
            return None
        # Labels end with their audio: the next utterance in memory must not show.
        length = -(-resident.audio.length // ROUND) * FRAMES_PER_BLOCK
        run = Ragged(flat=flat, start=resident.audio.start, length=length)
        return _take(run, rows, blocks, blocks * FRAMES_PER_BLOCK)[0][:, :frames]

    return Batch(
        audio=audio,
        audio_length=audio_length,
        source=source,
        source_length=source_length,
        target=target,
        target_length=target_length,
        index=rows,
        words=marks(resident.words),
        phonemes=marks(resident.phonemes),
    )


def _take(runs: Ragged, rows: jax.Array, count: int, size: int) -> tuple[jax.Array, jax.Array]:
    """Return `count` items (blocks, tokens) of each run as `size` values, 0 beyond the length."""
    length = jnp.where(rows >= 0, runs.length[rows], 0)
    items = runs.start[rows][:, None] + jnp.arange(count)
    taken = runs.flat.at[items].get(mode="clip").reshape(len(rows), size)
    return jnp.where(jnp.arange(size) < length[:, None], taken, 0), length


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

    examples: Examples | Resident  # on disk, or on a device
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


def iterate(batches: Batches | Mixed, *, threads: int = 8, ahead: int = 8) -> BatchIterator:
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
