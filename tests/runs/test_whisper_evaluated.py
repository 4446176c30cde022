"""`simuljax evaluate` of a Whisper model: swept over a policy's number, offline, with refusals."""

import os
from pathlib import Path

import pytest

from simuljax.cli import main as cli
from simuljax.config.evaluation import Evaluation
from simuljax.config.fields import ConfigError
from simuljax.config.options import from_options, to_options
from simuljax.eval import read_records
from simuljax.models.whisper import Whisper
from simuljax.runs import evaluate as evaluation
from simuljax.runs.evaluate import evaluate, open_split, plan_evaluations
from simuljax.serve.whisper import WhisperTranslator
from tests.helpers.experiments import PATIENT
from tests.models.whisper.small import TOKENIZER, small_model
from tests.serve.whisper.test_translator import SMALL

pytest.importorskip("espeakng_loader", reason="needs `pip install 'simuljax[speech]'`")
ENGLISH = {"task": "transcribe", "language": "en", "read_ms": 500, "first": 3}


@pytest.fixture(scope="module")
def translator() -> WhisperTranslator:
    model = Whisper(model=small_model(positions=1500, seed=5, layers=1), tokenizer=TOKENIZER)
    return WhisperTranslator(model, SMALL)


@pytest.fixture
def weights(translator, tmp_path, monkeypatch) -> Path:
    """A file whose model has random numbers, whatever is in it; texts are short and unguarded."""
    monkeypatch.setattr(evaluation, "load", lambda path, **_: translator)
    monkeypatch.setattr("simuljax.config.evaluation.RUNS", Path("runs"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.bin").write_bytes(b"weights")
    return Path("small.bin")


def test_a_sweep_over_a_policys_number(weights, corpus, capsys):
    given = ["evaluate", str(weights), "--corpus", str(corpus), "--policy", "alignatt"]
    given += [f for name, v in ENGLISH.items() for f in (f"--{name.replace('_', '-')}", str(v))]
    cli.main([*given, "--sweep", "last_frames=0,1500"])
    folders = sorted(Path("runs/small/eval").glob("test-*/"), key=os.path.getmtime)
    hasty, patient = (read_records(folder) for folder in folders)
    assert len(hasty) == len(patient) == 3 and all(record.prediction for record in hasty)
    assert all(set(r.delays) == {r.source_length} for r in patient), "words waited for the end"
    early = sum(delay < r.source_length for r in hasty for delay in r.delays)
    assert early >= 3 and all(r.reference for r in hasty)
    shown = capsys.readouterr().out
    assert all(folder.name in shown for folder in folders) and "curve.png" in shown


@pytest.mark.parametrize(
    "policies",
    [
        [{"policy": PATIENT, "share": share} for share in (0.01, 1.0)],
        [{"policy": "wait-k", "k": k} for k in (0, 1000)],
    ],
    ids=["one's own", "wait-k"],
)
def test_a_policy_decides_when_words_come(weights, corpus, policies):
    """The first of two is early, the second waits for the end."""
    early = []
    for policy in policies:
        chosen = Evaluation.of(run=weights, corpus=corpus, **policy, **ENGLISH)
        assert from_options(Evaluation, to_options(chosen)) == chosen
        evaluate(chosen)
        records = read_records(chosen.folder)
        early.append(sum(d < r.source_length for r in records for d in r.delays))
    assert early[0] > early[1] == 0


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ({"k": 3}, "--k"),
        ({"predecision_ms": 320}, "--predecision-ms"),
        ({"checkpoint": "last"}, "--checkpoint"),
        ({"audio": "other"}, "--audio"),
        ({"corpus": None}, "--corpus"),
        ({"policy": "wait-k", "k": 3, "units": "ctc"}, "CTC"),
        ({"policy": "edatt", "alpha": 0.1}, "edatt"),
        (
            {"policy": "fixed-steps", "first_ms": 900, "step_ms": 280, "tokens": 2},
            "READs of its own",
        ),
        ({"language": "xx"}, "xx"),
    ],
)
def test_settings_that_whisper_does_not_have_are_refused(weights, corpus, given, fact):
    chosen = Evaluation.of(**{"run": weights, "corpus": corpus} | given)
    with pytest.raises(ConfigError, match=fact):
        open_split(chosen, plan_evaluations(chosen)[1])
