"""Evaluations that are refused before anything is opened, made or translated; nothing compiles."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simuljax.config.decoding import Beam, LengthLimit
from simuljax.config.evaluation import Evaluation, points
from simuljax.config.fields import ConfigError
from simuljax.config.model import ModelConfig, Monotonic, SpeechConfig
from simuljax.decode.policies import AlignAtt, EDAtt, FixedSteps, LocalAgreement, WaitK
from simuljax.runs.evaluate import check, check_effects, evaluate, plan_evaluations
from tests.written_runs import write_run

ROOT = Path(__file__).parents[2]
PLAIN = Evaluation(run=Path("run"))
LEARNT = ModelConfig(monotonic=Monotonic(policy="learned"))
WAITING = ModelConfig(monotonic=Monotonic(policy="wait_k"))
COUNTING = ModelConfig(monotonic=Monotonic(policy="wait_k", counts="words"))
OFFLINE = ModelConfig(monotonic=Monotonic(policy="offline"))
CAAT = replace(OFFLINE, decoder="caat", speech=SpeechConfig(kind="streaming"))


def refused(model: ModelConfig, then: ModelConfig | None = None, **given: Any) -> str:
    """The sentence, or nothing."""
    chosen = PLAIN.but(then=Path("mt") if then else None, **given)
    check(chosen)
    try:
        check_effects(chosen, model, then)
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


def test_of_the_second_model_of_a_cascade():
    assert "--then-k 3 would change nothing" in refused(LEARNT, LEARNT, then_k=3)
    assert "--then-threshold 0.3" in refused(LEARNT, WAITING, then_threshold=0.3)
    assert not refused(LEARNT, WAITING, then_k=3)
    assert not refused(LEARNT, OFFLINE, then_k=3)
    assert "--then-k 3" in refused(LEARNT, OFFLINE, then_k=3, mode="offline")
    assert not refused(OFFLINE, LEARNT, gather="mean")  # is of both
    assert "--gather mean" in refused(OFFLINE, WAITING, gather="mean")


def test_a_policy_that_the_model_cannot_have_is_told_first():
    assert "decides by itself" in refused(LEARNT, policy="wait-k", k=3, threshold=0.3)


def test_milliseconds_of_a_text():
    steps: Any = {"policy": "fixed-steps", "first_ms": 500, "step_ms": 150, "tokens": 1}
    assert "a text has none" in refused(OFFLINE, branch="text", **steps)
    with pytest.raises(ConfigError, match="--step-ms 200 would change nothing"):
        refused(OFFLINE, branch="text", policy="wait-k", k=3, step_ms=200)


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


WHOLE = Evaluation(run=Path("run"), mode="offline")


def test_a_beam_is_in_the_name_of_the_results():
    each = [WHOLE, *points(WHOLE.but(beam=1, length_penalty=0.6), ("beam=2,5",))]
    named = {one.folder.name: one.beam for one in each}
    assert named == {
        "test-speech-offline": None,
        "test-speech-offline-beam2-lp0.6": Beam(size=2, length_penalty=0.6),
        "test-speech-offline-beam5-lp0.6": Beam(size=5, length_penalty=0.6),
    }
    assert WHOLE.but(beam=5).beam == Beam(size=5, length_penalty=1.0)


@pytest.mark.parametrize(
    ("chosen", "sweep", "wanted"),
    [
        (
            {"policy": "wait-k", "k": 1, "units": "ctc", "force_finish": True},
            "k=3,5",
            {
                "wait-k-k3-ctc-finish": WaitK(k=3, units="ctc"),
                "wait-k-k5-ctc-finish": WaitK(k=5, units="ctc"),
            },
        ),
        (
            {"policy": "edatt", "last_frames": 2, "layer": 4, "alpha": 1.0},
            "alpha=0.1,0.3",
            {
                "edatt-f2-layer4-a0.1": EDAtt(frames=2, alpha=0.1, layer=4),
                "edatt-f2-layer4-a0.3": EDAtt(frames=2, alpha=0.3, layer=4),
            },
        ),
        (
            {"policy": "alignatt", "heads": 2},
            "last_frames=4,14",
            {
                "alignatt-f4-head2": AlignAtt(frames=4, heads=2),
                "alignatt-f14-head2": AlignAtt(frames=14, heads=2),
            },
        ),
        (
            {"policy": "fixed-steps", "first_ms": 1000, "step_ms": 100, "tokens": 9},
            "tokens=1,2",
            {
                f"fixed-steps-first1000ms-step100ms-n{n}": FixedSteps(
                    first_ms=1000, step_ms=100, tokens=n
                )
                for n in (1, 2)
            },
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


def test_the_limit_of_length():
    assert PLAIN.decoding().limit == LengthLimit()
    limited = PLAIN.but(length_ratio=1.0, length_constant=0)
    assert limited.decoding().limit == LengthLimit(ratio=1.0, constant=0)
    assert limited.label == "ratio1-plus0"


def test_a_cascade_is_in_the_name_of_the_results():
    names = [PLAIN.but(then=Path(run), then_k=2).folder.name for run in ("mt", "other/mt")]
    assert all(name.startswith("test-speech-streamed-then-mt-") for name in names)
    assert all(name.endswith("-then-k2") for name in names) and len({*names}) == 2
