"""`simuljax train` and `simuljax evaluate` from files to files, and what they refuse."""

import dataclasses
import functools
import json
import math
import re
from pathlib import Path

import jax
import numpy as np
import pytest

from simuljax.cli import main as cli
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import Experiment, InitFrom, load_experiments
from simuljax.config.fields import ConfigError
from simuljax.config.model import SpeechConfig
from simuljax.eval import read_records
from simuljax.lock import TRAINING, locked
from simuljax.losses import JointObjective, Term
from simuljax.models import presets
from simuljax.runs import recordings
from simuljax.runs import train as training
from simuljax.runs.evaluate import evaluate, evaluate_all, plan_evaluations
from simuljax.runs.train import check_objective, train, write_config
from simuljax.train.checkpoint import CheckpointError
from simuljax.train.run import ENDED, load_checkpoint, load_params, open_run
from tests.helpers.experiments import FILE, experiment, text_alone

pytest.importorskip("espeakng_loader", reason="needs `pip install 'simuljax[speech]'`")


def small(corpus: Path, run: Path) -> Experiment:
    """Return a translator of speech alone, with what compiles in the least time."""
    built = experiment(corpus, run)
    heads = dataclasses.replace(built.model.monotonic, attention="hard")
    speech = SpeechConfig(layers=1, shared=0, channels=16)
    model = dataclasses.replace(built.model, monotonic=heads, speech=speech, text=None)
    terms = tuple(t for t in built.training.objective.terms if t.name.startswith("st_"))
    objective = dataclasses.replace(built.training.objective, terms=terms)
    training = dataclasses.replace(built.training, objective=objective)
    return dataclasses.replace(built, model=model, training=training)


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "speech"
    train(small(corpus, run))
    return run


def test_two_trainings_of_one_run_exclude_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "meet", lambda experiments: None)
    monkeypatch.setattr(training, "open_data", lambda *_: pytest.fail("it was not refused"))
    monkeypatch.setattr(training, "locked", functools.partial(locked, patience_s=0.0))
    with locked(tmp_path, name=TRAINING), pytest.raises(ConfigError, match=str(tmp_path)):
        train(experiment(tmp_path, tmp_path))


def test_runs_of_other_models_or_batches_are_not_trained_together(tmp_path):
    one = experiment(tmp_path / "corpus", tmp_path / "one")
    for changes in (
        {"model": dataclasses.replace(one.model, decoder_layers=2)},
        {"data": dataclasses.replace(one.data, directory=tmp_path)},
        {"training": dataclasses.replace(one.training, updates=5)},
    ):
        other = dataclasses.replace(one, run=tmp_path / "other", **changes)
        with pytest.raises(ConfigError, match=r"one and .*other cannot be trained together"):
            train(one, other)
        assert not other.run.exists()


def test_an_interruption_ends_all_groups_of_a_process(tmp_path, monkeypatch):
    one = experiment(tmp_path / "corpus", tmp_path / "one")
    other = dataclasses.replace(one, run=tmp_path / "other")
    begun = []
    monkeypatch.setattr(training, "by_last_update", lambda _: [[one], [other]])
    monkeypatch.setattr(training, "train_together", lambda group, _: begun.extend(group))
    train(one, other)
    assert begun == [one]
    one.run.mkdir()
    (one.run / ENDED).touch()
    train(one, other)
    assert begun == [one, one, other]


@pytest.mark.slow
def test_runs_of_one_process_that_stand_at_other_updates_are_trained_in_turn(corpus, tmp_path):
    built = text_alone(experiment(corpus, tmp_path / "first"))
    first, second = (
        dataclasses.replace(
            built, run=run, training=dataclasses.replace(built.training, seed=seed, order=0)
        )
        for seed, run in enumerate((built.run, tmp_path / "second"))
    )
    train(dataclasses.replace(first, training=dataclasses.replace(first.training, updates=2)))
    train(first, second)
    ended = [json.loads((each.run / ENDED).read_text()) for each in (first, second)]
    assert [each["step"] for each in ended] == [4, 4]


def test_a_run_has_all_that_is_needed_to_use_it(trained):
    run = open_run(trained)
    assert run.model.target_vocabulary == run.target.size > 10
    assert run.front_end.features.dims == 80
    params = load_checkpoint(run, "last").params
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert {line["split"] for line in lines} == {"train", "valid"}
    assert {"st_nll", "st_latency"} <= lines[0]["values"].keys()


def test_evaluation_writes_a_log_that_can_be_scored(trained):
    scores = evaluate(Evaluation(run=trained, split="test", frames=8_000))
    folder = trained / "eval" / "test-speech-streamed"
    records = read_records(folder)
    assert scores["n"] == len(records) == 6
    assert [record.index for record in records] == list(range(6))
    for held in records:
        assert all(0 < delay <= held.source_length + 1e-3 for delay in held.delays)
        assert len(held.delays) == len(held.prediction.split())
    assert json.loads((folder / "scores.json").read_text())["n"] == 6
    assert math.isfinite(scores["BLEU"])


