"""Directories of runs that nobody trained: random translators, whose words mean nothing."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from simuljax.audio import FeatureRecord, Features, Filterbank, Statistics, save_features
from simuljax.config.experiment import DataConfig, Experiment
from simuljax.config.fields import write_json
from simuljax.config.model import ModelConfig, Monotonic
from simuljax.text import Vocabulary, VocabularyConfig, learn
from simuljax.text.vocabulary import SOURCE_FILE, TARGET_FILE
from simuljax.train.checkpoint import CHECKPOINTS, Checkpoints
from simuljax.train.run import AVERAGED
from tests.helpers.models import parameters, translator

WORDS = ["".join(letters) for letters in itertools.permutations("abcd", 3)]
PIECES = learn(WORDS * 3, VocabularyConfig(kind="bpe", size=80))  # of which most are whole words
WAIT_2 = Monotonic(policy="wait_k", wait_k=(1, 3))  # so that something comes at every READ
UPDATES = 7
BINS = 10


def write_run(
    directory: Path,
    *,
    source: Vocabulary = PIECES,
    target: Vocabulary = PIECES,
    task: str = "translation",
    corpus: Path = Path("nowhere"),
    seed: int = 2,
    **changes: Any,
) -> Path:
    """Of a small translator; other sizes and choices of it by name."""
    sizes: dict[str, Any] = {
        "source_vocabulary": source.size,
        "target_vocabulary": target.size,
        "features": BINS,
    }
    model = translator(changes.pop("monotonic", WAIT_2), **sizes | changes)
    params = parameters(model, seed=seed)["params"]
    config = experiment_of(directory, model.config, corpus, task)
    return write_files(config, params, {}, source=source, target=target)


def experiment_of(
    directory: Path, model: ModelConfig, corpus: Path, task: Any = "translation"
) -> Experiment:
    """The experiment that such a run would have had."""
    features = Features(filterbank=Filterbank(bins=model.features))
    return Experiment(
        run=directory,
        data=DataConfig(directory=corpus, task=task, features=features),
        model=model,
    )


def write_files(
    config: Experiment,
    params: Any,
    statistics: Any,
    *,
    source: Vocabulary = PIECES,
    target: Vocabulary = PIECES,
) -> Path:
    """All that `open_run` needs and `load_checkpoint` loads, the average of checkpoints too."""
    directory, bins = config.run, config.model.features
    directory.mkdir(parents=True)
    write_json(directory / "config.json", config)
    mean, std = np.full(bins, 9.0, np.float32), np.full(bins, 3.0, np.float32)
    record = FeatureRecord(
        features=Features(filterbank=Filterbank(bins=bins)),
        statistics=Statistics(mean=mean, std=std, frames=1),
    )
    save_features(directory / "features.json", record)
    source.save(directory / SOURCE_FILE)
    target.save(directory / TARGET_FILE)
    for folder in (CHECKPOINTS, AVERAGED):
        checkpoints = Checkpoints(directory / folder)
        state = {"params": params, "statistics": statistics}
        checkpoints.save(UPDATES, state, {"steps": [UPDATES]})
        checkpoints.close()
    return directory
