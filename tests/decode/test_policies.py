"""Offline models under a policy: streamed = simulated = the rule, read literally, from scratch.

Recordings are pushed in pieces of 1 sample to 10 s into a stream. The oracle encodes the sound up
to each READ from scratch, attempts every token in float64, and counts words in the decoded text and
in the collapsed labels of the CTC head. The simulation is that of a batch.
"""

import dataclasses
import functools
import itertools
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import pytest

from simuljax.audio import frame_count
from simuljax.config.decoding import Decoding, LengthLimit
from simuljax.config.model import Monotonic, SpeechConfig
from simuljax.decode.policies import AlignAtt, EDAtt, FixedSteps, LocalAgreement, Policy, WaitK
from simuljax.decode.simulate import simulate_speech, usual_listening
from simuljax.nn.subsampling import state_count
from simuljax.text import SPECIALS
from tests.helpers import models, streams
from tests.helpers.streams import DECODING, HEARD, SPEECH, known_states
from tests.oracles.offline_policies import OfflineDecoder, Source, Told, tell, words_in

SHORT, STEP = 28_800, models.STEP * 40  # samples; ms of a READ
READS_CTC = SpeechConfig(layers=2, shared=1, channels=12, ctc_after=1)
STREAMS_CTC = dataclasses.replace(SPEECH, ctc_after=1)
ENCODERS = {"rereading": READS_CTC, "incremental": STREAMS_CTC}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A policy, and what else decoding is told."""

    policy: Policy
    encoders: tuple[str, ...] = ("rereading",)
    seed: int = 6
    decoding: dict[str, Any] = field(default_factory=dict)
    early: float = 0.1  # the share of tokens that must be written before the end

    @property
    def options(self) -> Decoding:
        return models.changed(DECODING, policy=self.policy, **self.decoding)


BOTH = ("rereading", "incremental")
FLAGS = {"force_finish": True, "avoid_eos_while_reading": True}
CASES = {
    "wait-1 stacl": Case(policy=WaitK(k=1, step_ms=STEP, convention="stacl"), encoders=BOTH),
    "wait-2 ctc": Case(policy=WaitK(k=2, units="ctc", step_ms=STEP), encoders=BOTH, decoding=FLAGS),
    "wait-1 ctc, whole words": Case(
        policy=WaitK(k=1, units="ctc", step_ms=STEP, trailing="leave", convention="stacl")
    ),
    "align-att": Case(policy=AlignAtt(frames=4), encoders=BOTH),
    "align-att layer 2 head 1": Case(policy=AlignAtt(frames=3, layer=2, heads=1)),
    "ed-att layer 1": Case(
        policy=EDAtt(frames=2, alpha=0.2, layer=1), encoders=BOTH, decoding=FLAGS
    ),
    "fixed steps": Case(
        policy=FixedSteps(first_ms=3 * STEP, step_ms=STEP, tokens=2),
        decoding={"limit": LengthLimit(ratio=0.25, constant=0)},
    ),
    "local agreement": Case(policy=LocalAgreement(agree=3), early=0.05),
}


@functools.cache
def translator(encoder: str, seed: int):
    return streams.translator(
        seed=seed, monotonic=Monotonic(policy="offline"), speech=ENCODERS[encoder]
    )


@functools.cache
def encoder_of(translator):
    """Compiled once: states and the best labels."""

    @models.fast
    def encode(features, frames):
        given = (translator.variables, features, frames)
        encoded: Any = translator.network.apply(*given, train=False, method="encode_speech")
        return encoded.states, encoded.ctc.argmax(-1)

    return encode


class Scratch:
    """What can be known after every READ, encoded from exactly the sound up to it."""

    def __init__(self, translator, decoding: Decoding, heard: streams.Material):
        self.translator, self.decoding, self.material = translator, decoding, heard
        model, params = translator.network.config, translator.variables["params"]
        self.decoder = OfflineDecoder(params["decoder"], model.monotonic, model.width.heads)
        self.streams = model.speech.kind == "streaming"
        assert decoding.policy is not None
        self.policy: Policy = decoding.policy
        encode = encoder_of(translator)
        self.states, self.labels = streams.in_groups(encode, heard.features, heard.frames)

    def source(self, place: int) -> Source:
        amount, ended = int(self.material.amounts[place]), bool(self.material.ended[place])
        count = int(state_count(frame_count(amount, HEARD.filterbank)))
        count = known_states(amount, ended) if self.streams else count
        policy, units = self.policy, 0
        if isinstance(policy, WaitK):
            units = amount // (policy.step_ms * 16)
            if policy.units == "ctc":
                units = words_said(self.labels[place, :count].tolist(), policy.trailing)
        states = self.states[place, :count].astype(np.float64)
        return Source(states=states, units=units, ended=ended)

    def places(self, index: int) -> list[int]:
        """Of its READs; the first may take several of the others' size."""
        first = self.policy.first_read_ms or STEP
        places = np.flatnonzero(self.material.owner == index).tolist()
        amounts = self.material.amounts
        return [p for p in places if amounts[p] >= first * 16 or self.material.ended[p]]

    def say(self, index: int) -> streams.Said:
        policy, cuts = self.policy, self.material.cuts[index]
        kept = isinstance(policy, FixedSteps) or (self.streams and policy.is_incremental)
        told, places = Told(), self.places(index)
        for place in places:
            given = (self.decoder, told, self.source(place), place, self.decoding)
            tell(*given, streams.VOCABULARY, history="kept" if kept else "recomputed")
        assert told.finished
        pushed = [streams.when(int(self.material.amounts[place]), cuts) for place in told.heard]
        end = pushed[-1] if 2 in told.tokens else sum(cuts)
        return streams.Said(
            tokens=told.tokens,
            pushed=pushed,
            words=streams.words_of(told.tokens, pushed, end),
            turns=[places.index(place) for place in told.heard],
        )


