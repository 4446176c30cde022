"""What a training run is fed: vocabularies, statistics and batches of a prepared corpus.

The vocabularies and the feature statistics are written into the run's directory the first time, and
read from there ever after: a run that goes on hears and writes as it did before, whatever became of
the corpus.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines import contents
from data_pipelines import plan as plans
from data_pipelines.batches import (
    Batches,
    BatchSource,
    Examples,
    Host,
    Mixed,
    Vocabularies,
    iterate,
    tokenised,
)
from data_pipelines.moments import feature_record
from data_pipelines.plan import Plan, make_plan
from data_pipelines.prepared import STATISTICS, Split, open_corpus
from data_pipelines.resident import ResidentBatches, hold
from data_pipelines.tokens import tokenise
from data_pipelines.utterance import CorpusError
from simuljax.audio import FeatureRecord, Statistics, load_features, save_features
from simuljax.audio.statistics import FILE_NAME as FEATURES_FILE
from simuljax.batch import Batch
from simuljax.config.data import Budget, DataConfig
from simuljax.text import Vocabulary, VocabularyConfig, learn, load
from simuljax.text.vocabulary import SOURCE_FILE, TARGET_FILE


@dataclass(frozen=True, kw_only=True)
class Fed:
    """Everything a run needs of its corpus."""

    vocabularies: Vocabularies
    heard: FeatureRecord
    train: Any  # iterator of batches; get_state, set_state
    valid: Callable[[], Iterable[Batch]]
    shapes: Callable[[], Iterable[Batch]]  # a batch of each shape that `train` gives
    steps_per_epoch: int
    description: str


def feed(
    corpus: DataConfig, run: Path, *, seed: int, host: Host, devices: int, mute: bool = False
) -> Fed:
    """Opens the corpus for this host; the run's files must be there (`settle`).

    `mute` leaves the audio alone, for a model of text.
    """
    opened = open_corpus(corpus.directory)
    vocabularies, heard = read_settled(run)
    train, valid = (
        replace(examples_of(opened[name], vocabularies, corpus.task), mute=mute)
        for name in (corpus.train, corpus.valid)
    )
    check_rows(corpus.budget, devices)
    planned = _plan(train, corpus, seed=seed)
    source, lines = _source(corpus, train, planned, host, devices), [plans.describe(planned)]
    parts: list[tuple[BatchSource, Plan]] = [(source, planned)]
    steps = planned.steps_per_epoch
    if corpus.text is not None:
        text = examples_of(open_corpus(corpus.text)[corpus.train], vocabularies, corpus.task)
        text_plan = _plan(text, corpus, seed=seed)
        texts = Batches(examples=text, plan=text_plan, host=host)
        parts.append((texts, text_plan))
        source = Mixed(speech=source, text=texts, text_per_speech=corpus.text_per_speech)
        lines += [f"with {corpus.text_per_speech:g} batches of text to each of speech:"]
        lines += [plans.describe(text_plan)]
        steps = round(steps * (1 + corpus.text_per_speech))
    valid_plan = _plan(valid, corpus, shuffle=False)
    valid_source = Batches(examples=valid, plan=valid_plan, host=host)
    threads = 8 if isinstance(source, Batches) or corpus.held == "disk" else 0
    return Fed(
        vocabularies=vocabularies,
        heard=heard,
        train=iterate(source, threads=threads, ahead=threads),
        valid=lambda: (valid_source[step] for step in range(valid_plan.steps_per_epoch)),
        shapes=lambda: (each[step] for each, plan in parts for step in plan.firsts()),
        steps_per_epoch=steps,
        description="\n".join(lines),
    )


def settle(corpus: DataConfig, run: Path) -> None:
    """Writes the run's vocabularies and feature statistics, unless they are there."""
    contents.check(run, corpus.tables())
    if all((run / name).exists() for name in (SOURCE_FILE, TARGET_FILE, FEATURES_FILE)):
        return
    split = open_corpus(corpus.directory)[corpus.train]
    if not len(split):
        raise CorpusError(f"{corpus.directory} has no example in its split {corpus.train!r}")
    vocabularies = _vocabularies(corpus, split)
    run.mkdir(parents=True, exist_ok=True)
    contents.keep(run, corpus.tables())
    save_features(run / FEATURES_FILE, _heard(corpus, split))
    vocabularies.source.save(run / SOURCE_FILE)
    vocabularies.target.save(run / TARGET_FILE)


def read_settled(run: Path) -> tuple[Vocabularies, FeatureRecord]:
    """What `settle` wrote."""
    source, target = load(run / SOURCE_FILE), load(run / TARGET_FILE)
    return Vocabularies(source=source, target=target), load_features(run / FEATURES_FILE)


def examples_of(split: Split, vocabularies: Vocabularies, task: str) -> Examples:
    """The split with its texts as tokens; in transcription the transcript is the target."""
    if task == "translation":
        return tokenised(split, vocabularies)
    return Examples(
        split=split,
        source=tokenise(split.table.transcript, vocabularies.source),
        target=tokenise(split.table.transcript, vocabularies.target),
    )


def check_rows(budget: Budget, devices: int) -> None:
    """Refuses batches that do not divide among the devices."""
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
    corpus: DataConfig, train: Examples, planned: Plan, host: Host, devices: int
) -> BatchSource:
    if corpus.held == "disk" or train.mute:
        return Batches(examples=train, plan=planned, host=host)
    if devices > 1:
        raise CorpusError(
            f"a corpus is held in the memory of one device, and there are {devices}: set "
            "--data.held disk"
        )
    return ResidentBatches(resident=hold(train), plan=planned, host=host)


def _vocabularies(corpus: DataConfig, split: Split) -> Vocabularies:
    if corpus.vocabularies_of is not None:
        return read_settled(corpus.vocabularies_of)[0]
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


def _heard(corpus: DataConfig, split: Split) -> FeatureRecord:
    """The statistics that preparation left, or others where other features are asked for."""
    if not np.any(split.table.samples):  # text alone: statistics that change nothing
        zeros, ones = (np.full(corpus.features.dims, value, np.float32) for value in (0, 1))
        silence = Statistics(mean=zeros, std=ones, frames=0)
        return FeatureRecord(features=corpus.features, statistics=silence)
    left = corpus.directory / STATISTICS
    if corpus.train == "train" and left.exists():
        record = load_features(left)
        if record.features == corpus.features:
            return record
    return feature_record(split, corpus.features)
