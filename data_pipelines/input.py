"""The input of a training run: vocabularies, feature statistics and batches of a prepared corpus.

The vocabularies and the statistics are written into the run's directory when it starts, and read
from there when it resumes: they stay the same whatever happens to the corpus.

A small corpus may be kept in device memory, where a step sends nothing but row numbers. Audio is
stored there in blocks of 0.1 s, so that an utterance is a run of whole blocks and a batch is one
gather: a day of speech is 2.8 GB. The batches are those of `data_pipelines.batches`, number for
number.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from data_pipelines.batches import (
    FRAME,
    ROUND,
    Batches,
    Examples,
    Host,
    Lengths,
    Mixed,
    Plan,
    Ragged,
    Shape,
    Vocabularies,
    describe_plan,
    iterate,
    labels,
    make_plan,
    stack,
    tokenise_split,
)
from data_pipelines.dataset import (
    STATISTICS,
    Split,
    Table,
    check_used_data,
    open_corpus,
    record_used_data,
)
from data_pipelines.joining import join
from data_pipelines.utterance import CorpusError
from simuljax.audio import (
    RATE,
    FeatureRecord,
    Features,
    Filterbank,
    Moments,
    extract,
    frame_count,
    load_features,
    neutral,
    save_features,
)
from simuljax.audio.features import FILE_NAME as FEATURES_FILE
from simuljax.batch import Batch, Data
from simuljax.config.experiment import Budget, DataConfig
from simuljax.text import Words, learn, load
from simuljax.text.vocabulary import SOURCE_FILE, TARGET_FILE

FRAMES_PER_BLOCK = ROUND // FRAME
READ = 512  # examples at a time


@flax.struct.dataclass
class Resident:
    """A whole split on a device."""

    audio: Ragged  # int16 [blocks, ROUND]; start in blocks, length in samples
    source: Ragged  # int32 [tokens]
    target: Ragged  # int32 [tokens]
    words: jax.Array | None  # int16 [blocks, FRAMES_PER_BLOCK]
    phonemes: jax.Array | None

    def load(self, rows: np.ndarray, shape: Shape) -> Batch:
        """Return the batch of these rows, as `Examples.load` would read it."""
        return gather(self, jnp.asarray(rows, jnp.int32), shape)


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


HOURS = 20.0  # enough for five digits of the statistics; a larger corpus is sampled evenly


@dataclass(frozen=True, kw_only=True)
class TrainingInput(Data):
    """Everything a training run needs of its corpus."""

    vocabularies: Vocabularies
    description: str


def open_input(
    corpus: DataConfig, run: Path, *, seed: int, host: Host, devices: int, text_only: bool = False
) -> TrainingInput:
    """Open the corpus for this host; `init_run` must have written the run's files.

    `text_only` ignores the audio, for a model of text.
    """
    opened = open_corpus(corpus.directory)
    vocabularies, features = load_inputs(run)
    splits = join(opened[corpus.train], corpus.joining, seed), opened[corpus.valid]
    train, valid = (
        replace(tokenise_split(split, vocabularies, corpus.task), text_only=text_only)
        for split in splits
    )
    if corpus.budget.row_multiple % devices:
        raise CorpusError(
            f"batches have a multiple of {corpus.budget.row_multiple} rows, which does not divide "
            f"among {devices} devices: set --data.budget.row-multiple to a multiple of {devices}"
        )
    resident = corpus.held == "device" and not text_only
    if resident and devices > 1:
        raise CorpusError(
            f"--data.held device needs one device, not {devices}: set --data.held disk"
        )
    plan = _plan(train, corpus, seed=seed)
    examples = load_resident(train) if resident else train
    source = speech = Batches(examples=examples, plan=plan, host=host)
    parts, lines, steps = [speech], [describe_plan(plan)], plan.steps_per_epoch
    if corpus.text is not None:
        text = tokenise_split(open_corpus(corpus.text)[corpus.train], vocabularies, corpus.task)
        text_plan = _plan(text, corpus, seed=seed)
        texts = Batches(examples=text, plan=text_plan, host=host)
        parts.append(texts)
        source = Mixed(speech=speech, text=texts, text_per_speech=corpus.text_per_speech)
        lines += [f"with {corpus.text_per_speech:g} text batches for each batch of speech:"]
        lines += [describe_plan(text_plan)]
        steps = round(steps * (1 + corpus.text_per_speech))
    valid_plan = _plan(valid, corpus, shuffle=False)
    valid_source = Batches(examples=valid, plan=valid_plan, host=host)
    threads = 0 if resident else 8
    return TrainingInput(
        vocabularies=vocabularies,
        words=Words.of(vocabularies.source, vocabularies.target),
        features=features,
        train=iterate(source, threads=threads, ahead=threads),
        valid=lambda: (valid_source[step] for step in range(valid_plan.steps_per_epoch)),
        shapes=lambda: (each[step] for each in parts for step in each.plan.first_steps()),
        steps_per_epoch=steps,
        description="\n".join(lines),
    )


def init_run(corpus: DataConfig, run: Path) -> None:
    """Write the run's vocabularies and feature statistics, unless they exist."""
    check_used_data(run, corpus.tables())
    if all((run / name).exists() for name in (SOURCE_FILE, TARGET_FILE, FEATURES_FILE)):
        return
    split = open_corpus(corpus.directory)[corpus.train]
    if not len(split):
        raise CorpusError(f"{corpus.directory} has no example in its split {corpus.train!r}")
    vocabularies = _vocabularies(corpus, split.table)
    run.mkdir(parents=True, exist_ok=True)
    record_used_data(run, corpus.tables())
    save_features(run / FEATURES_FILE, _run_features(corpus, split))
    vocabularies.source.save(run / SOURCE_FILE)
    vocabularies.target.save(run / TARGET_FILE)


