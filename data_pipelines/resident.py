"""A small corpus in device memory: a step sends nothing but row numbers to the device.

Audio is stored in blocks of 0.1 s, so that an utterance is a run of whole blocks and a batch is one
gather: a day of speech is 2.8 GB. The batches are those of `data_pipelines.batches`, number for
number.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from data_pipelines.batches import ENDLESS, Examples, Host, Ragged, labels
from data_pipelines.batching import FRAME, ROUND, Plan, Shape
from simuljax.audio import Filterbank, frame_count
from simuljax.batch import Batch

FRAMES_PER_BLOCK = ROUND // FRAME
READ = 512  # examples at a time


@flax.struct.dataclass
class Runs:
    """Sequences one after the other: sequence i is `length[i]` long and starts at `start[i]`."""

    flat: jax.Array  # [total, ...]
    start: jax.Array  # int32 [n]
    length: jax.Array  # int32 [n]


@flax.struct.dataclass
class Resident:
    """A whole split on a device."""

    audio: Runs  # int16 [blocks, ROUND]; start in blocks, length in samples
    source: Runs  # int32 [tokens]
    target: Runs  # int32 [tokens]
    words: jax.Array | None  # int16 [blocks, FRAMES_PER_BLOCK]
    phonemes: jax.Array | None


def load_resident(examples: Examples, *, most_gb: float = 32.0) -> Resident:
    """Read a split into device memory; raise ValueError if it is larger than `most_gb`."""
    table = examples.split.table
    blocks = -(-table.samples // ROUND)
    gigabytes = int(blocks.sum()) * ROUND * 2 / 1e9
    if gigabytes > most_gb:
        raise ValueError(
            f"split {examples.split.name} takes {gigabytes:.1f} GB, more than the {most_gb:g} GB "
            "allowed on a device: read it in batches (Batches), or raise most_gb"
        )
    start = np.cumsum(blocks) - blocks
    audio = np.zeros((int(blocks.sum()), ROUND), np.int16)
    spoken = {"words": table.words.any(), "phonemes": table.phonemes.any()}
    marks = {
        k: np.zeros((len(audio), FRAMES_PER_BLOCK), np.int16)
        for k, aligned in spoken.items()
        if aligned
    }
    for i, example in _read(examples, len(table)):
        here = slice(start[i], start[i] + blocks[i])
        audio[here].reshape(-1)[: table.samples[i]] = example["audio"]
        for kind, field in (("words", "word_ms"), ("phonemes", "phoneme_ms")):
            if kind in marks:
                marks[kind][here] = labels(
                    example[field], int(blocks[i]) * FRAMES_PER_BLOCK
                ).reshape(-1, FRAMES_PER_BLOCK)
    lengths = jnp.asarray(table.samples, jnp.int32)
    return Resident(
        audio=Runs(flat=jnp.asarray(audio), start=jnp.asarray(start, jnp.int32), length=lengths),
        source=_runs(examples.source),
        target=_runs(examples.target),
        words=jnp.asarray(marks["words"]) if "words" in marks else None,
        phonemes=jnp.asarray(marks["phonemes"]) if "phonemes" in marks else None,
    )


def _read(examples: Examples, count: int) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Yield every example with its number; reading many at a time is several times as fast."""
    progress = tqdm(total=count, desc="into device memory", unit="utt", mininterval=2)
    for first in range(0, count, READ):
        rows = range(first, min(first + READ, count))
        yield from zip(rows, examples.split.source.__getitems__(list(rows)), strict=True)
        progress.update(len(rows))
    progress.close()


def _runs(tokens: Ragged) -> Runs:
    return Runs(
        flat=jnp.asarray(tokens.flat),
        start=jnp.asarray(tokens.start, jnp.int32),
        length=jnp.asarray(tokens.length, jnp.int32),
    )


@functools.partial(jax.jit, static_argnames="shape")
def gather(resident: Resident, rows: jax.Array, shape: Shape) -> Batch:
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
        run = Runs(flat=flat, start=resident.audio.start, length=length)
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


def _take(runs: Runs, rows: jax.Array, count: int, size: int) -> tuple[jax.Array, jax.Array]:
    """Return `count` items (blocks, tokens) of each run as `size` values, 0 beyond the length."""
    length = jnp.where(rows >= 0, runs.length[rows], 0)
    items = runs.start[rows][:, None] + jnp.arange(count)
    taken = runs.flat.at[items].get(mode="clip").reshape(len(rows), size)
    return jnp.where(jnp.arange(size) < length[:, None], taken, 0), length


@dataclass(frozen=True, kw_only=True)
class ResidentBatches:
    """The batch of every step, out of device memory."""

    resident: Resident
    plan: Plan
    host: Host = Host()  # noqa: RUF009

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> Batch:
        planned = self.plan.batch(index)
        rows = self.host.rows(planned.rows).astype(np.int32)
        return gather(self.resident, jnp.asarray(rows), planned.shape)
