"""What an evaluation can be asked for, and what its results are called."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.evaluation import Evaluation, points
from experiments.experiment import ExperimentError
from simuljax.decode.beam import Beam

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
    with pytest.raises(ExperimentError, match=said):
        wrong.search()