def words_said(labels: list[int], trailing: str) -> int:
    """Of the labels of all states: repetitions merged, blanks and special ids dropped."""
    merged = [label for label, _ in itertools.groupby(labels)]
    blank = len(streams.VOCABULARY.pieces)
    kept = [label for label in merged if label != blank and label >= len(SPECIALS) - 1]
    words = words_in(streams.VOCABULARY, kept)
    open_word = kept and streams.VOCABULARY.pieces[kept[-1]] != "▁"
    return words - bool(open_word) if trailing == "leave" else words


def check(name: str, encoder: str, heard: streams.Material) -> dict[str, Any]:
    """All recordings of a case; gives what was shown."""
    case = CASES[name]
    speaker, decoding = translator(encoder, case.seed), case.options
    scratch, said = Scratch(speaker, decoding, heard), []
    for index, recording in enumerate(heard.recordings):
        stream = speaker.stream(decoding=decoding, states=300, tokens=100, events=4)
        found = streams.listened(stream, recording, heard.cuts[index])
        expected = scratch.say(index)
        assert (found.tokens, found.pushed) == (expected.tokens, expected.pushed)
        assert found.words == expected.words
        said.append(expected)
    simulated(speaker, decoding, heard, said)
    last = [len(scratch.places(i)) - 1 for i in range(len(said))]
    early = sum(turn < end for one, end in zip(said, last, strict=True) for turn in one.turns)
    return {"said": said, "tokens": sum(len(one.tokens) for one in said), "early": early}


def simulated(
    speaker, decoding: Decoding, heard: streams.Material, said: list[streams.Said]
) -> None:
    """The batch writes the same, when as much has been heard.

    A stream does not know that whole READs are all there is, and reads once more.
    """
    done = simulate_speech(
        speaker.network,
        speaker.variables,
        heard.features[heard.ended],
        heard.amounts[heard.ended],
        decoding=decoding,
        listening=usual_listening(decoding, STEP, filterbank=HEARD.filterbank),
        words=speaker.words,
    )
    done = jax.device_get(done)
    first = (decoding.policy.first_read_ms if decoding.policy else None) or STEP
    for index, one in enumerate(said):
        total, count = len(heard.recordings[index]) / 16, int(done.lengths[index])
        if (total - first) % STEP == 0:
            continue
        assert done.tokens[index, :count].tolist() == one.tokens
        delays = [min(first + STEP * turn, total) for turn in one.turns]
        assert done.delays[index, :count].tolist() == delays


def test_8_recordings():
    shown = check("wait-2 ctc", "rereading", streams.material(1, 8, SHORT))
    assert shown["tokens"] > 40 and shown["early"] > 0.1 * shown["tokens"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "encoder"), [(name, e) for name, case in CASES.items() for e in case.encoders]
)
def test_30_recordings(name, encoder):
    shown = check(name, encoder, streams.material(1, 30, SHORT))
    assert shown["tokens"] >= 150 and shown["early"] > CASES[name].early * shown["tokens"]
