"""A run: what it records and keeps, its phases, and that an interruption leaves no trace in it."""

import dataclasses
import json
import math
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.fields import ConfigError
from simuljax.config.model import Monotonic
from simuljax.config.training import Objective, Training
from simuljax.losses import JointObjective, Term, TermSum
from simuljax.profile.measure import counted_programs
from simuljax.train import cluster
from simuljax.train.checkpoint import Checkpoints
from simuljax.train.flops import forward_flops, peak_flops
from simuljax.train.forward import Forward
from simuljax.train.loop import Interruption, Loop, Phase, TrainingRun
from simuljax.train.run import ENDED, load_params
from simuljax.train.step import CompiledUpdate
from tests.train import runs, small
from tests.train.overfitting import compiling_quickly
from tests.train.states import assert_same_bits


@pytest.fixture(scope="module")
def go(driver):
    """Trains with what was compiled for all of these tests."""

    def run(where: Path, data=None, begin=None, **changes):
        training = runs.training(**{"updates": 8} | changes)
        member = TrainingRun(where, training, begin)
        return Loop([member], driver, data or runs.data()).run()

    return run


@pytest.fixture(scope="module")
def whole(go, tmp_path_factory):
    """A run without interruption."""
    run = tmp_path_factory.mktemp("whole")
    return run, go(run)


def values(run: Path, split: str = "train") -> dict[int, dict[str, float]]:
    return {line["step"]: line["values"] for line in runs.metrics(run) if line["split"] == split}


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


def test_a_process_says_where_it_is(go, tmp_path, monkeypatch):
    """So that one that lags is named."""
    places = []
    monkeypatch.setattr(cluster, "at", places.append)
    go(tmp_path, updates=2, validate_every=2)
    updates = [f"{where}update {n}" for n in (1, 2) for where in ("reading the batch of ", "")]
    ends = ["validation after update 2", *["saving after update 2"] * 2]  # once more at the end
    begins = ["compiling the update", "taking the first parameters"]
    assert places == ["reading the last checkpoint", *begins, *updates, *ends]


def test_of_speech_and_text_in_turn_the_updates_of_speech_are_logged(go, tmp_path):
    speech = runs.BATCHES[0]
    nothing = {"audio": speech.audio[:, :0], "audio_length": 0 * speech.audio_length}
    text = dataclasses.replace(speech, **nothing)
    mixed = [speech, text]

    def data():
        return dataclasses.replace(runs.data(), train=small.Cycle(mixed), shapes=lambda: mixed)

    go(tmp_path / "whole", data(), updates=7)
    for last in (4, 7):  # update 4 is of text: what is due then is logged after the interruption
        go(tmp_path / "cut", data(), updates=last)
    assert [*values(tmp_path / "whole")] == [*values(tmp_path / "cut")] == [3, 5, 7]


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
    with pytest.raises(SystemExit, match="0"), Interruption(tmp_path):
        os.kill(os.getpid(), signal.SIGTERM)
    assert str(tmp_path) in capsys.readouterr().err


def test_an_update_that_is_left_out_does_not_move_the_learning_rate(driver):
    state, weights = driver.first([broken]), small.weights_of(driver)
    rates = []
    for _ in range(3):
        state, report = driver.update(state, runs.BATCHES[:1], weights)
        rates.append(float(report.learning_rate))
    assert int(state.step) == 3 and rates == [0.0] * 3


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
    ends = {"updates": 100, "epochs": 2.5}  # of 3 batches
    go(tmp_path, objective=late, validate_every=2, keep_every=5, best_by="accuracy", **ends)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert checkpoints.scored() == [6, 8] and checkpoints.best() in (6, 8)
    assert 5 in checkpoints.steps()
    scores = [checkpoints.manifest(step).score for step in (6, 8)]
    right = [values(tmp_path, "valid")[step]["mt_accuracy"] - 1.0 for step in (6, 8)]
    assert scores == pytest.approx(right)
    assert set(checkpoints.steps()) & {2, 4}  # the best of the phase before stays


JOINT = JointObjective(latency=0.1, variance=0.2, distillation=0.3)
LATE = {"st_latency", "mt_latency", "st_variance", "mt_variance"}


