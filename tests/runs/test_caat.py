"""A CAAT from `simuljax train` to `simuljax evaluate`, like any other translator."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from simuljax.config.decoding import Beam, Blocks
from simuljax.config.evaluation import Evaluation
from simuljax.config.fields import ConfigError
from simuljax.config.model import Monotonic, PreDecision, SpeechConfig
from simuljax.config.training import Objective
from simuljax.decode.policies import AlignAtt, FixedSteps
from simuljax.eval import read_records
from simuljax.losses import JointObjective
from simuljax.runs.evaluate import evaluate
from simuljax.runs.train import train
from simuljax.serve import translator as live
from tests.helpers.experiments import experiment

pytestmark = pytest.mark.slow  # compiles much

pytest.importorskip("espeakng_loader", reason="needs `pip install 'simuljax[speech]'`")
ALONE = JointObjective(
    distillation=0.0,
    cross_attentive=0.0,
    decision_attentive=0.0,
    translation=0.0,
    transducer=1.0,
    transducer_delay=1.0,
)


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory) -> Path:
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


def test_the_record_has_both_terms(trained):
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert {"transducer", "transducer_delay", "st_nll"} <= lines[0]["values"].keys()
    nll = [line["values"]["transducer"] for line in lines if line["split"] == "valid"]
    assert nll[-1] < nll[0]


def test_live_and_in_batches_it_writes_the_same(trained):
    streamed = Evaluation(run=trained, split="test", frames=8_000, first=3, blocks=Blocks(inside=2))
    lived = dataclasses.replace(streamed, mode="live", repeats=1)
    evaluate(streamed)
    evaluate(lived)
    assert streamed.folder.name.endswith("inside2-first3")
    one, other = read_records(lived.folder), read_records(streamed.folder)
    for a, b in zip(one, other, strict=True):
        assert a.prediction == b.prediction
        assert a.delays == pytest.approx(b.delays)
    assert any(record.prediction for record in one)


def test_it_is_an_offline_model_too(trained):
    offline = Evaluation(run=trained, split="test", frames=8_000, first=2, mode="offline")
    offline = dataclasses.replace(offline, beam=Beam(size=2))
    evaluate(offline)
    steps = FixedSteps(first_ms=640, step_ms=640, tokens=2)
    policy = dataclasses.replace(offline, mode="streamed", beam=None, policy=steps)
    evaluate(policy)
    assert any(record.prediction for record in read_records(policy.folder))
    with pytest.raises(ConfigError, match=r"alignatt.*CAAT"):
        evaluate(dataclasses.replace(policy, policy=AlignAtt(frames=2)))


def test_many_streams_at_once_write_what_one_does(trained):
    translator = live.load(trained, "last")
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
