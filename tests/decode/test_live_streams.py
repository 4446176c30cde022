"""Live streams and simulations say what passes from scratch on the sound heard so far say.

Each recording is pushed in pieces of 1 sample to 10 s into a stream, and compared with an oracle
that decides one utterance at a time (float64, hard decisions) and encodes the sound up to each READ
from scratch. When a word came is counted here, in samples pushed. That a step of the decoder is the
training-time pass is shown in `test_stream.py`.
"""

import functools
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
import pytest

from simuljax.config.decoding import Decoding
from simuljax.config.model import Monotonic
from simuljax.decode.policies import History
from simuljax.decode.simulate import Listening, simulate_speech
from tests.helpers import models, streams
from tests.helpers.streams import DECODING, HEARD
from tests.oracles import decisions
from tests.oracles.hard_decoder import Heard

COUNT, SHORT, LONG = 30, 28_800, 11 * 16_000  # recordings; samples


@dataclass(frozen=True, kw_only=True)
class Case:
    """A policy, and parameters with which it both reads and writes a good deal."""

    seed: int = 15
    kind: str = "fixed"
    monotonic: dict[str, Any] = field(default_factory=dict)
    decoding: dict[str, Any] = field(default_factory=dict)
    encoders: tuple[str, ...] = ("incremental", "rereading")

    def translator(self, encoder: str):
        speech, monotonic = streams.ENCODERS[encoder], Monotonic(noise=0.0, **self.monotonic)
        return streams.translator(
            seed=self.seed, kind=self.kind, speech=speech, monotonic=monotonic
        )

    @property
    def options(self) -> Decoding:
        return models.changed(DECODING, **self.decoding)


ONE, ENDS = ("incremental",), {"force_finish": True, "avoid_eos_while_reading": True}
CASES = {
    "any": Case(),
    "majority": Case(decoding={"gather": "majority"}),
    "mean": Case(decoding={"gather": "mean", "threshold": 0.6}, encoders=ONE),
    "ends": Case(seed=20, decoding=ENDS | {"threshold": 0.3}),
    "hard": Case(monotonic={"attention": "hard"}, encoders=("rereading",)),
    "chunkwise": Case(monotonic={"attention": "chunkwise", "chunk": 4}, encoders=ONE),
    "wait-2": Case(
        seed=9, monotonic={"policy": "wait_k", "wait_k": (2, 2)}, encoders=("rereading",)
    ),
    "wait-1 papi": Case(
        seed=9,
        monotonic={"policy": "wait_k", "wait_k": (2, 4), "convention": "papi"},
        decoding={"k": 1, "force_finish": True},
        encoders=ONE,
    ),
    "learnable": Case(kind="learnable", encoders=("rereading",)),
    "every state": Case(kind="every_state", encoders=ONE),
}


def check(case: Case, encoder: str, heard: streams.Material) -> tuple[int, int, float]:
    """All recordings of a case: tokens, those before the end, and how often heads stood apart."""
    decoding, translator = case.options, case.translator(encoder)
    kept = decoding.gather != "any" and encoder == "incremental"  # who is overruled, is for good
    scratch = streams.Scratch(translator, decoding, heard)
    history: History = "kept" if kept else "recomputed"
    how = {"read_ms": models.STEP * 40, "filterbank": HEARD.filterbank}
    listening = Listening(history=history, **how)
    say = functools.partial(scratch.say, history=history)
    said = streams.assert_written(translator, decoding, listening, heard, say)
    lasts = [len(streams.reads(len(recording))) - 1 for recording in heard.recordings]
    early = sum(turn < last for one, last in zip(said, lasts, strict=True) for turn in one.turns)
    tokens = sum(len(one.tokens) for one in said)
    return tokens, early, scratch.apart / (scratch.apart + scratch.together)


def test_8_recordings():
    tokens, early, _ = check(CASES["any"], "rereading", streams.material(1, 8, SHORT))
    assert tokens > 30 and early > 8


@pytest.mark.slow
def test_sentences_that_are_long(monkeypatch):
    """Beyond so many tokens the whole room is judged anew."""
    monkeypatch.setattr("simuljax.decode.state.SHORT", 3)
    check(Case(decoding={"force_finish": True}), "rereading", streams.material(1, 8, SHORT))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "encoder"), [(name, e) for name, case in CASES.items() for e in case.encoders]
)
def test_many_recordings(name, encoder):
    tokens, early, apart = check(CASES[name], encoder, streams.material(1, COUNT, SHORT))
    assert tokens > 120 and early > 30
    assert apart > 0.3 or "wait" in name, "heads do not differ"


@pytest.mark.slow
@pytest.mark.parametrize("encoder", streams.ENCODERS)
def test_recordings_longer_than_the_longest_piece(encoder):
    """Of up to 11 s, so that a push may bring 80 READs at once."""
    heard = streams.material(2, 5, LONG)
    assert max(max(cuts) for cuts in heard.cuts) > 3 * 16_000
    assert check(CASES["any"], encoder, heard)[1] > 20


class AtWords(streams.Scratch):
    """Decides where labels change: what the corpus tells and no live stream knows."""

    def __init__(self, *given: Any, labels: np.ndarray):
        super().__init__(*given)
        self.labels = labels  # of states, [recordings, K]

    def known(self, read: int) -> Heard:
        heard, labels = super().known(read), self.labels[self.material.owner[read]]
        count = len(heard.states)
        triggers = decisions.label_triggers(labels, count)[:count]
        if not heard.ended:  # that the last state is the last one says nothing then
            triggers &= decisions.label_triggers(labels, count + 1)[:count]
        ends = np.flatnonzero(triggers).tolist()
        starts = [0, *(end + 1 for end in ends[:-1])]
        keys = [heard.states[a : b + 1].mean(0) for a, b in zip(starts, ends, strict=False)]
        return replace(heard, keys=np.array(keys), ends=ends)


@pytest.mark.slow
def test_recordings_at_words():
    """No live stream can: simulated."""
    random, heard = np.random.default_rng(6), streams.material(1, COUNT, SHORT)
    case = Case(kind="words")
    translator, frames = case.translator("rereading"), heard.features.shape[1]
    words = np.cumsum(random.random((COUNT, frames // 4 + 2)) < 0.25, 1)
    scratch = AtWords(translator, case.options, heard, labels=words)
    found = simulate_speech(
        translator.network,
        translator.variables,
        heard.features[heard.ended],
        heard.amounts[heard.ended],
        np.repeat(words, 4, axis=1)[:, :frames],
        decoding=case.options,
        listening=Listening(read_ms=models.STEP * 40, filterbank=HEARD.filterbank),
    )
    early, found = 0, jax.device_get(found)
    for index, count in enumerate(found.lengths):
        expected, total = scratch.say(index, "recomputed"), len(heard.recordings[index])
        amounts = streams.reads(total)
        assert found.tokens[index, :count].tolist() == expected.tokens
        delays = [amounts[turn] / 16 for turn in expected.turns]
        assert found.delays[index, :count].tolist() == delays
        early += sum(turn < len(amounts) - 1 for turn in expected.turns)
    assert int(found.lengths.sum()) > 120 and early > 30
