"""Streams say what passes from scratch on the sound heard so far say: 200 recordings a policy.

Each is pushed in pieces of 1 sample to 10 s into a stream, and compared with two references: an
oracle that decides one utterance at a time (float64, hard decisions), and, where no threshold but
1/2 is asked for, the training-time forward pass itself. Both encode the sound up to each READ from
scratch. When a word came is counted here, in samples pushed.

The decoder of training works with expectations. With energies so large that every probability is 0
or 1 it decides like a stream does, whose decisions ask for the sign of an energy alone.
"""

import dataclasses
import functools
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.config.decoding import Decoding
from simuljax.config.model import Monotonic
from simuljax.decode.simulate import Listening, simulate_speech
from simuljax.decode.state import control_of
from simuljax.models.encoders import Encoded
from simuljax.models.joint import JointModel
from simuljax.models.streaming import chunking_of
from simuljax.nn.layers import zero_padding
from simuljax.nn.monotonic import Decisions
from simuljax.text import BOS, EOS
from tests.helpers import models, streams
from tests.helpers.streams import DECODING, HEARD, Material, in_groups
from tests.oracles import decisions, simultaneous
from tests.oracles.hard_decoder import Heard

SHARP = 1e6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Passed:
    """After one READ: what each target would be, and which decisions each head accepts for it."""

    logits: np.ndarray  # [T, V]
    accepted: np.ndarray  # bool [layers, H, T, W]
    states: int
    ended: bool

    def waits(self, target: int) -> list[bool]:
        """Return True if heads go on past the last decision, from target to target."""
        if self.ended:
            return [False]
        layers, heads, _, count = self.accepted.shape
        stands = np.zeros((layers, heads), int)
        for accepted in np.moveaxis(self.accepted, 2, 0)[: target + 1]:
            for place in np.ndindex(layers, heads):
                while stands[place] < count and not accepted[*place, stands[place]]:
                    stands[place] += 1
        return (stands == count).ravel().tolist()


