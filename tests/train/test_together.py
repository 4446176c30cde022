"""Runs that are trained together: each as if it were alone."""

import dataclasses
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from simuljax.config.training import Training
from simuljax.train.loop import ENDED, TrainingRun, fit
from simuljax.train.run_log import read_metrics
from simuljax.train.transfer import load
from tests.train import runs, small

MODEL = dataclasses.replace(runs.MODEL, width=dataclasses.replace(runs.MODEL.width, dropout=0.3))
LAMBDAS = {0: 0.0, 1: 0.2}  # by seed


def training(seed: int, latency: float, **changes) -> Training:
    """With lambda 0 nothing else counts either, so that all of it is computed for nothing."""
    weights = {"latency": latency}
    if not latency:
        weights |= dict.fromkeys(["decision_attentive", "distillation", "cross_attentive"], 0.0)
    given = {"objective": small.objective(**weights), "random": "threefry"}
    given |= {"updates": 6, "order": 0, "seed": seed, "method": "sgd"}  # Adam makes much of noise
    return runs.training(**given | changes)


def together(where: Path, **changes) -> None:
    members = [
        TrainingRun(where / str(seed), training(seed, latency, parallelism="pmap", **changes))
        for seed, latency in LAMBDAS.items()
    ]
    fit(members, MODEL, runs.data())


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Path:
    where = tmp_path_factory.mktemp("pair")
    together(where)
    return where


def losses(run: Path) -> list[float]:
    return [line["values"]["loss"] for line in read_metrics(run) if line["split"] == "train"]


def params(run: Path):
    return jax.device_get(load(run, "last").params)


@pytest.mark.slow
@pytest.mark.parametrize("seed", LAMBDAS)
def test_each_is_as_if_it_were_alone(pair, seed, tmp_path):
    fit([TrainingRun(tmp_path, training(seed, LAMBDAS[seed]))], MODEL, runs.data())
    np.testing.assert_allclose(losses(pair / str(seed)), losses(tmp_path), rtol=1e-4)
    jax.tree.map(
        lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5),
        params(pair / str(seed)),
        params(tmp_path),
    )
    assert (pair / str(seed) / ENDED).read_text() == (tmp_path / ENDED).read_text()


@pytest.mark.slow
def test_an_interruption_leaves_no_trace_and_seeds_and_weights_differ(pair, tmp_path):
    together(tmp_path, updates=4)
    together(tmp_path)
    for seed in LAMBDAS:
        kept, whole = params(tmp_path / str(seed)), params(pair / str(seed))
        jax.tree.map(np.testing.assert_array_equal, kept, whole)
        assert losses(tmp_path / str(seed)) == losses(pair / str(seed))
    first, second = (losses(pair / str(seed)) for seed in LAMBDAS)
    assert len(first) == len(second) == 3 and abs(first[0] - second[0]) > 1e-3
    shutil.rmtree(tmp_path / "1")
    with pytest.raises(ValueError, match="must stand at the same update"):
        together(tmp_path)


def test_other_differences_are_refused(tmp_path):
    unlike = [training(0, 0.0), training(1, 0.0, order=1)]
    members = [TrainingRun(tmp_path / str(each.seed), each) for each in unlike]
    with pytest.raises(ValueError, match="may differ in their seeds"):
        fit(members, MODEL, runs.data())


def test_what_counts_for_one_is_computed_for_all():
    counts = small.objective()
    not_at_all = counts.without_weights()
    hotter = small.objective(decision_temperature=2.0)
    assert counts.without_weights() == not_at_all.without_weights() != hotter.without_weights()
    assert not_at_all.computing([counts]) == counts == counts.computing([not_at_all])
    assert not_at_all.computing(each for each in [counts]) == counts
