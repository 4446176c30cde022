"""A run: what it records and keeps, its phases, and that an interruption leaves no trace in it."""

import dataclasses
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.fields import ConfigError
from simuljax.config.model import SpeechConfig
from simuljax.config.training import Training
from simuljax.profile.measure import counted_programs
from simuljax.train.checkpoint import Checkpoints
from simuljax.train.loop import ENDED, Interruption, TrainingRun, fit
from simuljax.train.run_log import read_metrics
from simuljax.train.transfer import load
from tests.train import runs, small
from tests.train.states import assert_same_bits


@pytest.fixture(scope="module")
def go(driver):
    """Trains with what was compiled for all of these tests."""

    def run(where: Path, data=None, begin=None, **changes):
        training = runs.training(**{"updates": 8} | changes)
        member = TrainingRun(where, training, begin)
        return fit([member], runs.MODEL, data or runs.data(), compiled=driver)

    return run


@pytest.fixture(scope="module")
def whole(go, tmp_path_factory):
    """A run without interruption."""
    run = tmp_path_factory.mktemp("whole")
    return run, go(run)


def values(run: Path, split: str = "train") -> dict[int, dict[str, float]]:
    return {line["step"]: line["values"] for line in read_metrics(run) if line["split"] == split}


def broken(params):
    return jax.tree.map(lambda leaf: leaf * jnp.nan, params)


def test_it_learns_and_records(whole):
    run, state = whole
    train, valid = values(run), values(run, "valid")
    assert int(state.step) == 8
    assert list(train) == [2, 4, 6, 8] and list(valid) == [4, 8]
    terms = {"mt_nll", "mt_latency", "mt_variance"}
    assert {*terms, *(f"weighted_{term}" for term in terms), "loss"} < train[2].keys()
    assert train[8]["loss"] < train[2]["loss"]
    assert valid[8]["mt_nll"] < valid[4]["mt_nll"]


def test_a_run_that_was_stopped_goes_on_bit_for_bit(go, whole, tmp_path, capsys):
    """From its last update, which was validated, or the checkpoint before if that is damaged."""
    run, cut, begun = tmp_path / "run", tmp_path / "cut", []

    def begin(params):  # changes the first parameters alone
        begun.append(params)
        return jax.tree.map(lambda leaf: leaf + 0, params)

    go(run, begin=begin, updates=6)
    said = capsys.readouterr()
    first, second, *_, valid = said.err.splitlines()
    assert first.startswith("step 1/6 | ") and "| compiled in " in first
    assert second.startswith("step 2/6 | ") and "tokens/s" in second and "compiled" not in second
    assert valid.startswith("step 6 | validation | ") and "mt_nll" in valid
    assert Checkpoints(run / "checkpoints").scored() == [4, 6] and "resumed" not in said.out
    newest = shutil.copytree(run, cut) / "checkpoints" / "6"
    largest = max((f for f in newest.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-100])
    assert_same_bits(go(run, begin=begin), whole[1])
    assert "resumed from update 6" in capsys.readouterr().out
    assert values(run) == values(whole[0]) and len(begun) == 1
    with pytest.warns(UserWarning, match=f"{newest} is damaged"):
        assert_same_bits(go(cut), whole[1])


def test_a_run_that_is_told_to_stop_saves_first(go, whole, tmp_path):
    data = runs.data()
    train = data.train
    assert isinstance(train, runs.Paused)
    train.pause = lambda: os.kill(os.getpid(), signal.SIGTERM) if train.place == 6 else None
    before = signal.getsignal(signal.SIGTERM)
    assert int(go(tmp_path, data).step) == 7
    assert not (tmp_path / ENDED).exists()  # there is more to do
    assert signal.getsignal(signal.SIGTERM) == before
    assert Checkpoints(tmp_path / "checkpoints").steps() == [4, 7]
    assert_same_bits(go(tmp_path), whole[1])


def test_sigterm_before_the_first_update_ends_with_a_sentence(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit, match="0"), Interruption() as stop, stop.ends_at_once(tmp_path):
        os.kill(os.getpid(), signal.SIGTERM)
    assert str(tmp_path) in capsys.readouterr().err


def test_updates_that_are_not_finite_are_left_out_and_named(go, tmp_path, capsys):
    with pytest.raises(FloatingPointError, match=r"update 10 was left out.*the 9 before it"):
        go(tmp_path, begin=broken, updates=12, validate_every=100)
    said = capsys.readouterr().err
    assert "update 1 was left out: its gradient is not finite" in said and "mt_nll" in said