@pytest.mark.slow
def test_a_report_shows_where_the_heads_write(trained, tmp_path):
    evaluate(Evaluation(run=trained, split="test", frames=8_000))
    picture = trained / "eval" / "test-speech-streamed" / "alignment.png"
    for _ in range(2):  # the second time it is there
        cli.main(["report", str(trained), "--out", str(tmp_path)])
        assert picture.read_bytes().startswith(b"\x89PNG")
    assert "alignment" in (tmp_path / "index.html").read_text()


def test_an_evaluation_goes_on_where_it_was_interrupted(trained):
    """Two utterances and half a line are there; they stay, and the rest is the same as before."""
    chosen = Evaluation(run=trained, split="test", frames=8_000)
    evaluate(chosen)
    log = chosen.folder / "instances.log"
    whole = log.read_text()
    lines = whole.splitlines(keepends=True)
    kept = [line.replace('"prediction": "', '"prediction": "kept ') for line in lines[:2]]
    log.unlink()
    (chosen.folder / "instances.log.part").write_text("".join(kept) + lines[2][:30])
    evaluate(chosen)
    assert log.read_text().splitlines(keepends=True)[2:] == lines[2:]
    assert "kept" in log.read_text()
    log.unlink()
    evaluate(chosen)
    assert log.read_text() == whole
    before = log.stat().st_mtime_ns
    evaluate(chosen)
    assert log.stat().st_mtime_ns == before
    named = dataclasses.replace(chosen, name=chosen.folder.name, threshold=0.4)
    with pytest.raises(ConfigError, match=r"threshold was 0\.5 and is 0\.4"):
        evaluate(named)


@pytest.mark.slow
def test_a_live_evaluation_has_a_clock_which_runs_when_all_is_compiled(trained, monkeypatch):
    streamed = Evaluation(run=trained, split="test", frames=8_000)
    live = dataclasses.replace(streamed, mode="live", repeats=2, first=3)
    play, heard = recordings.play, []

    def playing(stream, sound):
        heard.append(len(sound))
        return play(stream, sound)

    monkeypatch.setattr(recordings, "play", playing)
    scores = evaluate(live)
    assert heard[0] == max(heard[1:4]) and len(heard) == 8
    evaluate(streamed)
    one, other = read_records(live.folder), read_records(streamed.folder)
    assert len(one) == 3
    for a, b in zip(one, other, strict=False):
        assert (a.prediction, a.reference) == (b.prediction, b.reference)
        assert a.delays == pytest.approx(b.delays)
        assert all(e > d for e, d in zip(a.elapsed, a.delays, strict=True))
    assert (live.folder / "instances-2.log").exists()
    assert scores["computation_aware"]["AL"] > scores["AL"]
    with pytest.raises(ConfigError, match="--mode live"):
        evaluate(dataclasses.replace(live, branch="text"))


def test_a_sweep_has_a_curve(trained, capsys):
    chosen = Evaluation(run=trained, split="test", frames=8_000)
    asked, models = plan_evaluations(chosen, ("threshold=0.3,0.5",))
    assert len(evaluate_all(asked, models)) == 2
    counted = (models.open, models.load, models.check)
    assert [each.cache_info().misses for each in counted] == [1, 1, 2]
    assert (trained / "eval" / "test-speech-streamed-p0.3" / "instances.log").exists()
    assert (trained / "eval" / "curve.png").exists()
    assert "test-speech-streamed-p0.3" in capsys.readouterr().out


