"""The fine-tuning recipe trains from a manifest and a run, for a domain and another language."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from data_pipelines.corpora import Manifest
from data_pipelines.prepare import Preparation, prepare
from simuljax.config.experiment import CONFIG_FILE, DATA, Budget, load_experiments
from simuljax.config.fields import to_json, write_json
from simuljax.config.training import Objective
from simuljax.models.parameters import by_path
from simuljax.runs.train import train
from simuljax.text import VocabularyConfig
from simuljax.train.run import load_checkpoint, open_run
from tests.helpers.corpora import write_hums
from tests.helpers.experiments import FEW_TERMS, experiment
from tests.train.overfitting import compiling_quickly

FILE = Path(__file__).parents[2] / "experiments/real_speech/fine_tune.py"
SMALL = VocabularyConfig(kind="characters", size=60)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Iterator[Path]:
    """A run of two updates on a manifest of hums."""
    place = tmp_path_factory.mktemp("base")
    prepare(Preparation(corpus=Manifest()), write_hums(place / "hums"), place / "data", 1)
    given = experiment(place / "data", place / "run")
    with compiling_quickly():
        train(replace(given, training=replace(given.training, updates=2)))
        yield place


def test_nothing_of_the_bases_corpora_is_trained_on(tmp_path, monkeypatch):
    given = experiment(tmp_path / "data", tmp_path / "run")
    data = replace(given.data, text=tmp_path / "text", train="other", task="transcription")
    (tmp_path / "run").mkdir()
    write_json(tmp_path / "run" / CONFIG_FILE, to_json(replace(given, data=data)))
    monkeypatch.setenv("SIMULJAX_BASE", str(tmp_path / "run"))
    for fine_tuned in load_experiments(FILE).values():
        used = {split: (DATA / "mine", split) for split in ("train", "valid")}
        assert (fine_tuned.data.tables(), fine_tuned.data.task) == (used, "translation")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["domain", "language"])
def test_two_updates(base, name, monkeypatch, capsys):
    monkeypatch.setenv("SIMULJAX_BASE", str(base / "run"))
    given = load_experiments(FILE)[name]
    budget = Budget(frames=8_000, tokens=4_000, row_multiple=4, shapes=1)
    data = replace(given.data, directory=base / "data", budget=budget, source=SMALL, target=SMALL)
    objective = replace(given.training.objective, terms=Objective(terms=FEW_TERMS.terms()).terms)
    training = replace(given.training, updates=2, validate_every=2, objective=objective, seed=7)
    run = base / name
    state = train(replace(given, run=run, data=data, training=training))
    params = by_path(jax.device_get(state.params))
    said = capsys.readouterr().out
    assert f"parameters from {base / 'run'}" in said and "left: other shape      0" in said
    before = by_path(jax.device_get(load_checkpoint(open_run(base / "run"), "best").params))
    kernel = "decoder/layer/feed_forward/inner/kernel"
    moved = np.abs(params[kernel] - before[kernel]).max()
    assert 0 < moved < 1e-3  # it starts where the base ended
    words = "decoder/embedding/embedding"
    assert (np.abs(params[words] - before[words]).max() < 1e-3) == (name == "domain")
    assert open_run(run).config.data.joining.utterances == 2