def test_weights_follow_the_schedule() -> None:
    objective = Objective(terms=JOINT.terms(distil_after=10, latency_after="convergence"))
    full = objective.weights()
    off = dict.fromkeys(LATE, 0.0)
    assert objective.weights_at(0, None) == full | off | {"kd": 0.0}
    assert objective.weights_at(9, 9) == full | {"kd": 0.0}
    assert objective.weights_at(10, 9) == full
    term = Term(name="kd", weight=0.4, start=2, ramp=4)
    weights = [term.weight_at(step, None) for step in range(8)]
    assert weights == [0, 0, 0.1, 0.2, 0.4 * 0.75, 0.4, 0.4, 0.4]


def watching(where: Path, joint: JointObjective = JOINT, after: Any = 5, **changes) -> TrainingRun:
    objective = Objective(terms=joint.terms(latency_after=after))
    return TrainingRun(where, Training(objective=objective, **changes))


def test_the_best_and_the_patience(tmp_path) -> None:
    run = watching(tmp_path, patience=1)
    for loss, since in ((math.nan, 1), (3.0, 0), (3.0, 1), (math.nan, 2), (2.0, 0)):
        assert run.see(loss) == (since == 0) and run.phase.since == since
    assert run.phase.best == 2.0 and not run.is_tired()


def test_a_phase_starts_once_and_a_term_of_weight_0_starts_none(tmp_path) -> None:
    run = watching(tmp_path, patience=1)
    run.see(math.nan)
    run.advance(4)
    assert run.phase.phase_start == 0 and run.is_tired() and not run.is_converged(4)
    run.advance(5)
    run.see(1.0)
    run.advance(6)
    assert (run.phase.phase_start, run.phase.best) == (5, 1.0)
    ramp = tuple(dataclasses.replace(t, ramp=3) for t in run.training.objective.terms)
    slow = TrainingRun(tmp_path, Training(objective=Objective(terms=ramp), patience=1))
    for step, start in ((5, 2), (6, 2), (7, 7)):
        slow.see(math.nan)
        assert not slow.is_converged(6)
        slow.advance(step)
        assert slow.phase.phase_start == start and slow.weights(7)["st_latency"] == JOINT.latency
    idle = watching(tmp_path, JointObjective(), patience=1)
    idle.see(math.nan)
    idle.advance(5)
    assert idle.phase.phase_start == 0 and idle.is_converged(0)


@pytest.mark.parametrize(
    ("by", "value"),
    [("loss", 2.0), ("accuracy", 0.25), ("loss_and_latency", 2.0 + 0.1 * 3.0 + 0.2 * 4.0)],
)
def test_what_is_least_for_the_best(tmp_path, by, value) -> None:
    run = watching(tmp_path, after=1, best_by=by)
    run.open(0, 9, 3.0, console=False)
    sums = {"mt_nll": 4.0, "mt_latency": 6.0, "mt_variance": 8.0}
    held = {name: TermSum(jnp.float32(sum_), jnp.float32(2.0)) for name, sum_ in sums.items()}
    right = {"mt_accuracy": TermSum(jnp.float32(3.0), jnp.float32(4.0))}
    found = run.log_validation(2, Forward(sums=held, logged=right, statistics={}))
    run.close()
    assert found == pytest.approx(value)


def test_convergence_starts_a_phase_and_forgets_the_best(tmp_path) -> None:
    run = watching(tmp_path, after="convergence", patience=2)
    for step, loss in enumerate((3.0, 2.0, 2.5, 2.6), start=1):
        run.see(loss)
        run.advance(step)
    assert run.phase == Phase(best=None, since=0, phase_start=4, converged=4)
    run.see(2.9)
    assert run.phase.best == 2.9


def test_the_end() -> None:
    assert Training(updates=100).last_update(7) == 100
    assert Training(updates=100, epochs=3, accumulate=2).last_update(7) == 11  # it is complete
    assert Training(updates=10, epochs=3, accumulate=2).last_update(7) == 10


