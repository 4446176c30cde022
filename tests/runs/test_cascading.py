"""A split through a cascade: in batches, live and by hand it says the same at the same time."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from data_pipelines.corpora import Manifest
from data_pipelines.dataset import open_corpus
from simuljax.config.decoding import Beam, LengthLimit
from simuljax.config.evaluation import Evaluation
from simuljax.config.fields import ConfigError
from simuljax.config.model import ModelConfig, Monotonic
from simuljax.decode.policies import Greedy, WaitK
from simuljax.eval import Record, read_records
from simuljax.models.whisper import Whisper
from simuljax.runs import evaluate as evaluation
from simuljax.runs.evaluate import evaluate, plan_evaluations
from simuljax.runs.split import of_text, word_delays
from simuljax.serve.run_translator import load_run
from simuljax.serve.translator import load
from simuljax.text import EOS
from simuljax.train.run import RunError, open_run
from tests.helpers.corpora import build, stored, write_hums
from tests.models.whisper.small import TOKENIZER, small_model
from tests.serve.test_cascade import Saying
from tests.serve.whisper.test_translator import SMALL
from tests.written_runs import PIECES, write_run

pytestmark = pytest.mark.slow  # compiles much

READ = 120 * 16
FEW = LengthLimit(ratio=0.3, constant=2)


@pytest.fixture(scope="module")
def chosen(tmp_path_factory) -> Evaluation:
    """Of two runs that nobody trained, on sounds that nobody said."""
    place = tmp_path_factory.mktemp("cascade")
    root = write_hums(place / "hums", {"train": 4, "test": 5})
    corpus = build(Manifest(), root, place / "prepared").directory
    asr = write_run(place / "asr", task="transcription", corpus=corpus, seed=6)
    mt = write_run(place / "mt", corpus=corpus, seed=2)
    return Evaluation(run=asr, then=mt, then_k=2, limit=FEW, frames=2_000)


def by_hand(chosen: Evaluation) -> list[list[tuple[str, float]]]:
    corpus = open_corpus(open_run(chosen.run).config.data.directory)
    both, said = load(f"{chosen.run}+{chosen.then}"), []
    for record in stored(corpus["test"]):
        sound = record["audio"]
        stream = both.stream(limit=FEW, translating={"k": chosen.then_k})
        words = [w for i in range(0, len(sound), READ) for w in stream.push(sound[i : i + READ])]
        words += stream.finish()
        said.append([(word.text, word.delay_ms) for word in words])
    return said


def plain(records: list[Record]) -> list[list[tuple[str, float]]]:
    return [list(zip(r.prediction.split(), r.delays, strict=True)) for r in records]


@pytest.fixture(scope="module")
def streamed(chosen) -> dict[str, Any]:
    return evaluate(chosen)


def test_in_batches_it_is_what_a_live_cascade_says(chosen, streamed):
    records = read_records(chosen.folder)
    assert plain(records) == by_hand(chosen)
    early = [d < r.source_length for r in records for d in r.delays]
    assert sum(early) > 5 and not all(early), "this shows little"
    assert (records[3].reference or "").startswith('Satz "3"')
    assert streamed["steps"] == [7, 7] and streamed["n"] == 5


def test_a_translator_that_was_trained_offline_waits(chosen):
    """Figure 3 of Nguyen et al. 2021: the policy is the recogniser's, k is the translator's."""
    both = dataclasses.replace(chosen, policy=WaitK(k=1, step_ms=120))
    decoding = of_text(both, ModelConfig(monotonic=Monotonic(policy="offline"))).decoding()
    assert (decoding.policy, decoding.k) == (WaitK(k=2, convention="stacl"), None)
    decoding = of_text(both, ModelConfig(monotonic=Monotonic(policy="wait_k"))).decoding()
    assert (decoding.policy, decoding.k) == (None, 2)


def test_whole_recordings_with_a_beam(chosen):
    whole = dataclasses.replace(chosen, mode="offline", beam=Beam(size=2), first=2)
    evaluate(whole)
    for record in read_records(whole.folder):
        assert set(record.delays) == {record.source_length}


def test_a_word_that_nothing_completes_is_known_at_the_end(chosen):
    run, ids = open_run(chosen.run), PIECES.encode("abc bcd")
    delays = np.arange(1.0, len(ids) + 2)
    words, heard = word_delays(run, np.array(ids), delays[:-1], 99.0)
    assert words == ["abc", "bcd"] and heard[-1] == 99.0 > heard[0]
    assert word_delays(run, np.array([*ids, EOS]), delays, 99.0)[1] == [heard[0], len(ids) + 1]


def test_what_is_no_cascade_is_refused(chosen):
    with pytest.raises(RunError, match="mt was trained to translate, not to transcribe"):
        evaluate(dataclasses.replace(chosen, run=chosen.then, then=chosen.run))
    with pytest.raises(RunError, match="no does not exist"):
        evaluate(dataclasses.replace(chosen, then=chosen.run / "no"))


@pytest.fixture
def whispered(chosen, tmp_path, monkeypatch) -> Evaluation:
    """A file in place of the recogniser; what its windows say follows from their sound."""
    model = Whisper(model=small_model(positions=1500, seed=5, layers=1), tokenizer=TOKENIZER)
    monkeypatch.setattr(evaluation, "load", lambda run, settings: Saying(model, SMALL))
    monkeypatch.setattr("simuljax.config.evaluation.RUNS", tmp_path)
    (tmp_path / "small.bin").write_bytes(b"weights")
    return Evaluation(
        run=tmp_path / "small.bin",
        then=chosen.then,
        then_k=2,
        corpus=open_run(chosen.run).config.data.directory,
        policy=Greedy(),
        read_ms=300,
    )


def test_whisper_before_a_translator(whispered):
    """In batches as live; the reference is the translation."""
    scores = evaluate(whispered)
    records = read_records(whispered.folder)
    evaluate(live := dataclasses.replace(whispered, mode="live", first=2, repeats=1))
    assert plain(read_records(live.folder)) == plain(records)[:2]
    assert sum(d < r.source_length for r in records for d in r.delays) > 5
    assert (records[3].reference or "").startswith('Satz "3"')
    assert scores["steps"] == [7] and "WER" not in scores


def test_whisper_before_a_translator_offline(whispered, monkeypatch):
    """The whole transcript is translated, sentence by sentence; options of speech reach Whisper."""
    seen = []
    monkeypatch.setattr(
        Saying, "translate", lambda self, *_, **how: seen.append(self.settings) or "abc bcd. cab"
    )
    whole = dataclasses.replace(
        whispered, mode="offline", policy=None, read_ms=None, then_k=None, language="de", first=2
    )
    evaluate(whole)
    translator = load_run(whispered.then or "")
    text = " ".join(map(translator.translate_text, ("abc bcd.", "cab")))
    for record in read_records(whole.folder):
        assert record.prediction == " ".join(text.split())
        assert set(record.delays) == {record.source_length}
    assert {settings.language for settings in seen} == {"de"}


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ({"task": "transcribe"}, "--task"),
        ({"predecision_ms": 320}, "--predecision-ms"),
        ({"then_threshold": 0.3}, "--then-threshold"),
        ({"mode": "offline", "policy": None, "read_ms": None}, "--then-k 2"),
    ],
)
def test_what_a_cascade_of_whisper_has_not_is_refused(whispered, given, fact):
    with pytest.raises(ConfigError, match=fact):
        plan_evaluations(dataclasses.replace(whispered, **given))
