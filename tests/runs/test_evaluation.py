"""What an evaluation can be asked for, and what its results are called."""

from dataclasses import replace
from pathlib import Path

import pytest

from simuljax.config.evaluation import Evaluation, points
from simuljax.config.fields import ConfigError
from simuljax.decode.beam import Beam
from simuljax.decode.options import LengthLimit
from simuljax.decode.policies import AlignAtt, EDAtt, FixedSteps, LocalAgreement, WaitK

OFFLINE = Evaluation(run=Path("run"), mode="offline")


def test_a_beam_is_in_the_name_of_the_results():
    each = [OFFLINE, *points(replace(OFFLINE, length_penalty=0.6), ("beam=2,5",))]
    named = {one.folder.name: one.search() for one in each}
    assert named == {
        "test-speech-offline": None,
        "test-speech-offline-beam2-lp0.6": Beam(size=2, length_penalty=0.6),
        "test-speech-offline-beam5-lp0.6": Beam(size=5, length_penalty=0.6),
    }
    assert replace(OFFLINE, beam=5).search() == Beam(size=5, length_penalty=1.0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (replace(OFFLINE, mode="streamed", beam=5), "cannot be taken back: beam needs --mode off"),
        (replace(OFFLINE, mode="live", beam=1), "cannot be taken back: beam needs --mode offline"),
        (replace(OFFLINE, length_penalty=0.5), "give a --beam"),
        (replace(OFFLINE, beam=0), "at least 1"),
    ],
)
def test_a_search_that_cannot_be_is_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        wrong.search()


STREAMED = Evaluation(run=Path("run"))


@pytest.mark.parametrize(
    ("chosen", "sweep", "wanted"),
    [
        (
            {"policy": "wait-k", "units": "ctc", "force_finish": True},
            "k=3,5",
            {
                "k3-finish-wait-k-ctc": WaitK(k=3, units="ctc"),
                "k5-finish-wait-k-ctc": WaitK(k=5, units="ctc"),
            },
        ),
        (
            {"policy": "ed-att", "last_frames": 2, "layer": 4},
            "alpha=0.1,0.3",
            {
                "ed-att-f2-a0.1-layer4": EDAtt(frames=2, alpha=0.1, layer=4),
                "ed-att-f2-a0.3-layer4": EDAtt(frames=2, alpha=0.3, layer=4),
            },
        ),
        (
            {"policy": "align-att", "heads": 2},
            "last_frames=4,14",
            {
                "align-att-f4-head2": AlignAtt(frames=4, heads=2),
                "align-att-f14-head2": AlignAtt(frames=14, heads=2),
            },
        ),
        (
            {"policy": "fixed-steps", "first_ms": 1000, "step_ms": 100},
            "tokens=1,2",
            {
                f"fixed-steps-step100ms-first1000ms-n{n}": FixedSteps(
                    first_ms=1000, step_ms=100, tokens=n
                )
                for n in (1, 2)
            },
        ),
        (
            {"policy": "local-agreement", "beam": 5},
            "agree=2,3",
            {
                "beam5-local-agreement-agree2": LocalAgreement(agree=2, beam=5),
                "beam5-local-agreement-agree3": LocalAgreement(agree=3, beam=5),
            },
        ),
    ],
)
def test_policies_and_their_numbers_can_be_swept(chosen, sweep, wanted):
    each = points(replace(STREAMED, **chosen), (sweep,))
    assert {one.label: one.decoding().policy for one in each} == wanted
    assert all(one.search() is None for one in each)


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"policy": "wait-k"}, "wait-k needs k"),
        ({"policy": "wait-k", "k": 3, "alpha": 0.2}, "wait-k has no alpha"),
        ({"policy": "ed-att", "last_frames": 2, "alpha": 0.1, "k": 3}, "ed-att has no k"),
        ({"policy": "align-att", "last_frames": -1}, "frames is -1"),
        ({"policy": "wait-long"}, "no policy 'wait-long'"),
        ({"last_frames": 2}, "--last-frames is of a policy: give a --policy too"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(chosen, said):
    with pytest.raises(ConfigError, match=said):
        replace(STREAMED, **chosen).decoding()


def test_the_limit_of_length():
    assert STREAMED.decoding().limit == LengthLimit()
    limited = replace(STREAMED, length_ratio=1.0, length_constant=0)
    assert limited.decoding().limit == LengthLimit(ratio=1.0, constant=0)
    assert limited.label == "ratio1-plus0"