def test_products_convolutions_and_loops_are_counted() -> None:
    left, right = jnp.ones((5, 3, 4)), jnp.ones((5, 4, 7))
    assert forward_flops(jax.lax.batch_matmul, left, right) == 2 * 5 * 3 * 4 * 7
    image, kernel = jnp.ones((2, 6, 10)), jnp.ones((8, 6, 3))
    convolve = lambda x, k: jax.lax.conv(x, k, (2,), "SAME")  # noqa: E731
    assert forward_flops(convolve, image, kernel) == 2 * (2 * 8 * 5) * (6 * 3)

    def layers(x):
        body = jax.checkpoint(lambda x, w: (jnp.tanh(x @ w), None))
        return jax.lax.scan(body, x, jnp.ones((6, 4, 4)))[0]

    loop = 6 * (2 * 3 * 4 * 4)
    assert forward_flops(layers, jnp.ones((3, 4))) == loop
    assert forward_flops(jax.jit(jax.vmap(layers)), jnp.ones((2, 3, 4))) == 2 * loop
    choice = lambda x: jax.lax.cond(x.sum() > 0, layers, lambda x: x, x)  # noqa: E731
    assert forward_flops(choice, jnp.ones((3, 4))) == loop


def test_an_update_counts_all_devices_and_all_batches(driver: CompiledUpdate) -> None:
    few, many = (small.batch(rows=rows, seconds=0.1) for rows in (4, 8))
    assert driver.flops([many]) == pytest.approx(2 * driver.flops([few]), rel=0.01)
    assert driver.flops([few, many]) == driver.flops([few]) + driver.flops([many])
    width, tokens = runs.MODEL.width, 4 * 7
    layer = 4 * width.model**2 + 2 * width.model * width.hidden  # at the least, of the decoder
    assert driver.flops([few]) > 6 * layer * tokens


def test_peaks() -> None:
    peaks = {"NVIDIA H100 80GB HBM3": 989e12, "TPU v5 lite": 197e12, "TPU v5p": 459e12, "cpu": None}
    assert {kind: peak_flops(kind) for kind in peaks} == peaks


MODEL = dataclasses.replace(
    runs.MODEL,
    width=dataclasses.replace(runs.MODEL.width, dropout=0.3),
    monotonic=Monotonic(attention="hard", noise=0.0, bias=0.0),
)
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
    runs.fit(members, MODEL)


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Iterator[Path]:
    where = tmp_path_factory.mktemp("pair")
    with compiling_quickly():
        together(where)
        yield where


def losses(run: Path) -> list[float]:
    return [line["values"]["loss"] for line in runs.metrics(run) if line["split"] == "train"]


def params(run: Path):
    return jax.device_get(load_params(run, "last").params)


@pytest.mark.slow
@pytest.mark.parametrize("seed", LAMBDAS)
def test_each_is_as_if_it_were_alone(pair, seed, tmp_path):
    runs.fit([TrainingRun(tmp_path, training(seed, LAMBDAS[seed]))], MODEL)
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


@pytest.mark.slow
def test_a_run_that_converges_ends_while_the_others_go_on(tmp_path, monkeypatch):
    given = {"patience": 1, "validate_every": 2, "updates": 8, "log_every": 1}
    members = [
        TrainingRun(tmp_path / str(seed), training(seed, latency, **given))
        for seed, latency in LAMBDAS.items()
    ]
    for member, losses in zip(members, (range(9), range(9, 0, -1)), strict=True):
        see, falls = member.see, iter(losses)
        monkeypatch.setattr(member, "see", lambda _, see=see, falls=falls: see(next(falls)))
    runs.fit(members, MODEL)
    ended = [json.loads((tmp_path / str(seed) / ENDED).read_text()) for seed in LAMBDAS]
    assert ended == [{"step": 4, "by": "patience"}, {"step": 8, "by": "updates"}]
    for member, last in zip(members, (4, 8), strict=True):
        assert max(values(member.run)) == max(values(member.run, "valid")) == last
        assert member.checkpoints.steps()[-1] == last


def test_what_counts_for_one_is_computed_for_all():
    counts = small.objective()
    not_at_all = counts.without_weights()
    hotter = small.objective(decision_temperature=2.0)
    assert counts.without_weights() == not_at_all.without_weights() != hotter.without_weights()
    assert not_at_all.computing([counts]) == counts == counts.computing([not_at_all])
    assert not_at_all.computing(each for each in [counts]) == counts
    taught = small.objective(decision_teacher="frozen")  # its parameters are saved
    assert taught.without_weights() == taught.with_weights(dar=2.0).without_weights()
    assert taught.without_weights() != taught.with_weights(dar=0.0).without_weights()