def test_latency_counts_after_some_updates_without_compiling(go, whole, tmp_path):
    late = {"objective": small.objective(latency_after=5)}
    with counted_programs() as programs:
        state = go(tmp_path / "two", objective=small.objective(latency_after=5, distil_after=3))
        assert programs == []
        jnp.cos(jnp.ones(7)).block_until_ready()
    assert programs != []  # it does notice
    train = values(tmp_path / "two")
    assert [train[step]["weighted_mt_latency"] > 0 for step in (2, 4, 6, 8)] == [0, 0, 1, 1]
    assert all(train[step]["mt_latency"] > 0 for step in train)
    go(tmp_path / "resumed", updates=7, **late)
    assert_same_bits(go(tmp_path / "resumed", **late), state)


def test_latency_counts_after_convergence_and_patience_ends_a_run(go, tmp_path):
    """NaN is never the best."""
    late = small.objective(latency_after="convergence")
    state = go(tmp_path, begin=broken, objective=late, patience=2, validate_every=1)
    assert int(state.step) == 4  # twice the patience
    assert json.loads((tmp_path / ENDED).read_text()) == {"step": 4, "by": "patience"}
    for step in (2, 3, 4):
        extra = next((tmp_path / "checkpoints" / str(step) / "extra").iterdir())
        assert json.loads(extra.read_text())["watch"]["converged"] == 2
    with pytest.raises(ConfigError, match="set patience"):
        Training(objective=late)


def test_the_best_is_that_of_the_phase_and_epochs_end_a_run(go, tmp_path):
    late = small.objective(latency_after=4)
    go(tmp_path, updates=100, epochs=2.5, objective=late, validate_every=2)  # of 3 batches
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert checkpoints.scored() == [6, 8] and checkpoints.best() in (6, 8)
    assert set(checkpoints.steps()) & {2, 4}  # the best of the phase before stays


@pytest.mark.slow
@pytest.mark.parametrize("by", ["accuracy", "loss_and_latency"])
def test_the_best_is_by_the_tokens_that_are_right_or_latency_too(go, tmp_path, by):
    go(tmp_path, updates=4, validate_every=2, keep_last=1, keep_every=3, best_by=by)
    weights = runs.training().objective.weights()
    assert weights["mt_latency"]

    def measure(value):
        if by == "accuracy":
            return value["mt_accuracy"] - 1.0
        late = sum(weights[n] * value[n] for n in ("mt_latency", "mt_variance"))
        return -value["mt_nll"] - late

    scores = {step: measure(value) for step, value in values(tmp_path, "valid").items()}
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert checkpoints.steps() == [2, 3, 4]  # one every so often is kept
    assert {step: checkpoints.manifest(step).score for step in scores} == pytest.approx(scores)
    assert checkpoints.best() == max(scores, key=lambda step: (scores[step], -step))


@pytest.mark.slow
def test_the_checkpoints_around_the_best_are_averaged(go, tmp_path):
    go(tmp_path, updates=8, average=3, keep_last=1, keep_best=1, validate_every=2)
    averaged = load(tmp_path, "averaged")
    assert averaged.steps == (4, 6, 8)
    held = [load(tmp_path, step).params for step in averaged.steps]
    jax.tree.map(
        lambda got, *all_: np.testing.assert_allclose(got, np.mean(all_, axis=0), atol=1e-7),
        averaged.params,
        *held,
    )
    assert load(tmp_path, "best").steps == load(tmp_path, "last").steps == (8,)


@pytest.mark.slow
def test_all_terms_of_the_joint_objective_are_recorded_and_statistics_come_back(tmp_path):
    """Those of batch normalisation go through the loop: learnt, saved, and found again."""
    speech = SpeechConfig(kind="conformer", layers=2, shared=1, channels=16, kernel=3)
    batches = [small.batch(rows=4, seed=0)]
    data = dataclasses.replace(runs.data(), train=small.Cycle(batches), valid=lambda: batches)
    member = TrainingRun(tmp_path, runs.training(updates=2, validate_every=2))
    state = fit([member], small.translator(speech=speech), data)
    terms = {"st_nll", "mt_nll", "kd", "car", "dar", "st_latency", "mt_latency", "st_variance"}
    recorded = values(tmp_path)[2].keys()
    assert {*terms, *(f"weighted_{term}" for term in terms)} < recorded
    assert terms < values(tmp_path, "valid")[2].keys()
    learnt = jax.device_get(state.statistics)
    assert any(np.abs(leaf).max() not in (0, 1) for leaf in jax.tree.leaves(learnt))
    jax.tree.map(np.testing.assert_array_equal, learnt, load(tmp_path, "last").statistics)
