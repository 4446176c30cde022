"""What an evaluation can be asked for, and what its results are called."""

from pathlib import Path

import pytest

from simuljax.config.decoding import Beam, LengthLimit
from simuljax.config.evaluation import Evaluation, points
from simuljax.decode.policies import AlignAtt, EDAtt, FixedSteps, LocalAgreement, WaitK

OFFLINE = Evaluation(run=Path("run"), mode="offline")


def test_a_beam_is_in_the_name_of_the_results():
    each = [OFFLINE, *points(OFFLINE.but(beam=1, length_penalty=0.6), ("beam=2,5",))]
    named = {one.folder.name: one.beam for one in each}
    assert named == {
        "test-speech-offline": None,
        "test-speech-offline-beam2-lp0.6": Beam(size=2, length_penalty=0.6),
        "test-speech-offline-beam5-lp0.6": Beam(size=5, length_penalty=0.6),
    }
    assert OFFLINE.but(beam=5).beam == Beam(size=5, length_penalty=1.0)


STREAMED = Evaluation(run=Path("run"))


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
    each = points(STREAMED.but(**chosen), (sweep,))
    assert {one.label: one.decoding().policy for one in each} == wanted
    assert all(one.beam is None for one in each)


def test_the_limit_of_length():
    assert STREAMED.decoding().limit == LengthLimit()
    limited = STREAMED.but(length_ratio=1.0, length_constant=0)
    assert limited.decoding().limit == LengthLimit(ratio=1.0, constant=0)
    assert limited.label == "ratio1-plus0"
