"""Streams say what passes from scratch on the sound heard so far say: 200 recordings a policy.

Each is pushed in pieces of 1 sample to 10 s into a stream, and compared with two references: an
oracle that decides one utterance at a time (float64, hard decisions), and, where no threshold but
1/2 is asked for, the training-time forward pass itself. Both encode the sound up to each READ from
scratch. When a word came is counted here, in samples pushed.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from simuljax.config.decoding import Decoding
from simuljax.config.model import Monotonic
from simuljax.decode.simulate import Listening, simulate_speech
from simuljax.text import EOS
from tests.decode import small, spoken
from tests.decode.streams import DECODING, HEARD
from tests.decode.trained import SHARP, Training
from tests.oracles import decisions
from tests.oracles.hard_decoder import Heard


@dataclass(frozen=True, kw_only=True)
class Case:
    """A policy, and parameters with which it both reads and writes a good deal."""

    seed: int = 15
    eager: float = 1.0
    kind: str = "fixed"
    monotonic: dict[str, Any] = field(default_factory=dict)
    decoding: dict[str, Any] = field(default_factory=dict)
    encoders: tuple[str, ...] = ("incremental", "rereading")

    def translator(self, encoder: str, decide: float = 3.0):
        return spoken.translator(
            seed=self.seed,
            eager=self.eager,
            decide=decide,
            kind=self.kind,
            speech=spoken.ENCODERS[encoder],
            monotonic=Monotonic(noise=0.0, **self.monotonic),
        )

    @property
    def options(self) -> Decoding:
        return small.changed(DECODING, **self.decoding)

    @property
    def overrules(self) -> bool:
        """Whether heads may be overruled; of a stream that keeps its targets, that is for good."""
        return self.options.gather != "any"


SHORT, LONG = 28_800, 11 * 16_000  # samples
ONE = ("incremental",)
CASES = {
    "any": Case(),
    "majority": Case(decoding={"gather": "majority"}),
    "mean": Case(decoding={"gather": "mean", "threshold": 0.6}),
    "threshold .7": Case(decoding={"threshold": 0.7}, encoders=ONE),
    "force_finish": Case(seed=20, decoding={"force_finish": True}),
    "avoid_eos": Case(seed=20, decoding={"avoid_eos_while_reading": True}),
    "both": Case(
        seed=20,
        decoding={"force_finish": True, "avoid_eos_while_reading": True, "threshold": 0.3},
        encoders=ONE,
    ),
    "hard": Case(monotonic={"attention": "hard"}),
    "chunkwise": Case(monotonic={"attention": "chunkwise", "chunk": 4}),
    "wait-2": Case(seed=9, monotonic={"policy": "wait_k", "wait_k": (2, 2)}),
    "wait-1 papi": Case(
        seed=9,
        monotonic={"policy": "wait_k", "wait_k": (2, 4), "convention": "papi"},
        decoding={"k": 1, "force_finish": True},
    ),
    "learnable": Case(kind="learnable"),
    "every state": Case(kind="every_state", encoders=ONE),
}


def check(case: Case, encoder: str, heard: spoken.Material) -> dict[str, float]:
    """All recordings of a case; gives what was shown."""
    decoding, translator = case.options, case.translator(encoder)
    kept = case.overrules and encoder == "incremental"
    scratch = spoken.Scratch(translator, decoding, heard)
    tokens, shown = [], {"tokens": 0, "early": 0, "reads": 0, "judged": 0}
    for index, recording in enumerate(heard.recordings):
        stream = translator.stream(decoding=decoding, states=300, tokens=100, events=4)
        found = spoken.listened(stream, recording, heard.cuts[index])
        expected = scratch.say(index, "kept" if kept else "recomputed")
        assert (found.tokens, found.pushed) == (expected.tokens, expected.pushed)
        assert (found.words, found.reach) == (expected.words, expected.reach)
        last = len(spoken.reads(len(recording))) - 1
        tokens.append(expected)
        shown["tokens"] += len(found.tokens)
        shown["early"] += sum(turn < last for turn in expected.turns)
        shown["reads"] += len(set(expected.turns))
    if decoding.threshold == 0.5 and not kept:
        sharp = case.translator(encoder, decide=SHARP)
        shown["judged"] = judged(Training(sharp.network, sharp.variables, decoding), heard, tokens)
    return shown | {"apart": scratch.apart / (scratch.apart + scratch.together)}


def judged(training: Training, heard: spoken.Material, said: list[spoken.Said]) -> int:
    """Every READ of every recording, by the pass of training; gives how many those were."""
    passes, count = training.passes(heard, [one.tokens for one in said]), 0
    for owner, one in enumerate(said):
        before = 0
        for turn, place in enumerate(np.flatnonzero(heard.owner == owner)):
            if EOS in one.tokens[:before]:
                break
            now = sum(written <= turn for written in one.turns)
            training.judge(passes[place], one.tokens, before, now)
            before, count = now, count + 1
    return count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "encoder"), [(name, e) for name, case in CASES.items() for e in case.encoders]
)
def test_200_recordings(name, encoder):
    shown = check(CASES[name], encoder, spoken.material(1, 200, SHORT))
    assert shown["tokens"] > 800 and shown["early"] > 200 and shown["reads"] > 400
    assert shown["apart"] > 0.3 or "wait" in name, "heads do not differ"


@pytest.mark.slow
@pytest.mark.parametrize("encoder", spoken.ENCODERS)
def test_recordings_longer_than_the_longest_piece(encoder):
    """Of up to 11 s, so that a push may bring 80 READs at once."""
    heard = spoken.material(2, 5, LONG)
    assert max(max(cuts) for cuts in heard.cuts) > 3 * 16_000
    shown = check(CASES["any"], encoder, heard)
    assert shown["early"] > 20


@pytest.mark.slow
def test_the_judges_refuse_what_is_a_little_different():
    """A token a READ later or earlier, or another token: neither is what training would do."""
    heard, case = spoken.material(1, 20, SHORT), CASES["any"]
    right = [
        spoken.Scratch(case.translator("incremental"), case.options, heard).say(n, "recomputed")
        for n in range(20)
    ]
    sharp = case.translator("incremental", decide=SHARP)
    training = Training(sharp.network, sharp.variables, case.options)
    assert judged(training, heard, right) > 50
    early = next(n for n, one in enumerate(right) if one.turns and one.turns[0] > 0)
    late = next(n for n, one in enumerate(right) if one.turns and one.turns[-1] < 5)
    other = next(n for n, one in enumerate(right) if len(one.tokens) > 3)
    changes = {
        early: {"turns": [right[early].turns[0] - 1, *right[early].turns[1:]]},
        late: {"turns": [*right[late].turns[:-1], right[late].turns[-1] + 1]},
        other: {"tokens": [*right[other].tokens[:1], 7, *right[other].tokens[2:]]},
    }
    for place, change in changes.items():
        wrong = [replace(one, **change) if n == place else one for n, one in enumerate(right)]
        with pytest.raises(AssertionError, match=r"too early|too late|another token"):
            judged(training, heard, wrong)


class AtWords(spoken.Scratch):
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
def test_200_recordings_at_words():
    """No live stream can: simulated."""
    random, heard = np.random.default_rng(6), spoken.material(1, 200, SHORT)
    case = Case(kind="words")
    translator, frames = case.translator("rereading"), heard.features.shape[1]
    words = np.cumsum(random.random((200, frames // 4 + 2)) < 0.25, 1)
    scratch = AtWords(translator, case.options, heard, labels=words)
    found = simulate_speech(
        translator.network,
        translator.variables,
        heard.features[heard.ended],
        heard.amounts[heard.ended],
        np.repeat(words, 4, axis=1)[:, :frames],
        decoding=case.options,
        listening=Listening(read_ms=small.STEP * 40, filterbank=HEARD.filterbank),
    )
    early = 0
    for index, count in enumerate(np.asarray(found.lengths)):
        expected, total = scratch.say(index, "recomputed"), len(heard.recordings[index])
        amounts = spoken.reads(total)
        assert found.tokens[index, :count].tolist() == expected.tokens
        delays = [amounts[turn] / 16 for turn in expected.turns]
        assert found.delays[index, :count].tolist() == delays
        early += sum(turn < len(amounts) - 1 for turn in expected.turns)
    assert int(found.lengths.sum()) > 800 and early > 200
