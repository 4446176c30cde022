"""The input of a training run: vocabularies, feature statistics and batches of a prepared corpus.

The vocabularies and the statistics are written into the run's directory when it starts, and read
from there when it resumes: they stay the same whatever happens to the corpus.
"""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from data_pipelines.batches import (
    Batches,
    BatchSource,
    Examples,
    Host,
    Mixed,
    Vocabularies,
    iterate,
    tokenise_split,
)
from data_pipelines.batching import FRAME, Lengths, Plan, describe_plan, make_plan
from data_pipelines.dataset import (
    STATISTICS,
    Split,
    check_used_data,
    open_corpus,
    record_used_data,
)
from data_pipelines.utterance import CorpusError
from simuljax.audio import (
    RATE,
    FeatureRecord,
    Features,
    Moments,
    Statistics,
    extract,
    frame_count,
    load_features,
    save_features,
)
from simuljax.audio.statistics import FILE_NAME as FEATURES_FILE
from simuljax.batch import Batch
from simuljax.config.data import Budget, DataConfig
from simuljax.text import Vocabulary, VocabularyConfig, learn, load
from simuljax.text.vocabulary import SOURCE_FILE, TARGET_FILE

HOURS = 20.0  # enough for five digits of the statistics; a larger corpus is sampled evenly


@dataclass(frozen=True, kw_only=True)
class TrainingInput:
    """Everything a training run needs of its corpus."""

    vocabularies: Vocabularies
    features: FeatureRecord
    train: Any  # iterator of batches; get_state, set_state
    valid: Callable[[], Iterable[Batch]]
    shapes: Callable[[], Iterable[Batch]]  # a batch of each shape that `train` yields
    steps_per_epoch: int
    description: str


def open_input(
    corpus: DataConfig, run: Path, *, seed: int, host: Host, devices: int, text_only: bool = False
) -> TrainingInput:
    """Open the corpus for this host; `init_run` must have written the run's files.

    `text_only` ignores the audio, for a model of text.
    """
    opened = open_corpus(corpus.directory)
    vocabularies, features = load_run(run)
    train, valid = (
        replace(tokenise_split(opened[name], vocabularies, corpus.task), text_only=text_only)
        for name in (corpus.train, corpus.valid)
    )
    check_rows(corpus.budget, devices)
    plan = _plan(train, corpus, seed=seed)
    source, lines = _source(corpus, train, plan, host, devices), [describe_plan(plan)]
    parts: list[tuple[BatchSource, Plan]] = [(source, plan)]
    steps = plan.steps_per_epoch
    if corpus.text is not None:
        text = tokenise_split(open_corpus(corpus.text)[corpus.train], vocabularies, corpus.task)
        text_plan = _plan(text, corpus, seed=seed)
        texts = Batches(examples=text, plan=text_plan, host=host)
        parts.append((texts, text_plan))
        source = Mixed(speech=source, text=texts, text_per_speech=corpus.text_per_speech)
        lines += [f"with {corpus.text_per_speech:g} text batches for each batch of speech:"]
        lines += [describe_plan(text_plan)]
        steps = round(steps * (1 + corpus.text_per_speech))
    valid_plan = _plan(valid, corpus, shuffle=False)
    valid_source = Batches(examples=valid, plan=valid_plan, host=host)
    threads = 8 if isinstance(source, Batches) or corpus.held == "disk" else 0
    return TrainingInput(
        vocabularies=vocabularies,
        features=features,
        train=iterate(source, threads=threads, ahead=threads),
        valid=lambda: (valid_source[step] for step in range(valid_plan.steps_per_epoch)),
        shapes=lambda: (each[step] for each, plan in parts for step in plan.first_steps()),
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
    vocabularies = _vocabularies(corpus, split)
    run.mkdir(parents=True, exist_ok=True)
    record_used_data(run, corpus.tables())
    save_features(run / FEATURES_FILE, _run_features(corpus, split))
    vocabularies.source.save(run / SOURCE_FILE)
    vocabularies.target.save(run / TARGET_FILE)


def load_run(run: Path) -> tuple[Vocabularies, FeatureRecord]:
    """Read what `init_run` wrote."""
    source, target = load(run / SOURCE_FILE), load(run / TARGET_FILE)
    return Vocabularies(source=source, target=target), load_features(run / FEATURES_FILE)


def check_rows(budget: Budget, devices: int) -> None:
    """Raise CorpusError if batches do not divide among the devices."""
    if budget.row_multiple % devices:
        raise CorpusError(
            f"batches have a multiple of {budget.row_multiple} rows, which does not divide among "
            f"{devices} devices: set --data.budget.row-multiple to a multiple of {devices}"
        )


def _plan(examples: Examples, corpus: DataConfig, *, seed: int = 0, shuffle: bool = True) -> Plan:
    try:
        return make_plan(examples.lengths, corpus.budget, seed=seed, shuffle=shuffle)
    except ValueError as error:
        where = f"{corpus.directory}, split {examples.split.name}"
        raise CorpusError(f"{where}: {error} (--data.budget)") from error


def _source(
    corpus: DataConfig, train: Examples, plan: Plan, host: Host, devices: int
) -> BatchSource:
    if corpus.held == "disk" or train.text_only:
        return Batches(examples=train, plan=plan, host=host)
    if devices > 1:
        raise CorpusError(
            f"--data.held device needs one device, not {devices}: set --data.held disk"
        )
    from data_pipelines.resident import ResidentBatches, load_resident

    return ResidentBatches(resident=load_resident(train), plan=plan, host=host)


def _vocabularies(corpus: DataConfig, split: Split) -> Vocabularies:
    if corpus.vocabularies_of is not None:
        return load_run(corpus.vocabularies_of)[0]
    table = split.table
    targets = table.translation if corpus.task == "translation" else table.transcript
    sources = table.transcript if any(table.transcript) else targets
    return Vocabularies(
        source=_learn(sources, corpus.source), target=_learn(targets, corpus.target)
    )


def _learn(texts: Iterable[str], config: VocabularyConfig) -> Vocabulary:
    vocabulary = learn(texts, config)
    if vocabulary.note:
        print(vocabulary.note)
    return vocabulary


def _run_features(corpus: DataConfig, split: Split) -> FeatureRecord:
    """Return the statistics of the preparation, or compute them for other features or splits."""
    if not np.any(split.table.samples):  # text alone: statistics that change nothing
        zeros, ones = (np.full(corpus.features.dims, value, np.float32) for value in (0, 1))
        neutral = Statistics(mean=zeros, std=ones, frames=0)
        return FeatureRecord(features=corpus.features, statistics=neutral)
    prepared = corpus.directory / STATISTICS
    if corpus.train == "train" and prepared.exists():
        record = load_features(prepared)
        if record.features == corpus.features:
            return record
    return feature_record(split, corpus.features)


def feature_record(split: Split, features: Features | None = None) -> FeatureRecord:
    """Compute mean and variance of the features over a split, or over 20 hours of it."""
    import jax

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
        audio = np.zeros((planned.shape.rows, planned.shape.audio), np.int16)
        real = planned.rows[planned.rows >= 0]
        stored = split.source.__getitems__(rows[real].tolist())
        for padded, example in zip(audio, stored, strict=False):
            padded[: len(example["audio"])] = example["audio"]
        values = np.asarray(compute(audio))
        for value, length in zip(values, samples[real], strict=False):
            moments = moments.add(value[: frame_count(int(length), features.filterbank)])
    return FeatureRecord(features=features, statistics=moments.statistics())
