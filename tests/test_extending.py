"""A policy, a loss term, an encoder, an experiment and a grid of a user: examples of the docs."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import simuljax
from simuljax.ablate.grid import load_grid
from simuljax.config.experiment import Experiment, load_experiments
from simuljax.config.fields import ConfigError, from_json, to_json
from simuljax.config.loading import load_module
from simuljax.config.model import Monotonic, SpeechConfig
from simuljax.config.training import Objective, Training
from simuljax.decode import reencoding
from simuljax.decode.policies import Policy, PolicyError, policy_class
from simuljax.decode.reencoding import simulate_speech
from simuljax.losses import Term
from simuljax.models.parameters import by_path
from simuljax.train.loop import TrainingRun
from simuljax.train.run import load_params
from tests.helpers import models, streams
from tests.helpers.experiments import documented
from tests.helpers.streams import DECODING, HEARD
from tests.train import runs, small
from tests.written_runs import write_run

FILE = documented("own_policy.py")
OFFLINE = Monotonic(policy="offline")
STEP_MS = models.STEP * 40


@pytest.fixture(scope="module")
def speaker():
    return streams.translator(seed=6, monotonic=OFFLINE)


@pytest.fixture(scope="module")
def material():
    return streams.material(1, 3, 14_400)


def patient(share: float) -> Policy:
    patient: Any = policy_class(f"{FILE}:Patient")
    return patient(share=share)


def simulated(speaker, material, policy):
    decoding = models.changed(DECODING, policy=policy)
    given = (material.features[material.ended], material.amounts[material.ended])
    given = (speaker.network, speaker.variables, *given)
    how = {"decoding": decoding, "filterbank": HEARD.filterbank}
    return jax.device_get(simulate_speech(*given, **how))


def test_the_class_of_a_policy_is_one_class_and_has_its_own_options():
    assert policy_class(f"{FILE}:Patient") is policy_class(f"{FILE}:Patient")
    assert patient(0.3).numbers() == {"share": 0.3} and patient(0.3).name == "patient"
    wrong = {f"{FILE}:Step": "Step", f"{FILE}:No": "'No'", "no.py:X": "no.py", "gredy": "'gredy'"}
    for name, fact in wrong.items():
        with pytest.raises(ConfigError, match=fact):
            policy_class(name)
    with pytest.raises(PolicyError, match="share is 2"):
        patient(2.0)


def test_a_policy_streams_live_and_is_simulated_and_swept(speaker, material):
    """Words of a stream are those of the batch; another share compiles nothing, and differs."""
    found = []
    before = models.compilations(reencoding._speech)
    for share in (0.1, 0.8):
        policy = patient(share)
        done = simulated(speaker, material, policy)
        for row, recording in enumerate(material.recordings if share == 0.1 else ()):
            stream = speaker.stream(
                decoding=models.changed(DECODING, policy=policy), states=300, tokens=100
            )
            said = streams.listened(stream, recording, material.cuts[row])
            if len(recording) % (STEP_MS * 16):
                assert said.tokens == done.tokens[row, : done.lengths[row]].tolist()
        found.append(done)
    assert models.compilations(reencoding._speech) == before + 1
    means = [done.delays.sum() / done.lengths.sum() for done in found]
    assert means[0] < means[1], means


PLAIN = small.translator(speech=None, monotonic=OFFLINE)
ENTROPY = documented("entropy.py")


def training(weight: float, **changes) -> Training:
    term = Term(name="entropy", function=f"{ENTROPY}:entropy", weight=weight, start=2)
    given = runs.training(method="sgd", updates=4, log_every=1, random="threefry")
    given = dataclasses.replace(given, validate_every=99)
    objective = dataclasses.replace(given.objective, terms=(*given.objective.terms, term))
    return dataclasses.replace(given, objective=objective, order=0, **changes)


def train_values(run: Path) -> dict[int, dict[str, float]]:
    return {line["step"]: line["values"] for line in runs.metrics(run) if line["split"] == "train"}


def test_a_term_is_declared_and_stored_by_name():
    objective = load_module(ENTROPY).OBJECTIVE
    (term,) = [each for each in objective.terms if each.name == "entropy"]
    assert term.kind.endswith("entropy.py:entropy")
    assert from_json(type(objective), to_json(objective)) == objective


@pytest.mark.slow
def test_runs_with_two_weights_share_an_update(tmp_path):
    weights = {"none": 0.0, "some": -0.5}
    trainings = {name: training(weight) for name, weight in weights.items()}
    none, some = (each.without_seed_and_weights() for each in trainings.values())
    assert none == some
    members = [TrainingRun(tmp_path / name, each) for name, each in trainings.items()]
    runs.fit(members, PLAIN)
    none, some = (train_values(tmp_path / name) for name in weights)
    assert all(0 < values["entropy"] < np.log(30) for values in some.values())
    assert [some[step]["weighted_entropy"] for step in (1, 2)] == [0, 0]  # not yet
    for step in (3, 4):
        expected = pytest.approx(-0.5 * some[step]["entropy"], rel=1e-5)
        assert some[step]["weighted_entropy"] == expected
    assert none[3]["loss"] == pytest.approx(some[3]["loss"] + 0.5 * some[3]["entropy"], rel=1e-4)
    first, second = (
        jax.device_get(load_params(tmp_path / name, "last").params) for name in weights
    )
    moved = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), first, second)
    assert max(jax.tree.leaves(moved["decoder"])) > 1e-5  # its gradient arrived


def test_a_term_that_sums_over_sentences_is_refused(tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text("def total(outputs):\n    return outputs.text.logits.sum(), 1.0\n")
    given = runs.training()
    terms = (*given.objective.terms, Term(name="total", function=f"{path}:total"))
    objective = dataclasses.replace(given.objective, terms=terms)
    with pytest.raises(ConfigError, match="'total' must return value and weight"):
        member = TrainingRun(tmp_path / "run", dataclasses.replace(given, objective=objective))
        runs.fit([member], PLAIN)


GRU: SpeechConfig = dataclasses.replace(load_module(documented("gru.py")).SPEECH, channels=16)


def test_an_encoder_is_stored_by_name():
    assert GRU.kind.endswith("gru.py:GRUEncoder")
    assert from_json(SpeechConfig, to_json(GRU)) == GRU
    with pytest.raises(ConfigError, match="conformer"):
        SpeechConfig(kind="confromer")


def test_an_encoder_is_trained():
    model = small.translator(speech=GRU, text=None, monotonic=OFFLINE)
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


def test_an_encoder_streams(tmp_path):
    loaded = simuljax.load(write_run(tmp_path / "run", speech=GRU, seed=4))
    sound = np.random.default_rng(0).normal(0, 0.1, 24_000).astype(np.float32)
    spoken = []
    for size in (1_600, 7_000):
        stream = loaded.stream()
        early = [w for at in range(0, len(sound), size) for w in stream.push(sound[at : at + size])]
        spoken.append([word.text for word in (*early, *stream.finish())])
        assert early  # before the end
    assert spoken[0] == spoken[1]


def test_the_files_of_a_new_corpus_declare_experiments_and_a_grid():
    """docs/own_corpus.md and docs/ablations.md, with the files beside each other."""
    mine = documented("mine.py", "own_corpus", 24)
    (first,) = load_experiments(mine).values()
    (second,) = load_experiments(documented("early.py", "own_corpus", 24)).values()
    assert second.init_from[0].run == first.run != second.run
    assert second.training.objective.weight("st_latency") > 0
    grid = load_grid(documented("distillation.py", "ablations", 32))
    trained = {n: each for n, each in grid.variants.items() if isinstance(each, Experiment)}
    weights = {name: each.training.objective.weight("kd") for name, each in trained.items()}
    assert weights == {"none": 0.0, "kd": pytest.approx(0.2)}
    grid = load_grid(documented("dar_latency.py", "ablations", 40))
    assert list(grid.curves) == list(grid.table) and all(len(v) == 2 for v in grid.curves.values())
    late = grid.variants["dar0.01_lambda0.1"]
    assert isinstance(late, Experiment)
    assert late.init_from[0].run == grid.variants["dar0.01"].run
    assert late.training.objective.weight("mt_latency") == pytest.approx(0.1)
