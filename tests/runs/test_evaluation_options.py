"""Evaluations that are refused before anything is opened, made or translated; nothing compiles."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from data_pipelines.corpora import Manifest, ParallelText
from data_pipelines.plan import Lengths
from simuljax.config.decoding import Beam, LengthLimit
from simuljax.config.evaluation import Evaluation, points
from simuljax.config.fields import ConfigError
from simuljax.config.model import ModelConfig, Monotonic, SpeechConfig
from simuljax.decode.policies import LocalAgreement, WaitK
from simuljax.runs.evaluate import check, evaluate, plan_evaluations
from simuljax.runs.split import RunSplit
from tests.helpers.corpora import build, tone, write_lines, write_rows
from tests.written_runs import write_run

PLAIN = Evaluation(run=Path("run"))
LEARNT = ModelConfig(monotonic=Monotonic(policy="learned"))
WAITING = ModelConfig(monotonic=Monotonic(policy="wait_k"))
COUNTING = ModelConfig(monotonic=Monotonic(policy="wait_k", counts="words"))
OFFLINE = ModelConfig(monotonic=Monotonic(policy="offline"))
CAAT = replace(OFFLINE, decoder="caat", speech=SpeechConfig(kind="streaming"))


def refused(model: ModelConfig | None, then: ModelConfig | None = None, **given: Any) -> str:
    """The sentence, or nothing."""
    try:
        check(PLAIN.but(then=Path("mt") if then else None, **given), model, then)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("given", "works", "idle"),
    [
        ({"k": 5}, [WAITING], [LEARNT, COUNTING, OFFLINE, CAAT]),
        ({"k": 5, "policy": "wait-k"}, [WAITING, COUNTING, OFFLINE, CAAT], []),
        ({"k": 5, "mode": "offline"}, [WAITING], [LEARNT, OFFLINE]),
        ({"threshold": 0.3}, [LEARNT], [WAITING, COUNTING, OFFLINE, CAAT]),
        ({"threshold": 0.3, "mode": "offline"}, [LEARNT], [OFFLINE]),
        ({"threshold": 0.3, "policy": "wait-k", "k": 1}, [], [WAITING, OFFLINE, CAAT]),
        ({"gather": "mean"}, [LEARNT], [WAITING, OFFLINE, CAAT]),
        ({"inside": 3}, [CAAT], [LEARNT, WAITING, OFFLINE]),
        ({"inside": 3, "policy": "wait-k", "k": 1}, [], [CAAT]),
        ({"force_finish": True}, [LEARNT, WAITING], [OFFLINE, COUNTING, CAAT]),
        ({"read_ms": 400}, [LEARNT, WAITING, CAAT], [OFFLINE, COUNTING]),
        ({"read_ms": 400, "policy": "alignatt", "last_frames": 2}, [OFFLINE], []),
        ({"predecision_ms": 400}, [LEARNT, WAITING, CAAT], [OFFLINE]),
        ({"predecision_ms": 400, "mode": "offline"}, [LEARNT, WAITING], [OFFLINE, CAAT]),
        ({"predecision_ms": 400, "policy": "wait-k", "k": 1}, [], [OFFLINE]),
        ({"predecision_ms": 400, "policy": "local-agreement"}, [OFFLINE], []),
    ],
)
def test_what_would_change_nothing(given, works, idle):
    assert [refused(model, **given) for model in works] == [""] * len(works)
    assert all("would change nothing" in refused(model, **given) for model in idle)


FIXED: Any = {"policy": "fixed-steps", "first_ms": 500, "step_ms": 150, "tokens": 1}


@pytest.mark.parametrize(
    ("model", "then", "given", "fact"),
    [
        (LEARNT, LEARNT, {"then_k": 3}, "--then-k 3 would change nothing"),
        (LEARNT, WAITING, {"then_threshold": 0.3}, "--then-threshold 0.3"),
        (LEARNT, WAITING, {"then_k": 3}, ""),
        (LEARNT, OFFLINE, {"then_k": 3}, ""),
        (LEARNT, OFFLINE, {"then_k": 3, "mode": "offline"}, "--then-k 3"),
        (OFFLINE, LEARNT, {"gather": "mean"}, ""),  # is of both
        (OFFLINE, WAITING, {"gather": "mean"}, "--gather mean"),
        (None, WAITING, {"then_k": 3}, ""),  # after Whisper
        (None, WAITING, {"then_k": 3, "mode": "offline"}, "--then-k 3"),
        (None, WAITING, {"gather": "mean"}, "--gather mean"),
        (None, WAITING, {"task": "transcribe"}, "--task"),
        (LEARNT, None, {"policy": "wait-k", "k": 3, "threshold": 0.3}, "decides by itself"),
        (OFFLINE, None, {"branch": "text", **FIXED}, "a text has none"),
        (OFFLINE, None, {"policy": "alignatt", "last_frames": 2, "layer": 99}, "layer is 99"),
        (CAAT, None, {"policy": "alignatt", "last_frames": 2}, "CAAT"),
        (
            OFFLINE,
            None,
            {"branch": "text", "policy": "wait-k", "k": 3, "step_ms": 200},
            "--step-ms",
        ),
        (LEARNT, None, {"branch": "text", "mode": "live"}, "--mode live"),
        (LEARNT, None, {"beam": 2}, "--beam"),
        (LEARNT, None, {"beam": 2, "mode": "live"}, "--beam"),
        (LEARNT, None, {"joined_pause_ms": 300}, "--joined-pause-ms 300"),
        (LEARNT, None, {"joined": 2, "mode": "offline"}, "--joined 2"),
        (LEARNT, None, {"force_finish": True, "mode": "offline"}, "--force-finish"),
        (LEARNT, None, {"audio": "other", "branch": "text"}, "--audio other"),
        (LEARNT, None, {"audio": "other", "sentences": "many"}, "--audio other"),
        (OFFLINE, None, {"policy": "wait-k", "k": 3, "mode": "offline"}, "--policy wait-k"),
        (OFFLINE, None, {"policy": "wait-k", "k": 3, "trailing": "leave"}, "--trailing leave"),
        (LEARNT, WAITING, {"branch": "text"}, "--then needs --branch speech"),
        (LEARNT, None, {"then_k": 3}, "--then-k 3"),
        (LEARNT, None, {"task": "transcribe"}, "--task"),
        (LEARNT, WAITING, {"sentences": "pauses"}, "leave --sentences"),
        (replace(OFFLINE, text=None), None, {"branch": "text"}, "no text branch"),
    ],
)
def test_what_cannot_be(model, then, given, fact):
    found = refused(model, then, **given)
    assert fact in found and bool(fact) == bool(found)


def test_refused_before_anything_is_made(tmp_path):
    run = write_run(tmp_path / "run")  # by wait-k
    chosen = Evaluation(run=run)
    with pytest.raises(ConfigError, match=r"--inside 3 would change nothing: it .*CAAT"):
        evaluate(chosen.but(inside=3))
    with pytest.raises(ConfigError, match=r"--threshold 0\.3 would change nothing"):
        plan_evaluations(chosen, ("threshold=0.5,0.3",))
    with pytest.raises(ConfigError, match="threshold is 2"):
        evaluate(chosen.but(threshold=2.0))
    assert not (run / "eval").exists()


@pytest.fixture(scope="module")
def incomplete(tmp_path_factory) -> dict[str, Path]:
    """Prepared corpora by what they lack."""
    place = tmp_path_factory.mktemp("incomplete")
    lines = write_lines(place, {"test": 3})
    tone(place / "spoken" / "a.wav")
    write_rows(place / "spoken" / "test.jsonl", [{"audio": "a.wav", "translation": "eins"}] * 2)
    text = ParallelText(source="en", target="de")
    return {
        "audio": build(text, lines, place / "text").directory,
        "transcript": build(Manifest(), place / "spoken", place / "said").directory,
    }


@pytest.mark.parametrize(
    ("given", "lacking", "fact"),
    [
        *(({"mode": mode}, "audio", "3 of 3") for mode in ("offline", "streamed", "live")),
        ({"first": 2}, "audio", "2 of 2"),
        *(({"branch": "text", "mode": m}, "transcript", "2 of 2") for m in ("offline", "streamed")),
    ],
)
def test_a_corpus_without_what_is_translated_is_refused(incomplete, tmp_path, given, lacking, fact):
    run = write_run(tmp_path / "run", corpus=incomplete[lacking])
    with pytest.raises(ConfigError, match=f"{fact} examples have no {lacking}"):
        evaluate(Evaluation.of(run=run, **given))
    assert not (run / "eval").exists()


def test_a_batch_that_holds_no_utterance():
    lengths = Lengths(audio=np.array([16_000]), source=np.array([9]), target=np.array([25]))
    examples: Any = SimpleNamespace(lengths=lengths, split=[0])
    split = RunSplit(translator=None, examples=examples, chosen=PLAIN.but(frames=1))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match=r"frames is 1: .* 100 frames and 25 tokens"):
        next(split.batches(set()))


def test_what_is_not_the_default_is_in_the_name_of_the_results():
    whole = PLAIN.but(mode="offline")
    each = [whole, *points(whole.but(beam=1, length_penalty=0.6), ("beam=2,5",))]
    assert {one.folder.name: one.beam for one in each} == {
        "test-speech-offline": None,
        "test-speech-offline-beam2-lp0.6": Beam(size=2, length_penalty=0.6),
        "test-speech-offline-beam5-lp0.6": Beam(size=5, length_penalty=0.6),
    }
    limited = PLAIN.but(length_ratio=1.0, length_constant=0)
    assert limited.decoding().limit == LengthLimit(ratio=1.0, constant=0)
    assert limited.label == "ratio1-plus0"
    names = [PLAIN.but(then=Path(run), then_k=2).folder.name for run in ("mt", "other/mt")]
    assert all(name.startswith("test-speech-streamed-then-mt-") for name in names)
    assert all(name.endswith("-then-k2") for name in names) and len({*names}) == 2


@pytest.mark.parametrize(
    ("chosen", "sweep", "wanted"),
    [
        (
            {"policy": "wait-k", "k": 1, "units": "ctc", "force_finish": True},
            "k=3,5",
            {f"wait-k-k{k}-ctc-finish": WaitK(k=k, units="ctc") for k in (3, 5)},
        ),
        (
            {"policy": "local-agreement", "beam": 5},
            "agree=2,3",
            {
                "local-agreement-beam5": LocalAgreement(agree=2, beam=5),
                "local-agreement-beam5-agree3": LocalAgreement(agree=3, beam=5),
            },
        ),
    ],
)
def test_policies_and_their_numbers_can_be_swept(chosen, sweep, wanted):
    each = points(PLAIN.but(**chosen), (sweep,))
    assert {one.label: one.decoding().policy for one in each} == wanted
    assert all(one.beam is None for one in each)
