"""A term of an experiment file: computed, weighted, scheduled, logged, stored."""

import dataclasses
import re
from pathlib import Path

import jax
import numpy as np
import pytest

from simuljax.config.fields import ConfigError
from simuljax.config.json import from_json, to_json
from simuljax.config.loading import load_module
from simuljax.config.model import Monotonic
from simuljax.config.training import Training
from simuljax.losses import Term
from simuljax.train.loop import TrainingRun, alike, fit
from simuljax.train.run_log import read_metrics
from simuljax.train.transfer import load
from tests.train import runs, small

PLAIN = small.translator(speech=None, monotonic=Monotonic(policy="offline"))
DOCS = Path(__file__).parents[2] / "docs" / "extending.md"


@pytest.fixture(scope="module")
def example(tmp_path_factory) -> Path:
    """The file of the documentation."""
    (code,) = re.findall(r'```python title="entropy.py"\n(.*?)```', DOCS.read_text(), re.S)
    assert len(code.splitlines()) <= 20
    path = tmp_path_factory.mktemp("own") / "entropy.py"
    path.write_text(code)
    return path


def training(path: Path, weight: float, **changes) -> Training:
    term = Term(name="entropy", function=f"{path}:entropy", weight=weight, start=2)
    given = runs.training(method="sgd", updates=4, log_every=1, random="threefry")
    given = dataclasses.replace(given, validate_every=99)
    objective = dataclasses.replace(given.objective, terms=(*given.objective.terms, term))
    return dataclasses.replace(given, objective=objective, order=0, **changes)


def train_values(run: Path) -> dict[int, dict[str, float]]:
    return {line["step"]: line["values"] for line in read_metrics(run) if line["split"] == "train"}


def test_the_example_declares_its_term(example):
    objective = load_module(example).OBJECTIVE
    (term,) = [each for each in objective.terms if each.name == "entropy"]
    assert term.kind.endswith("entropy.py:entropy")
    assert from_json(type(objective), to_json(objective)) == objective


@pytest.mark.slow
def test_runs_with_two_weights_share_an_update(example, tmp_path):
    weights = {"none": 0.0, "some": -0.5}
    trainings = {name: training(example, weight) for name, weight in weights.items()}
    assert alike(trainings["none"]) == alike(trainings["some"])
    members = [TrainingRun(tmp_path / name, each) for name, each in trainings.items()]
    fit(members, PLAIN, runs.data())
    none, some = (train_values(tmp_path / name) for name in weights)
    assert all(0 < values["entropy"] < np.log(30) for values in some.values())
    assert [some[step]["weighted_entropy"] for step in (1, 2)] == [0, 0]  # not yet
    for step in (3, 4):
        expected = pytest.approx(-0.5 * some[step]["entropy"], rel=1e-5)
        assert some[step]["weighted_entropy"] == expected
    assert none[3]["loss"] == pytest.approx(some[3]["loss"] + 0.5 * some[3]["entropy"], rel=1e-4)
    first, second = (jax.device_get(load(tmp_path / name, "last").params) for name in weights)
    moved = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), first, second)
    assert max(jax.tree.leaves(moved["decoder"])) > 1e-5  # its gradient arrived


def test_a_function_that_sums_over_sentences_is_refused(tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text("def total(outputs):\n    return outputs.text.logits.sum(), 1.0\n")
    given = runs.training()
    terms = (*given.objective.terms, Term(name="total", function=f"{path}:total"))
    objective = dataclasses.replace(given.objective, terms=terms)
    with pytest.raises(ConfigError, match="'total' must return value and weight"):
        member = TrainingRun(tmp_path / "run", dataclasses.replace(given, objective=objective))
        fit([member], runs.MODEL, runs.data())
