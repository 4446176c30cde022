"""A run: what it records and keeps, its phases, and that an interruption leaves no trace in it."""

import dataclasses
import json
import os
import signal
import sys
from pathlib import Path

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.fields import ConfigError
from simuljax.config.training import Training
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


def extra_of(run: Path, step: int) -> dict:
    return json.loads(next((run / "checkpoints" / str(step) / "extra").iterdir()).read_text())


def test_it_learns_and_records(whole):
    run, state = whole
    train, valid = values(run), values(run, "valid")
    assert int(state.step) == 8
    assert list(train) == [2, 4, 6, 8] and list(valid) == [4, 8]
    terms = {"mt_nll", "mt_latency", "mt_variance"}
    assert {*terms, *(f"weighted_{term}" for term in terms), "loss"} < train[2].keys()
    assert train[8]["loss"] < train[2]["loss"]
    assert valid[8]["mt_nll"] < valid[4]["mt_nll"]


def test_the_last_update_is_validated(go, tmp_path):
    go(tmp_path, updates=6)
    assert list(values(tmp_path, "valid")) == [4, 6]
    assert Checkpoints(tmp_path / "checkpoints").scored() == [4, 6]


def test_the_first_line_comes_after_the_first_update(go, tmp_path, capsys):
    go(tmp_path, updates=3)
    first, second, valid = capsys.readouterr().err.splitlines()
    assert first.startswith("step 1/3 | ") and "| compiled in " in first
    assert second.startswith("step 2/3 | ") and "tokens/s" in second and "compiled" not in second
    assert valid.startswith("step 3 | validation | ") and "mt_nll" in valid


def test_resuming_names_the_update(go, tmp_path, capsys):
    go(tmp_path, updates=4)
    assert "resumed" not in capsys.readouterr().out
    go(tmp_path, updates=6)
    assert "resumed from update 4" in capsys.readouterr().out


def test_a_run_that_was_stopped_goes_on_bit_for_bit(go, whole, tmp_path):
    go(tmp_path, updates=4)
    assert_same_bits(go(tmp_path), whole[1])
    resumed, uninterrupted = (read_metrics(run) for run in (tmp_path, whole[0]))
    assert [x["values"] for x in resumed] == [x["values"] for x in uninterrupted]


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


def test_a_truncated_checkpoint_is_named_and_passed_over(go, whole, tmp_path):
    go(tmp_path, updates=6)
    newest = tmp_path / "checkpoints" / "6"
    largest = max((f for f in newest.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-100])
    with pytest.warns(UserWarning, match=f"{newest} is damaged"):
        assert_same_bits(go(tmp_path), whole[1])


def test_updates_that_are_not_finite_are_left_out_and_named(go, tmp_path, capsys):
    with pytest.raises(FloatingPointError, match=r"update 10 was left out.*the 9 before it"):
        go(tmp_path, begin=broken, updates=12, validate_every=100)
    said = capsys.readouterr().err
    assert "update 1 was left out: its gradient is not finite" in said and "mt_nll" in said


def test_patience_ends_a_run(go, tmp_path):
    state = go(tmp_path, begin=broken, patience=2, validate_every=1)  # NaN is never the best
    assert int(state.step) == 2
    assert json.loads((tmp_path / ENDED).read_text()) == {"step": 2, "by": "patience"}


def test_epochs_end_a_run(go, tmp_path):
    assert int(go(tmp_path, epochs=1.5).step) == 5  # of 3 batches


def test_latency_counts_after_some_updates_without_compiling(go, whole, tmp_path):
    compiled: list[str] = []

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        if "backend_compile" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    state = go(tmp_path / "two", objective=small.objective(latency_after=5, distil_after=3))
    assert compiled == []
    jnp.cos(jnp.ones(7)).block_until_ready()
    assert compiled != []  # it does notice
    train = values(tmp_path / "two")
    assert [train[step]["weighted_mt_latency"] > 0 for step in (2, 4, 6, 8)] == [0, 0, 1, 1]
    assert all(train[step]["mt_latency"] > 0 for step in train)
    late = {"objective": small.objective(latency_after=5)}
    go(tmp_path / "resumed", updates=7, **late)
    assert_same_bits(go(tmp_path / "resumed", **late), state)


def test_latency_counts_after_convergence(go, tmp_path):
    state = go(
        tmp_path,
        begin=broken,
        objective=small.objective(latency_after="convergence"),
        patience=2,
        validate_every=1,
    )
    assert int(state.step) == 4  # twice the patience
    assert [extra_of(tmp_path, step)["watch"]["converged"] for step in (2, 3, 4)] == [2, 2, 2]
    with pytest.raises(ConfigError, match="set patience"):
        Training(objective=small.objective(latency_after="convergence"))


def test_the_best_is_that_of_the_phase(go, tmp_path):
    go(tmp_path, updates=8, objective=small.objective(latency_after=4), validate_every=2)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert checkpoints.scored() == [6, 8] and checkpoints.best() in (6, 8)
    assert set(checkpoints.steps()) & {2, 4}  # the best of the phase before stays


@pytest.mark.parametrize("by", ["loss", "accuracy", "loss_and_latency"])
def test_the_best_is_by_the_loss_the_tokens_that_are_right_or_latency_too(go, tmp_path, by):
    go(tmp_path, updates=4, validate_every=2, keep_last=4, best_by=by)
    measure = {
        "loss": lambda value: -value["mt_nll"],
        "accuracy": lambda value: value["mt_accuracy"] - 1.0,
        "loss_and_latency": lambda value: (
            -value["mt_nll"]
            - weights["mt_latency"] * value["mt_latency"]
            - weights["mt_variance"] * value["mt_variance"]
        ),
    }[by]
    weights = runs.training().objective.weights()
    assert weights["mt_latency"]
    scores = {step: measure(value) for step, value in values(tmp_path, "valid").items()}
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert {step: checkpoints.manifest(step).score for step in scores} == pytest.approx(scores)
    assert checkpoints.best() == max(scores, key=lambda step: (scores[step], -step))


def test_one_every_so_often_is_kept(go, tmp_path):
    go(tmp_path, updates=8, keep_every=3, keep_last=1, keep_best=0)
    assert Checkpoints(tmp_path / "checkpoints").steps() == [3, 6, 8]


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


def test_begin_changes_the_first_parameters_alone(go, whole, tmp_path):
    asked = []

    def begin(params):
        asked.append(params)
        return jax.tree.map(lambda leaf: leaf + 0, params)

    go(tmp_path, begin=begin, updates=4)
    assert_same_bits(go(tmp_path, begin=begin), whole[1])
    assert len(asked) == 1


@pytest.mark.slow
def test_every_term_of_the_joint_objective_is_recorded(tmp_path):
    batches = [small.batch(rows=4, seed=0)]
    data = dataclasses.replace(runs.data(), train=small.Cycle(batches), valid=lambda: batches)
    member = TrainingRun(tmp_path, runs.training(updates=2, validate_every=2))
    fit([member], small.translator(), data)
    terms = {"st_nll", "mt_nll", "kd", "car", "dar", "st_latency", "mt_latency", "st_variance"}
    recorded = values(tmp_path)[2].keys()
    assert {*terms, *(f"weighted_{term}" for term in terms)} < recorded
    assert terms < values(tmp_path, "valid")[2].keys()
