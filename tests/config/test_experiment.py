"""Experiments: values are refused when they are given, and runs of earlier versions still open."""

import dataclasses
import json
from pathlib import Path

import pytest

from simuljax.config.data import Budget, DataConfig
from simuljax.config.experiment import Experiment, InitFrom, read_experiment
from simuljax.config.fields import ConfigError, settings
from simuljax.config.json import to_json
from simuljax.config.model import (
    DecoderWidth,
    ModelConfig,
    Monotonic,
    PreDecision,
    SpeechConfig,
    TextConfig,
    Width,
)
from simuljax.config.training import Cluster, Objective, Optimiser, Training
from simuljax.losses import JointObjective
from simuljax.models import presets

DECLARED = (
    *(Experiment, InitFrom, DataConfig, Budget, Training, Optimiser, Cluster, ModelConfig, Width),
    *(Monotonic, PreDecision, SpeechConfig, TextConfig, DecoderWidth),
)
NAN = float("nan")


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (Optimiser, "learning_rate", NAN),
        (Optimiser, "learning_rate", 0.0),
        (Optimiser, "betas", (0.9, 1.0)),
        (Optimiser, "warmup", -1),
        (Optimiser, "schedule", "linear"),
        (Training, "updates", -5),
        (Training, "epochs", 0.0),
        (Training, "log_every", 0),
        (Training, "seed", 1.5),
        (Training, "parallelism", "pjit"),
        (ModelConfig, "decoder_layers", 0),
        (ModelConfig, "joiner_layers", -1),
        (ModelConfig, "decoder", "rnn"),
        (Width, "heads", 0),
        (Width, "dropout", 1.0),
        (Width, "dtype", "float16"),
        (SpeechConfig, "layers", 0),
        (SpeechConfig, "ctc_after", 0),
        (TextConfig, "layers", 0),
        (Monotonic, "noise", -1.0),
        (Monotonic, "wait_k", (0, 3)),
        (PreDecision, "step_ms", 0),
        (Budget, "frames", 0),
        (Cluster, "processes", 0),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(kind, field, value):
    with pytest.raises(ConfigError) as refused:
        kind(**{field: value})
    assert f"{kind.__name__}.{field} is {value!r}; it must be " in str(refused.value)


@pytest.mark.parametrize("kind", DECLARED, ids=lambda kind: kind.__name__)
def test_every_field_has_a_help_text(kind):
    fields = {field.name for field in dataclasses.fields(kind)}
    assert fields == set(settings(kind))
    assert all(declared.help for declared in settings(kind).values())


def test_a_run_of_an_earlier_version_still_opens(tmp_path: Path):
    joint = JointObjective(distillation=0.1, latency=0.2, decision_teacher="stop")
    terms = joint.terms(distil_after=7, latency_after=9)
    now = Experiment(
        run=tmp_path,
        data=DataConfig(directory=Path("corpus"), task="transcription"),
        model=presets.tiny(),
        training=Training(parallelism="shard_map", objective=Objective(terms=terms)),
        init_from=(InitFrom(run=Path("donor")),),
    )
    stored = to_json(now)
    stored["corpus"], stored["begin"] = stored.pop("data"), stored.pop("init_from")
    stored["training"]["way"] = stored["training"].pop("parallelism")
    stored["model"]["monotonic"]["policy"] = "learnt"
    del stored["training"]["objective"]["terms"]
    stored["training"]["objective"]["joint"] = {"distillation": 0.1, "latency": 0.2}
    stored["training"] |= {"distil_after": 7, "latency_after": 9}
    stored["software"] = {"simuljax": "0.1"}
    (tmp_path / "config.json").write_text(json.dumps(stored))
    assert read_experiment(tmp_path) == now


def test_a_stored_field_that_does_not_exist_is_refused(tmp_path: Path):
    stored = {"data": {"directory": "x"}, "model": {}, "trainning": {}}
    (tmp_path / "config.json").write_text(json.dumps(stored))
    with pytest.raises(ConfigError, match=r"config\.json.*trainning.*'training'"):
        read_experiment(tmp_path)
