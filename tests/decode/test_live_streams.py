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
from simuljax.decode.reencoding import simulate_speech
from tests.helpers import models, streams
from tests.helpers.streams import DECODING, HEARD
from tests.oracles import decisions
from tests.oracles.hard_decoder import Heard

SHORT = 28_800  # samples


@dataclass(frozen=True, kw_only=True)
class Case:
    """A policy, and parameters with which it both reads and writes a good deal."""

    encoder: str
    seed: int = 15
    kind: str = "fixed"
    monotonic: dict[str, Any] = field(default_factory=dict)
    decoding: dict[str, Any] = field(default_factory=dict)

    def translator(self):
        speech = streams.ENCODERS[self.encoder]
        monotonic = Monotonic(noise=0.0, **self.monotonic)
        return streams.translator(
            seed=self.seed, kind=self.kind, speech=speech, monotonic=monotonic
        )

    @property
    def options(self) -> Decoding:
        return models.changed(DECODING, **self.decoding)


ENDS = {"force_finish": True, "avoid_eos_while_reading": True}
CASES = {
    "any": Case(encoder="incremental"),
    "majority": Case(encoder="incremental", decoding={"gather": "majority"}),
    "ends, by the mean": Case(
        encoder="rereading", seed=20, decoding=ENDS | {"gather": "mean", "threshold": 0.3}
    ),
    "hard, learnable": Case(encoder="rereading", kind="learnable", monotonic={"attention": "hard"}),
    "chunkwise, every state": Case(
        encoder="incremental",
        kind="every_state",
        monotonic={"attention": "chunkwise", "chunk": 4},
    ),
    "wait-1 papi": Case(
        encoder="incremental",
        seed=9,
        monotonic={"policy": "wait_k", "wait_k": (2, 4), "convention": "papi"},
        decoding={"k": 1, "force_finish": True},
    ),
}


def check(case: Case) -> tuple[int, int, float]:
    """All recordings of a case: tokens, those before the end, and how often heads stood apart."""
    decoding, translator, heard = case.options, case.translator(), streams.material(1, 8, SHORT)
    kept = (
        decoding.gather != "any" and case.encoder == "incremental"
    )  # who is overruled, is for good
    scratch = streams.Scratch(translator, decoding, heard)
    history: History = "kept" if kept else "recomputed"
    say = functools.partial(scratch.say, history=history)
    said = streams.assert_written(translator, decoding, heard, say, history)
    lasts = [len(streams.reads(len(recording))) - 1 for recording in heard.recordings]
    early = sum(turn < last for one, last in zip(said, lasts, strict=True) for turn in one.turns)
    tokens = sum(len(one.tokens) for one in said)
    return tokens, early, scratch.apart / (scratch.apart + scratch.together)


def test_8_recordings():
    """Some in pieces of more than 10 READs."""
    tokens, early, _ = check(Case(encoder="rereading"))
    assert tokens > 30 and early > 8
    assert max(max(cuts) for cuts in streams.material(1, 8, SHORT).cuts) > 10 * streams.READ


@pytest.mark.slow
def test_sentences_that_are_long(monkeypatch):
    """Beyond so many tokens the whole room is judged anew."""
    monkeypatch.setattr("simuljax.decode.greedy.SHORT", 3)
    check(Case(encoder="rereading", decoding={"force_finish": True}))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_case(name):
    tokens, early, apart = check(CASES[name])
    assert tokens > 30 and early > 8
    assert apart > 0.3 or "wait" in name, "heads do not differ"


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
    random, heard = np.random.default_rng(6), streams.material(1, 8, SHORT)
    case = Case(encoder="rereading", kind="words")
    translator, frames = case.translator(), heard.features.shape[1]
    words = np.cumsum(random.random((8, frames // 4 + 2)) < 0.25, 1)
    scratch = AtWords(translator, case.options, heard, labels=words)
    found = simulate_speech(
        translator.network,
        translator.variables,
        heard.features[heard.ended],
        heard.amounts[heard.ended],
        np.repeat(words, 4, axis=1)[:, :frames],
        decoding=case.options,
        filterbank=HEARD.filterbank,
    )
    early, found = 0, jax.device_get(found)
    for index, count in enumerate(found.lengths):
        expected, total = scratch.say(index, "recomputed"), len(heard.recordings[index])
        amounts = streams.reads(total)
        assert found.tokens[index, :count].tolist() == expected.tokens
        delays = [amounts[turn] / 16 for turn in expected.turns]
        assert found.delays[index, :count].tolist() == delays
        early += sum(turn < len(amounts) - 1 for turn in expected.turns)
    assert int(found.lengths.sum()) > 30 and early > 8
