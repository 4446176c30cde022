"""`simuljax evaluate` of an offline run under every policy: in batches and live, the same words."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from simuljax.cli import main as cli
from simuljax.config.evaluation import Evaluation
from simuljax.config.fields import ConfigError
from simuljax.config.model import Monotonic, SpeechConfig
from simuljax.eval import read_records
from simuljax.models.joint import JointModel
from simuljax.runs.evaluate import evaluate, plan_evaluations
from simuljax.runs.train import train
from simuljax.serve.run import open_run
from simuljax.text import VocabularyConfig
from simuljax.train.checkpoint import Checkpoints
from tests.helpers import models
from tests.helpers.experiments import experiment

pytest.importorskip("espeakng_loader", reason="needs `pip install 'simuljax[speech]'`")
pytestmark = pytest.mark.slow

LIMIT = {"length_ratio": 0.4, "length_constant": 4}
POLICIES = {
    "wait-k": {"k": 2, "force_finish": True, "step_ms": 200},
    "wait-k ctc": {"k": 1, "units": "ctc", "convention": "stacl", "avoid_eos_while_reading": True},
    "fixed-steps": {"first_ms": 500, "step_ms": 150, "tokens": 1},
    "local-agreement": {"agree": 2, "read_ms": 400},
    "local-agreement beam": {"beam": 2, "read_ms": 400},
    "align-att": {"last_frames": 4, "read_ms": 200},
    "ed-att": {"last_frames": 4, "alpha": 0.2, "read_ms": 200},
    "tests/decode/own_policy.py:Patient": {"share": 0.3, "read_ms": 200},
}


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "offline"
    joint = experiment(corpus, run)
    speech = SpeechConfig(layers=2, shared=1, channels=16, ctc_after=1)
    monotonic = Monotonic(policy="offline")
    model = dataclasses.replace(joint.model, speech=speech, monotonic=monotonic, output="own")
    pieces = VocabularyConfig(kind="unigram", size=90)
    data = dataclasses.replace(joint.data, target=pieces)
    train(dataclasses.replace(joint, model=model, data=data))
    talk(run)
    return run


def talk(run: Path) -> None:
    """What little it has learnt in place of which it writes many different words."""
    params = models.parameters(JointModel(open_run(run).model), seed=6)["params"]
    checkpoints = Checkpoints(run / "checkpoints")
    checkpoints.save(9, {"params": params, "statistics": {}}, {})
    checkpoints.close()


def asked(run: Path, name: str, **changes) -> Evaluation:
    given: dict[str, Any] = (
        {"checkpoint": "last", "policy": name.split()[0]} | POLICIES[name] | LIMIT | changes
    )
    return Evaluation.of(run=run, frames=8_000, **given)


@pytest.mark.parametrize("name", POLICIES)
def test_in_batches_and_live(trained, name):
    evaluate(streamed := asked(trained, name))
    evaluate(live := asked(trained, name, mode="live", repeats=1, first=4))
    whole, early = read_records(streamed.folder), 0
    for held, heard in zip(whole, read_records(live.folder), strict=False):
        assert (held.prediction, held.delays) == (heard.prediction, heard.delays)
        early += sum(delay < held.source_length - 1 for delay in held.delays)
    assert early > 3, "nothing was written before the end: this shows little"


def test_on_the_command_line(trained, capsys):
    given = ["--policy", "alignatt", "--branch", "text", "--sweep", "last_frames=1,3"]
    cli.main(["evaluate", str(trained), *given, "--force-finish"])
    assert "alignatt-f3-finish" in capsys.readouterr().out


def test_refused_before_anything_is_translated(trained):
    with pytest.raises(ConfigError, match="layer is 3"):
        plan_evaluations(asked(trained, "align-att", layer=3))
    with pytest.raises(ConfigError, match="a text has none"):
        plan_evaluations(asked(trained, "fixed-steps", branch="text"))