class Training:
    """A model as training runs it, without dropout and noise."""

    def __init__(self, model: JointModel, variables: Any, decoding: Decoding):
        self.model, self.variables, self.decoding = model, variables, decoding
        self.k = int(control_of(decoding, model.config.monotonic).selection.k)

    @functools.cached_property
    def forward(self) -> Any:
        """Features [B, F, D] of what has been heard, and targets [B, T] -> logits, decisions."""

        def forward(features, frames, ended, targets):
            def decode(model: JointModel):
                encoded = self.heard(model.encode_speech(features, frames, train=False), ended)
                points = model.speech_decisions(encoded)
                if points.step is not None:  # windows that are not full have to wait
                    full = jnp.where(ended, points.count, encoded.lengths // points.step)
                    points = dataclasses.replace(points, count=full)
                decoded = model.decode(targets, encoded, points, jnp.int32(self.k), train=False)
                accepted = self.accepted(decoded.reading.energy, points, targets.shape[1])
                return decoded.logits, accepted, points.count, encoded.lengths

            return self.model.apply(self.variables, method=decode)

        return jax.jit(forward, compiler_options=models.FAST)

    def heard(self, encoded: Encoded, ended: jax.Array) -> Encoded:
        """Without states that would change with more sound."""
        speech = self.model.config.speech
        assert speech is not None
        if speech.kind != "streaming":
            return encoded
        complete = chunking_of(speech).complete(encoded.lengths) * speech.chunk
        lengths = jnp.where(ended, encoded.lengths, complete)
        return Encoded(states=zero_padding(encoded.states, lengths), lengths=lengths)

    def accepted(self, energy: jax.Array | None, points: Decisions, targets: int) -> jax.Array:
        """bool [B, layers, H, T, W]; those that are not real decisions are the last."""
        if energy is None:  # wait-k
            needed = self.k + (self.model.config.monotonic.convention == "papi")
            batch, count = points.ends.shape
            enough = jnp.arange(count) + 1 >= needed + jnp.arange(targets)[:, None]
            return jnp.broadcast_to(enough, (batch, 1, 1, targets, count))
        accepted = energy.swapaxes(0, 1) >= 0
        return (
            accepted
            if points.gate is None
            else accepted & (points.gate >= 0.5)[:, None, None, None]
        )

    def passes(self, material: Material, tokens: list[list[int]]) -> list[Passed]:
        """One for each READ, with what its recording's stream has written in the end."""
        targets = np.zeros((len(material.owner), 2 + max(map(len, tokens))), np.int32)
        for row, owner in zip(targets, material.owner, strict=True):
            row[: 1 + len(tokens[owner])] = [BOS, *tokens[owner]]
        given = (material.features, material.frames, material.ended, targets)
        rows = zip(*in_groups(self.forward, *given), material.ended.tolist(), strict=True)
        return [
            Passed(logits=logits, accepted=accepted[..., :count], states=int(states), ended=ended)
            for logits, accepted, count, states, ended in rows
        ]

    def judge(self, after: Passed, tokens: list[int], before: int, now: int) -> None:
        """That exactly the tokens from number `before` to `now` are written after this READ."""
        limit = self.decoding.limit.of(after.states) if after.states else 0
        for place in range(before, now):
            assert place < limit and not self.reads(after, tokens[:place]), "written too early"
            assert self.choice(after, tokens[:place]) == tokens[place], "another token is best"
        over = now and tokens[now - 1] == EOS
        assert over or now >= limit or self.reads(after, tokens[:now]), "written too late"

    def choice(self, after: Passed, tokens: list[int]) -> int:
        """The best token that may follow these."""
        return simultaneous.best(after.logits[len(tokens)], tokens, after, self.decoding)

    def reads(self, after: Passed, tokens: list[int]) -> bool:
        """Return True if another token needs more speech."""
        waits = after.waits(len(tokens))
        if self.decoding.gather == "any" and any(waits):
            return True
        if self.decoding.gather == "majority" and sum(waits) > len(waits) / 2:
            return True
        early = self.choice(after, tokens) == EOS and not after.ended
        return self.decoding.force_finish and early


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
        return streams.translator(
            seed=self.seed,
            eager=self.eager,
            decide=decide,
            kind=self.kind,
            speech=streams.ENCODERS[encoder],
            monotonic=Monotonic(noise=0.0, **self.monotonic),
        )

    @property
    def options(self) -> Decoding:
        return models.changed(DECODING, **self.decoding)

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


def check(case: Case, encoder: str, heard: streams.Material) -> dict[str, float]:
    """All recordings of a case; gives what was shown."""
    decoding, translator = case.options, case.translator(encoder)
    kept = case.overrules and encoder == "incremental"
    scratch = streams.Scratch(translator, decoding, heard)
    tokens, shown = [], {"tokens": 0, "early": 0, "reads": 0, "judged": 0}
    for index, recording in enumerate(heard.recordings):
        stream = translator.stream(decoding=decoding, states=300, tokens=100, events=4)
        found = streams.listened(stream, recording, heard.cuts[index])
        expected = scratch.say(index, "kept" if kept else "recomputed")
        assert (found.tokens, found.pushed) == (expected.tokens, expected.pushed)
        assert (found.words, found.reach) == (expected.words, expected.reach)
        last = len(streams.reads(len(recording))) - 1
        tokens.append(expected)
        shown["tokens"] += len(found.tokens)
        shown["early"] += sum(turn < last for turn in expected.turns)
        shown["reads"] += len(set(expected.turns))
    if decoding.threshold == 0.5 and not kept:
        sharp = case.translator(encoder, decide=SHARP)
        shown["judged"] = judged(Training(sharp.network, sharp.variables, decoding), heard, tokens)
    return shown | {"apart": scratch.apart / (scratch.apart + scratch.together)}


def judged(training: Training, heard: streams.Material, said: list[streams.Said]) -> int:
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
    shown = check(CASES[name], encoder, streams.material(1, 200, SHORT))
    assert shown["tokens"] > 800 and shown["early"] > 200 and shown["reads"] > 400
    assert shown["apart"] > 0.3 or "wait" in name, "heads do not differ"


@pytest.mark.slow
@pytest.mark.parametrize("encoder", streams.ENCODERS)
def test_recordings_longer_than_the_longest_piece(encoder):
    """Of up to 11 s, so that a push may bring 80 READs at once."""
    heard = streams.material(2, 5, LONG)
    assert max(max(cuts) for cuts in heard.cuts) > 3 * 16_000
    shown = check(CASES["any"], encoder, heard)
    assert shown["early"] > 20


@pytest.mark.slow
def test_the_judges_refuse_what_is_a_little_different():
    """A token a READ later or earlier, or another token: neither is what training would do."""
    heard, case = streams.material(1, 20, SHORT), CASES["any"]
    right = [
        streams.Scratch(case.translator("incremental"), case.options, heard).say(n, "recomputed")
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
def test_200_recordings_at_words():
    """No live stream can: simulated."""
    random, heard = np.random.default_rng(6), streams.material(1, 200, SHORT)
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
        listening=Listening(read_ms=models.STEP * 40, filterbank=HEARD.filterbank),
    )
    early = 0
    for index, count in enumerate(np.asarray(found.lengths)):
        expected, total = scratch.say(index, "recomputed"), len(heard.recordings[index])
        amounts = streams.reads(total)
        assert found.tokens[index, :count].tolist() == expected.tokens
        delays = [amounts[turn] / 16 for turn in expected.turns]
        assert found.delays[index, :count].tolist() == delays
        early += sum(turn < len(amounts) - 1 for turn in expected.turns)
    assert int(found.lengths.sum()) > 800 and early > 200
