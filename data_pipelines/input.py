"""The input of a training run: vocabularies, feature statistics and batches of a prepared corpus.

The vocabularies and the statistics are written into the run's directory when it starts, and read
from there when it resumes: they stay the same whatever happens to the corpus. A run has started
once it has a config.json; from then on, settings of its data are not to change.
"""

import functools
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np
from tqdm import tqdm

from data_pipelines.batches import (
    Batches,
    Examples,
    Host,
    Mixed,
    Vocabularies,
    iterate,
    load_resident,
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
from data_pipelines.plan import Lengths, Plan, describe_plan, make_plan
from data_pipelines.utterance import CorpusError
from simuljax.audio import (
    RATE,
    FeatureRecord,
    Features,
    Moments,
    extract,
    frame_count,
    load_features,
    neutral,
    save_features,
)
from simuljax.audio.features import FILE_NAME as FEATURES_FILE
from simuljax.audio.filterbank import SHIFT
from simuljax.batch import Data
from simuljax.config.experiment import CONFIG_FILE, Budget, DataConfig
from simuljax.text import Words, learn, load
from simuljax.text.vocabulary import SOURCE_FILE, TARGET_FILE

HOURS = 20.0  # enough for five digits of the statistics; a larger corpus is sampled evenly


@dataclass(frozen=True, kw_only=True)
class TrainingInput(Data):
    """Everything a training run needs of its corpus."""

    vocabularies: Vocabularies
    description: str


def open_input(
    corpus: DataConfig,
    run: Path,
    *,
    seed: int,
    host: Host,
    devices: int,
    text_only: bool = False,
    transcribed: bool = False,
    decides_at: str = "",
) -> TrainingInput:
    """Open the corpus for this host; `init_run` must have written the run's files.

    `text_only` ignores the audio, for a model of text. `transcribed` and `decides_at` (words,
    phonemes) demand transcripts and times of what the model trains on.
    """
    opened = open_corpus(corpus.directory)
    vocabularies, features = load_inputs(run)
    recorded = opened[corpus.train]
    if corpus.joining.active:
        recorded = join(recorded, corpus.joining, seed)
    train, valid = (
        replace(tokenise_split(split, vocabularies, corpus.task), text_only=text_only)
        for split in (recorded, opened[corpus.valid])
    )
    for split in (train, valid):
        _check_complete(split, corpus, transcribed, "" if text_only else decides_at)
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
        _check_complete(text, replace(corpus, directory=corpus.text), True)
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
        valid_shapes=lambda: (valid_source[step] for step in valid_plan.first_steps()),
        steps_per_epoch=steps,
        description="\n".join(lines),
    )


def init_run(corpus: DataConfig, run: Path) -> None:
    """Write the run's vocabularies and feature statistics, unless they exist.

    If the run has no config.json, they are of an attempt that failed, perhaps with other settings,
    and are made anew.
    """
    if (run / CONFIG_FILE).exists():
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


def _check_complete(
    examples: Examples, corpus: DataConfig, transcribed: bool, decides_at: str = ""
) -> None:
    """Raise CorpusError if a split lacks a text or times that the training needs."""
    where = f"{corpus.directory}, split {examples.split.name}"
    for side, lengths, needed in (
        ("transcript, which --model.text needs", examples.source.length, transcribed),
        (f"target, which --data.task {corpus.task} needs", examples.target.length, True),
    ):
        if needed and (lacking := int((lengths == 0).sum())):
            raise CorpusError(f"{where}: {lacking:,} of {len(lengths):,} examples have no {side}")
    counts = {"words": examples.split.table.words, "phonemes": examples.split.table.phonemes}
    if decides_at in counts and not counts[decides_at].any():
        raise CorpusError(
            f"{where} has no times of {decides_at}, at which the model decides: set another "
            "--model.predecision.kind, or prepare a corpus with them"
        )


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
    budget = Budget(frames=max(40_000, int(samples.max()) // SHIFT + 10), row_multiple=1)
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
