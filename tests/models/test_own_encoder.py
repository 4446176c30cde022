"""A speech encoder of an experiment file: trained, stored, streamed."""

import dataclasses
import re
from pathlib import Path

import jax
import numpy as np
import pytest

import simuljax
from simuljax.config.fields import ConfigError
from simuljax.config.json import from_json, to_json
from simuljax.config.loading import load_module
from simuljax.config.model import Monotonic, SpeechConfig
from simuljax.config.training import Objective
from simuljax.train.transfer import by_path
from tests.train import small
from tests.written_runs import write_run

DOCS = Path(__file__).parents[2] / "docs" / "extending.md"


@pytest.fixture(scope="module")
def speech(tmp_path_factory) -> SpeechConfig:
    """The encoder of the documentation."""
    (code,) = re.findall(r'```python title="gru.py"\n(.*?)```', DOCS.read_text(), re.S)
    assert len(code.splitlines()) <= 20
    path = tmp_path_factory.mktemp("own") / "gru.py"
    path.write_text(code)
    return dataclasses.replace(load_module(path).SPEECH, channels=16)


def test_it_is_stored_by_name(speech):
    assert speech.kind.endswith("gru.py:GRUEncoder")
    assert from_json(SpeechConfig, to_json(speech)) == speech
    with pytest.raises(ConfigError, match="conformer"):
        SpeechConfig(kind="confromer")


def test_it_is_trained(speech):
    model = small.translator(speech=speech, text=None, monotonic=Monotonic(policy="offline"))
    alone = dataclasses.replace(small.ALONE, latency=0.0, variance=0.0)
    update = small.update(model, objective=Objective(terms=alone.terms()))
    compiled = small.compiled(update)
    state, batch, weights = compiled.first(), small.batch(4), small.weights_of(compiled)
    before = jax.device_get(state.params["speech"])
    losses = []
    for _ in range(6):
        state, report = compiled.update(state, [batch], weights)
        losses.append(float(report.loss.total))
    assert losses[-1] < losses[0]
    moved = jax.tree.map(
        lambda a, b: np.abs(a - b).max(), before, jax.device_get(state.params["speech"])
    )
    assert all(change > 0 for name, change in by_path(moved).items() if "kernel" in name)


def test_it_streams(speech, tmp_path):
    loaded = simuljax.load(write_run(tmp_path / "run", speech=speech, seed=4))
    sound = np.random.default_rng(0).normal(0, 0.1, 24_000).astype(np.float32)
    spoken = []
    for size in (1_600, 7_000):
        stream = loaded.stream()
        early = [w for at in range(0, len(sound), size) for w in stream.push(sound[at : at + size])]
        spoken.append([word.text for word in (*early, *stream.finish())])
        assert early  # before the end
    assert spoken[0] == spoken[1]
