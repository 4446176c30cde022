"""Every kind of translator can learn 32 utterances by heart, and every head has a part in it."""

import dataclasses
from collections.abc import Iterator
from typing import get_args

import numpy as np
import pytest

from simuljax.batch import Batch
from simuljax.config.model import Attention, DecisionKind
from tests.train import tones
from tests.train.overfitting import Case, compiling_quickly, overfit

# Token i is the word i + 1 (or i - 1), and wait-k writes it after i + k decision points. So that it
# has been heard by then, k is 2 words; with more points to a word (2 phonemes, 3 states), target i
# falls behind the speaker, and k makes up for that at the end of 5 words: 2 * 5 = 4 + 6 phonemes,
# 3 * 5 = 4 + 11 states, and one for words that are slow. Windows of 120 ms are as long as words,
# but not in step with them: one more. (A bidirectional encoder might do with less: it can bring
# what follows to any state. Learnable points are every state to wait-k, which takes no decisions.)
WAIT: dict[DecisionKind, int] = {
    "every_state": 12, "fixed": 3, "words": 2, "phonemes": 6, "learnable": 12
}  # fmt: skip
ATTENTIONS = get_args(Attention)
KINDS = [kind for kind in get_args(DecisionKind) if kind != "ctc_words"]  # test_overfit_words.py
GRID = [
    *(Case(attention=a, kind=d) for a in ATTENTIONS for d in KINDS),
    *(Case(attention=a, kind=d, policy="wait_k", k=WAIT[d]) for a in ATTENTIONS for d in KINDS),
    Case(policy="offline"),
    Case(branches=("st", "mt")),  # with distillation, CAR, DAR and latency
]
QUICK = Case(attention="hard")


@pytest.fixture(scope="module", autouse=True)
def quickly() -> Iterator[None]:
    with compiling_quickly():
        yield


@pytest.fixture(scope="module")
def batch() -> Batch:
    return tones.utterances(32, seed=1)


@pytest.mark.parametrize("case", [pytest.param(c, id=str(c), marks=pytest.mark.slow) for c in GRID])
def test_32_utterances_are_learnt_by_heart(case, batch):
    """Unsmoothed NLL below .05 per token, 99 % of the tokens right, without noise."""
    result = overfit(case, batch)
    print(f"{case!s:36} {result}")
    assert result.known.is_enough, result


@pytest.mark.slow
def test_without_what_is_said_they_are_not(batch):
    """The audio of one for all: what is left are tokens whose words were drawn at random."""
    one = {name: np.repeat(getattr(batch, name)[:1], 32, 0) for name in ("audio", "audio_length")}
    result = overfit(QUICK, dataclasses.replace(batch, **one), most=120)
    print(f"{'the same audio for all':36} {result}")
    assert result.known.nll["st"] > 0.5 and result.known.accuracy["st"] < 0.8
