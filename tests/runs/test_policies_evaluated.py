"""`simuljax evaluate` of an offline run under every policy, and of a CAAT."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simuljax.cli import main as cli
from simuljax.config.decoding import Beam, Blocks
from simuljax.config.evaluation import Evaluation
from simuljax.config.model import Monotonic, PreDecision, SpeechConfig
from simuljax.config.training import Objective
from simuljax.decode.policies import FixedSteps
from simuljax.eval import read_records
from simuljax.losses import JointObjective
from simuljax.models.joint import JointModel
from simuljax.runs.evaluate import evaluate
from simuljax.runs.train import train
from simuljax.serve import translator as live
from simuljax.serve.run import open_run
from simuljax.text import VocabularyConfig
from simuljax.train.checkpoint import Checkpoints
from tests.helpers import models
from tests.helpers.experiments import PATIENT, experiment

pytestmark = pytest.mark.slow


pytest.importorskip("espeakng_loader", reason="needs `pip install 'simuljax[speech]'`")
LIMIT = {"length_ratio": 0.4, "length_constant": 4}
POLICIES = {
    "wait-k": {"k": 2, "force_finish": True, "step_ms": 200},
    "wait-k ctc": {"k": 1, "units": "ctc", "convention": "stacl", "avoid_eos_while_reading": True},
    "fixed-steps": {"first_ms": 500, "step_ms": 150, "tokens": 1},
    "local-agreement beam": {"beam": 2, "read_ms": 400},
    "align-att": {"last_frames": 4, "read_ms": 200},
    "ed-att": {"last_frames": 4, "alpha": 0.2, "read_ms": 200},
    "patient": {"policy": PATIENT, "share": 0.3, "read_ms": 200},
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


ALONE = JointObjective(
    distillation=0.0,
    cross_attentive=0.0,
    decision_attentive=0.0,
    translation=0.0,
    transducer=1.0,
    transducer_delay=1.0,
)


@pytest.fixture(scope="module")
def caat_run(corpus, tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("caat")
    given = experiment(corpus, place / "run")
    speech = SpeechConfig(kind="streaming", layers=1, shared=0, channels=16)
    model = dataclasses.replace(
        given.model,
        speech=speech,
        text=None,
        decoder="caat",
        joiner_layers=1,
        predecision=PreDecision(step_ms=640),
        monotonic=Monotonic(policy="offline"),
    )
    objective = Objective(terms=ALONE.terms())
    training = dataclasses.replace(given.training, objective=objective, updates=60)
    train(dataclasses.replace(given, model=model, training=training))
    return place / "run"


def test_the_record_has_both_terms(caat_run):
    lines = [json.loads(line) for line in (caat_run / "metrics.jsonl").read_text().splitlines()]
    assert {"transducer", "transducer_delay", "st_nll"} <= lines[0]["values"].keys()
    nll = [line["values"]["transducer"] for line in lines if line["split"] == "valid"]
    assert nll[-1] < nll[0]


def test_live_and_in_batches_it_writes_the_same(caat_run):
    streamed = Evaluation(
        run=caat_run, split="test", frames=8_000, first=3, blocks=Blocks(inside=2)
    )
    lived = dataclasses.replace(streamed, mode="live", repeats=1)
    evaluate(streamed)
    evaluate(lived)
    assert streamed.folder.name.endswith("inside2-first3")
    one, other = read_records(lived.folder), read_records(streamed.folder)
    for a, b in zip(one, other, strict=True):
        assert a.prediction == b.prediction
        assert a.delays == pytest.approx(b.delays)
    assert any(record.prediction for record in one)


def test_it_is_an_offline_model_too(caat_run):
    offline = Evaluation(run=caat_run, split="test", frames=8_000, first=2, mode="offline")
    offline = dataclasses.replace(offline, beam=Beam(size=2))
    evaluate(offline)
    steps = FixedSteps(first_ms=640, step_ms=640, tokens=2)
    policy = dataclasses.replace(offline, mode="streamed", beam=None, policy=steps)
    evaluate(policy)
    assert any(record.prediction for record in read_records(policy.folder))


def test_many_streams_at_once_write_what_one_does(caat_run):
    translator = live.load(caat_run, "last")
    sound = 0.1 * tone(3.0)
    stream = translator.stream()
    alone = [word.text for word in stream.push(sound) + stream.finish()]
    with translator.engine(streams=3) as engine:
        seats = [engine.open() for _ in range(2)]
        for seat in seats:
            seat.push(sound)
            seat.finish()
        assert [[word.text for word in seat] for seat in seats] == [alone, alone]


def tone(seconds: float) -> np.ndarray:
    time = np.arange(int(16_000 * seconds)) / 16_000
    return np.sin(2 * np.pi * 300 * time * (1 + time)).astype(np.float32)