def load_inputs(run: Path) -> tuple[Vocabularies, FeatureRecord]:
    """Read what `init_run` wrote."""
    source, target = load(run / SOURCE_FILE), load(run / TARGET_FILE)
    return Vocabularies(source=source, target=target), load_features(run / FEATURES_FILE)


def _plan(examples: Examples, corpus: DataConfig, *, seed: int = 0, shuffle: bool = True) -> Plan:
    try:
        return make_plan(examples.lengths, corpus.budget, seed=seed, shuffle=shuffle)
    except ValueError as error:
        where = f"{corpus.directory}, split {examples.split.name}"
        raise CorpusError(f"{where}: {error} (--data.budget)") from error


def _vocabularies(corpus: DataConfig, table: Table) -> Vocabularies:
    if corpus.vocabularies_of is not None:
        return load_inputs(corpus.vocabularies_of)[0]
    targets = table.translation if corpus.task == "translation" else table.transcript
    if not any(text.strip() for text in targets):
        side = "translations" if corpus.task == "translation" else "transcripts"
        raise CorpusError(
            f"{corpus.directory} has no words in the {side} of its split {corpus.train!r}: "
            "prepare a corpus with text, or choose another --data.task"
        )
    sources = table.transcript if any(table.transcript) else targets
    learned = Vocabularies(
        source=learn(sources, corpus.source), target=learn(targets, corpus.target)
    )
    for note in filter(None, (learned.source.note, learned.target.note)):
        print(note)
    return learned


def _run_features(corpus: DataConfig, split: Split) -> FeatureRecord:
    """Return the statistics of the preparation, or compute them for other features or splits."""
    features = corpus.features
    if not np.any(split.table.samples) or features.filterbank.kind == "whisper":
        return FeatureRecord(features=features, statistics=neutral(features.dims))
    prepared = corpus.directory / STATISTICS
    if corpus.train == "train" and prepared.exists():
        record = load_features(prepared)
        if record.features == corpus.features:
            return record
    return feature_record(split, corpus.features)


def feature_record(split: Split, features: Features | None = None) -> FeatureRecord:
    """Compute mean and variance of the features over a split, or over 20 hours of it."""
    features = features or Features()
    spoken = np.flatnonzero(split.table.samples)
    rows = spoken[:: max(1, round(split.table.samples.sum() / RATE / 3600 / HOURS))]
    samples = split.table.samples[rows]
    ones = np.ones_like(samples)
    budget = Budget(frames=max(40_000, int(samples.max()) // FRAME + 10), row_multiple=1)
    plan = make_plan(Lengths(audio=samples, source=ones, target=ones), budget, shuffle=False)
    compute = jax.jit(functools.partial(extract, config=features))
    moments = Moments.empty(features.dims)
    for planned in tqdm(plan.epoch(0), desc="statistics", unit="batch"):
        real = planned.rows[planned.rows >= 0]
        sounds = [example["audio"] for example in split.read(rows[real].tolist())]
        sounds += [np.zeros(0, np.int16)] * (planned.shape.rows - len(sounds))
        values = np.asarray(compute(stack(sounds, planned.shape.audio, np.int16)[0]))
        for value, length in zip(values, samples[real], strict=False):
            moments = moments.add(value[: frame_count(int(length), features.filterbank)])
    return FeatureRecord(features=features, statistics=moments.statistics())
