"""Evaluate a model that is no run: recordings of a manifest or a prepared corpus, any mode."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile

from data_pipelines.corpora import Manifest
from data_pipelines.dataset import Split, Table
from data_pipelines.utterance import CorpusError
from simuljax.ablate.grid import Grid, Pretrained, plan
from simuljax.ablate.run import check_all_data, work
from simuljax.audio import RATE
from simuljax.config.evaluation import Evaluation
from simuljax.config.fields import ConfigError
from simuljax.decode.policies import Greedy
from simuljax.eval import read_records, score
from simuljax.eval.long_form import score_longform
from simuljax.eval.scores import normalise, word_error_rate
from simuljax.lock import LOCK, locked
from simuljax.runs import evaluate as evaluating
from simuljax.runs.evaluate import evaluate, evaluate_all, plan_evaluations
from simuljax.runs.recordings import RecordingsSplit, Spoken, open_recordings
from simuljax.runs.split import RunSplit
from simuljax.serve.session import Word
from simuljax.serve.translator import load
from tests.helpers.corpora import build, stored, write_hums
from tests.helpers.streams import SPEECH
from tests.written_runs import write_run

SECONDS = (2, 3)


class EchoModel:
    """A model that writes the seconds it has heard, one word each."""

    steps = ()

    def having(self, **settings):
        assert {"policy", "read_ms", "task", "language", "stammer"} >= set(settings)
        return self

    def backend(self, **overrides):
        assert not overrides

    def stream_all(self, recordings, *, streams, **overrides):
        self.backend(**overrides)
        return [
            [
                Word(text=f"{i + 1}", delay_ms=1000.0 * (i + 1), elapsed_ms=0.0)
                for i in range(len(samples) // RATE)
            ]
            for samples in recordings
        ]

    def translate(self, samples):
        return " ".join(str(i + 1) for i in range(len(samples) // RATE))


@pytest.fixture
def corpus(tmp_path) -> Path:
    """Recordings of 2 and 3 s and a manifest of them; the second entry is a part of its file."""
    folder = tmp_path / "talks"
    folder.mkdir()
    soundfile.write(folder / "a.wav", np.ones(2 * RATE, np.int16), RATE)
    soundfile.write(folder / "b.wav", np.ones(9 * RATE, np.int16), RATE)
    lines = [
        "audio\toffset_s\tduration_s\ttranscript\ttranslation",
        "a.wav\t\t\teins zwei\t1 2",
        "b.wav\t4\t3\teins zwei drei\t1 2 3",
    ]
    (folder / "test.tsv").write_text("\n".join(lines))
    return folder


@pytest.fixture
def model(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(evaluating, "load", lambda path, **_: EchoModel())
    monkeypatch.setattr("simuljax.config.evaluation.RUNS", tmp_path / "runs")
    (tmp_path / "echo.bin").write_bytes(b"weights")
    return tmp_path / "echo.bin"


def test_recordings_of_a_manifest_are_cut_and_read(corpus):
    found = open_recordings(corpus, "test")
    assert [len(each.read()) for each in found] == [seconds * RATE for seconds in SECONDS]
    assert [each.translation for each in found] == ["1 2", "1 2 3"]
    with pytest.raises(ConfigError, match="dev"):
        open_recordings(corpus, "dev")


def test_rows_whose_audio_cannot_be_read_are_left_out_and_counted(corpus, model, capsys):
    rows = [
        "a.wav\t0\t60\tbeyond the end\t1",
        "a.wav\t500\t5\tnot there\t1",
        "none.wav\t\t\tno file\t1",
        "a.wav\t\t\tgood again\t1 2",
    ]
    with (corpus / "test.tsv").open("a") as file:
        file.write("\n" + "\n".join(rows))
    chosen = Evaluation(run=model, corpus=corpus)
    scores, shown = evaluate(chosen), capsys.readouterr().err
    assert scores["n"] == 3
    assert [record.source for record in read_records(chosen.folder)] == [
        "test.tsv:2",
        "test.tsv:3",
        "test.tsv:7",
    ]
    for fact in ("1 missing audio file", "test.tsv:6", "1 truncated", "1 no samples", "test.tsv:4"):
        assert fact in shown
    assert len(open_recordings(corpus, "test", first=2)) == 2
    assert "truncated" not in capsys.readouterr().err


def test_damaged_records_of_a_prepared_corpus_are_an_error(corpus, tmp_path):
    prepared = build(Manifest(), corpus, tmp_path / "prepared").directory
    (records,) = prepared.glob("*.array_record-*")
    size = records.stat().st_size
    records.write_bytes(b"\xff" * size)
    (one, _) = open_recordings(prepared, "test")
    with pytest.raises(CorpusError, match="damaged"):
        one.read()


def test_model_file_is_evaluated_on_a_manifest(corpus, model, tmp_path):
    chosen = Evaluation(run=model, corpus=corpus, policy=Greedy(), language="de")
    scores = evaluate(chosen)
    assert chosen.folder.parent == tmp_path / "runs" / "echo" / "eval"
    records = read_records(chosen.folder)
    assert [record.prediction for record in records] == ["1 2", "1 2 3"]
    assert [record.delays for record in records] == [(1000, 2000), (1000, 2000, 3000)]
    assert scores["n"] == 2 and scores["AL"] == pytest.approx(1000)
    whole = evaluate(Evaluation(run=model, corpus=corpus, mode="offline", first=1))
    assert whole["n"] == 1 and whole["AL"] == pytest.approx(2000)  # all at the end


def test_two_evaluations_into_one_folder_exclude_each_other(corpus, model):
    chosen = Evaluation(run=model, corpus=corpus)
    chosen.folder.mkdir(parents=True)
    with locked(chosen.folder), pytest.raises(ConfigError, match=f"another .*{chosen.folder}"):
        evaluate_all(*plan_evaluations(chosen))
    assert [path.name for path in chosen.folder.iterdir()] == [LOCK]
    assert evaluate_all(*plan_evaluations(chosen))[0]["n"] == 2


def test_joined_utterances_are_scored_by_segments(corpus, model, monkeypatch):
    found = []

    def score_segments(records, segments):
        found.extend(segments)
        return score_longform(records, segments, cut=lambda *_: [2, 5])

    monkeypatch.setattr(evaluating, "check_cut", lambda: None)
    monkeypatch.setattr(evaluating, "score_longform", score_segments)
    chosen = Evaluation(run=model, corpus=corpus, joined=2, joined_pause_ms=1000)
    scores = evaluate(chosen)
    (record,) = read_records(chosen.folder)
    assert record.source == "joined-0" and record.source_length == 7000
    assert record.prediction == "1 2 3 4 5 6 7" and record.reference == "1 2 1 2 3"
    assert [(one.start_ms, one.duration_ms) for one in found] == [(0, 2000), (3000, 3000)]
    assert [one.reference for one in found] == ["1 2", "1 2 3"]
    assert (scores["long_form"]["n"], scores["long_form"]["skipped"]) == (2, 0)
    assert "StreamLAAL" in evaluating.table(model, [chosen], [scores])
    assert chosen.but(joined=None, joined_pause_ms=600).folder != chosen.folder


@pytest.mark.slow
def test_a_run_is_played_joined_recordings(tmp_path, monkeypatch):
    """In batches of streams as in one stream after the other, and as its stream would be."""
    monkeypatch.setattr(evaluating, "check_cut", lambda: None)
    monkeypatch.setattr(evaluating, "score_longform", lambda *_: {"n": 5})
    root = write_hums(tmp_path / "hums", {"train": 4, "test": 5})
    prepared = build(Manifest(), root, tmp_path / "prepared")
    run = write_run(tmp_path / "run", corpus=prepared.directory, seed=2, speech=SPEECH)
    chosen = Evaluation(run=run, sentences="pauses", joined=3)
    scores = evaluate(chosen)
    records = read_records(chosen.folder)
    assert scores["long_form"] == {"n": 5} and len(records) == 2
    live = replace(chosen, mode="live", repeats=1)
    evaluate(live)
    translator = load(run)
    for record, other, parts in zip(records, read_records(live.folder), (3, 2), strict=True):
        assert (record.prediction, record.delays) == (other.prediction, other.delays)
        start = 0 if parts == 3 else 3
        sounds = [each["audio"] for each in stored(prepared["test"])][start : start + parts]
        pause = np.zeros(RATE * 6 // 10, np.int16)
        stream = translator.stream(sentences="pauses")
        words = stream.push(np.concatenate([x for sound in sounds for x in (sound, pause)]))
        words += stream.finish()
        assert record.prediction == " ".join(word.text for word in words)
        assert record.prediction


def test_transcription_has_a_word_error_rate(corpus, model):
    scores = evaluate(Evaluation(run=model, corpus=corpus, task="transcribe"))
    assert scores["WER"] == 100.0, "digits are not words"


WRITTEN = pytest.mark.parametrize(
    ("references", "words", "kept"),
    [
        (("我都沒有辦法。", "OK"), ("我 都 沒有 辦法。", "OK"), ("我都沒有辦法。", "OK")),
        (("ไทย มีอากาศ",), ("ไท ย มี อากาศ",), ("ไทยมีอากาศ",)),
        (
            ("你 好吗 我 们 都",),
            ("你 好吗 我 们 都",),
            ("你 好吗 我 们 都",),
        ),  # as the references are
    ],
)


def assert_scored_by_the_character(records, kept):
    assert tuple(record.prediction for record in records) == kept
    assert score(records)["BLEU"] == pytest.approx(100) and score(records)["AL"] > 0
    pairs = [(normalise(r.reference or ""), normalise(r.prediction)) for r in records]
    assert word_error_rate(pairs) == 0


@WRITTEN
def test_what_is_written_without_spaces_is_scored_by_the_character(references, words, kept):
    sound = partial(np.zeros, RATE, np.int16)
    split = [Spoken(id=r, transcript=r, translation="", read=sound) for r in references]
    chosen: Any = Evaluation(run=Path("x"), corpus=Path("c"), task="transcribe")
    model: Any = EchoModel()
    played = RecordingsSplit(model=model, split=split, chosen=chosen, settings={})
    records = [
        played._record(
            i, sound(), [Word(text=t, delay_ms=900.0, elapsed_ms=0.0) for t in text.split()]
        )
        for i, text in enumerate(words)
    ]
    assert_scored_by_the_character(records, kept)


@WRITTEN
@pytest.mark.parametrize("branch", ["speech", "text"])
def test_batches_are_scored_by_the_character_too(references, words, kept, branch):
    count = np.full(len(references), RATE)
    texts: Any = dict.fromkeys(("id", "speaker", "translation"), references)
    texts["transcript"] = ["one two three"] * len(references)
    table = Table(samples=count, words=count, phonemes=count, **texts)
    examples: Any = SimpleNamespace(split=Split(name="test", table=table, source=()))
    data = SimpleNamespace(data=SimpleNamespace(task="translation"))
    translator: Any = SimpleNamespace(run=SimpleNamespace(config=data))
    chosen = Evaluation(run=Path("x"), branch=branch)
    split = RunSplit(translator=translator, examples=examples, chosen=chosen)
    records = [
        split._record(i, [(word, 900.0) for word in text.split()], 1000.0)
        for i, text in enumerate(words)
    ]
    assert_scored_by_the_character(records, kept)


def test_model_file_needs_a_corpus(model):
    with pytest.raises(ConfigError, match="--corpus"):
        evaluate(Evaluation(run=model))


def test_grid_of_a_pretrained_model_trains_nothing(corpus, model, tmp_path):
    given = Evaluation(run=Path(), corpus=corpus)
    ablation = Grid(
        runs=tmp_path / "runs",
        variants={"echo": Pretrained(model=model)},
        table=("echo",),
        baseline="echo",
        evaluations=(given,),
        seeds=(0, 1),
    )
    (run,) = plan(ablation)
    assert run.state == "trained"
    check_all_data([run])
    work([run], ablation)
    assert run.state == "done"
    (evaluation,) = run.evaluations
    assert json.loads((evaluation.folder / "scores.json").read_text())["n"] == 2
    same = Pretrained(model=model)
    with pytest.raises(ConfigError, match=r"'echo' .* and 'again' .* would share"):
        replace(ablation, variants={"echo": same, "again": same})
    model.unlink()
    with pytest.raises(ConfigError, match=r"echo\.bin"):
        plan(ablation)