def test_parameters_come_from_another_run(corpus, trained, tmp_path, capsys):
    base = small(corpus, tmp_path / "second")
    begun = dataclasses.replace(
        base,
        data=dataclasses.replace(base.data, vocabularies_of=trained),
        init_from=(InitFrom(run=trained, checkpoint="last"),),
        training=dataclasses.replace(base.training, updates=0),
    )
    state = train(begun)
    wanted = load_checkpoint(open_run(trained), "last").params
    saved = load_checkpoint(open_run(begun.run), "best")
    assert saved.steps == (0,)
    jax.tree.map(np.testing.assert_array_equal, saved.params, wanted)
    for own, given in zip(jax.tree.leaves(state.params), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(np.asarray(own), np.asarray(given))
    assert "left: no rule          0" in capsys.readouterr().out


def test_embeddings_of_another_vocabulary_are_refused(corpus, trained, tmp_path):
    base = small(corpus, tmp_path / "third")
    other = dataclasses.replace(base.data.target, lowercase=True)
    begun = dataclasses.replace(
        base, data=dataclasses.replace(base.data, target=other), init_from=(InitFrom(run=trained),)
    )
    with pytest.raises(ConfigError, match=r"decoder/embedding.*vocabularies-of"):
        train(begun)


@pytest.fixture
def file(corpus, tmp_path) -> Path:
    path = tmp_path / "experiment.py"
    path.write_text(FILE.format(corpus=str(corpus), run=str(tmp_path / "run")))
    return path


@pytest.mark.parametrize(
    ("field", "value", "fact"),
    [("row-multiple", "2", "multiple of 4"), ("frames", "300", "raise the budget")],
)
def test_a_budget_that_cannot_be_is_refused(file, capsys, field, value, fact):
    assert jax.device_count() == 4
    with pytest.raises(SystemExit) as exit_:
        cli.main(["train", str(file), f"--data.budget.{field}", value])
    assert exit_.value.code == 1 and fact in capsys.readouterr().err


def test_what_may_change_when_a_run_goes_on(corpus, tmp_path):
    first = experiment(corpus, tmp_path)
    write_config(first)
    longer = dataclasses.replace(first.training, updates=9, patience=2)
    write_config(dataclasses.replace(first, training=longer))
    seeded = dataclasses.replace(first, training=dataclasses.replace(first.training, seed=1))
    deeper = dataclasses.replace(first, model=dataclasses.replace(first.model, decoder_layers=2))
    for other, change in ((seeded, "training.seed was 0"), (deeper, "decoder_layers was 1")):
        write_config(other)  # it has no checkpoint yet
        write_config(first)
        (tmp_path / "checkpoints" / "4").mkdir(parents=True)
        with pytest.raises(ConfigError, match=change):
            write_config(other)
        (tmp_path / "checkpoints" / "4").rmdir()
    budget = dataclasses.replace(first.data.budget, shapes=2)
    with pytest.raises(ConfigError, match=r"data\.budget\.shapes"):  # it is already read
        write_config(
            dataclasses.replace(first, data=dataclasses.replace(first.data, budget=budget))
        )


def test_a_run_goes_on_where_its_text_has_moved_and_not_with_other_code(corpus, tmp_path):
    own = tmp_path / "own.py"
    own.write_text("def term(b, decisions, settings): ...")
    base = experiment(corpus, tmp_path / "run")
    terms = (*base.training.objective.terms, Term(name="own", function=f"{own}:term", weight=1.0))
    objective = dataclasses.replace(base.training.objective, terms=terms)
    training = dataclasses.replace(base.training, objective=objective)
    base = dataclasses.replace(base, training=training)

    def with_text(text: Path | None) -> Experiment:
        return dataclasses.replace(base, data=dataclasses.replace(base.data, text=text))

    (base.run / "checkpoints" / "4").mkdir(parents=True)
    write_config(with_text(tmp_path / "text"))
    write_config(with_text(tmp_path / "moved"))
    with pytest.raises(ConfigError, match=r"data\.text was"):
        write_config(with_text(None))
    own.write_text("def term(b, decisions, settings): pass")
    with pytest.raises(ConfigError, match=r"own\.py was edited"):
        write_config(with_text(tmp_path / "moved"))


def test_the_training_of_an_export_does_not_go_on(corpus, tmp_path):
    begun = experiment(corpus, tmp_path)
    (tmp_path / "params.safetensors").touch()
    with pytest.raises(ConfigError, match="is an export"):
        train(begun)
    assert [*tmp_path.iterdir()] == [tmp_path / "params.safetensors"]
    with pytest.raises(CheckpointError, match="one set of parameters"):
        load_params(tmp_path, "averaged")


EXPERIMENT_FILES = sorted((Path(__file__).parents[2] / "experiments").glob("*/*.py"))


@pytest.mark.parametrize(
    "path",
    [p for p in EXPERIMENT_FILES if re.search("^EXPERIMENTS? ", p.read_text(), re.M)],
    ids=lambda path: path.stem,
)
def test_every_experiment_file_builds(path):
    for name, built in load_experiments(path).items():
        assert built.run.name == (name or built.run.name)
        for begin in built.init_from:
            assert begin.run != built.run
        check_objective(built)


@pytest.mark.parametrize(
    ("model", "instead"),
    [
        (presets.small_caat(), "use transducer_delay"),
        (presets.offline(presets.small()), "leave it at 0"),
    ],
)
def test_a_weight_on_delays_that_nothing_changes_is_refused(model, instead, tmp_path):
    built = experiment(tmp_path, tmp_path / "run")
    objective = built.training.objective.with_weights(st_latency=0.1)
    training = dataclasses.replace(built.training, objective=objective)
    built = dataclasses.replace(built, training=training)
    check_objective(built)
    with pytest.raises(ConfigError, match=f"st_latency has weight 0.1.*{instead}"):
        train(dataclasses.replace(built, model=model))


@pytest.mark.parametrize(
    ("terms", "fact"),
    [
        (JointObjective(ctc=0.5).terms(), r"ctc has weight 0\.5 .*ctc_after"),
        (JointObjective(transducer=0.5).terms(), r"transducer has weight 0\.5 .*decoder='caat'"),
        ((Term(name="mt_nll"),), "no 'st_nll'"),
    ],
)
def test_losses_that_the_model_does_not_have_are_refused(terms, fact, tmp_path):
    built = experiment(tmp_path, tmp_path / "run")
    objective = dataclasses.replace(built.training.objective, terms=terms)
    training = dataclasses.replace(built.training, objective=objective)
    with pytest.raises(ConfigError, match=fact):
        train(dataclasses.replace(built, training=training))
    assert not (tmp_path / "run").exists()
