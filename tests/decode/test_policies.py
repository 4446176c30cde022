"""Offline models under a policy: streamed = simulated = the rule, read literally, from scratch."""

import dataclasses
import functools
import itertools
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import pytest

from simuljax.audio import frame_count
from simuljax.config.decoding import Beam, Decoding, LengthLimit
from simuljax.config.model import Monotonic, PreDecision, SpeechConfig
from simuljax.decode.beam import translate_speech
from simuljax.decode.context import control_of
from simuljax.decode.policies import (
    AlignAtt,
    EDAtt,
    FixedSteps,
    LocalAgreement,
    Policy,
    PolicyError,
    WaitK,
)
from simuljax.decode.reencoding import simulate_speech
from simuljax.decode.stream import StreamingDecoder
from simuljax.nn.subsampling import state_count
from simuljax.serve.run_translator import RunTranslator
from simuljax.text import EOS, SPECIALS, Words
from simuljax.train.run import Loaded
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
    encoder: str = "incremental"
    decoding: dict[str, Any] = field(default_factory=dict)
    early: float = 0.1  # the share of tokens that must be written before the end

    @property
    def options(self) -> Decoding:
        return models.changed(DECODING, policy=self.policy, **self.decoding)


FLAGS = {"force_finish": True, "avoid_eos_while_reading": True}
CASES = {
    "wait-2 ctc": Case(
        policy=WaitK(k=2, units="ctc", step_ms=STEP), decoding=FLAGS, encoder="rereading"
    ),
    "wait-1 stacl": Case(policy=WaitK(k=1, step_ms=STEP, convention="stacl")),
    "wait-1 ctc, whole words": Case(
        policy=WaitK(k=1, units="ctc", step_ms=STEP, trailing="leave", convention="stacl")
    ),
    "align-att": Case(policy=AlignAtt(frames=4)),
    "align-att layer 2 head 1": Case(
        policy=AlignAtt(frames=3, layer=2, heads=1), encoder="rereading"
    ),
    "ed-att layer 1": Case(policy=EDAtt(frames=2, alpha=0.2, layer=1), decoding=FLAGS),
    "fixed steps": Case(
        policy=FixedSteps(first_ms=3 * STEP, step_ms=STEP, tokens=2),
        decoding={"limit": LengthLimit(ratio=0.25, constant=0)},
        encoder="rereading",
    ),
    "local agreement": Case(policy=LocalAgreement(agree=3), early=0.05, encoder="rereading"),
}


@functools.cache
def translator(encoder: str):
    return streams.translator(
        seed=6, monotonic=Monotonic(policy="offline"), speech=ENCODERS[encoder]
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


@pytest.mark.parametrize(
    "name", [n if n == "wait-2 ctc" else pytest.param(n, marks=pytest.mark.slow) for n in CASES]
)
def test_8_recordings(name):
    case, heard = CASES[name], streams.material(1, 8, SHORT)
    speaker, decoding = translator(case.encoder), case.options
    scratch = Scratch(speaker, decoding, heard)
    said = streams.assert_written(speaker, decoding, heard, scratch.say)
    last = [len(scratch.places(i)) - 1 for i in range(len(said))]
    early = sum(turn < end for one, end in zip(said, last, strict=True) for turn in one.turns)
    tokens = sum(len(one.tokens) for one in said)
    assert tokens > 40 and early > case.early * tokens


OFFLINE = Monotonic(policy="offline")
WORDS = Words.of(streams.VOCABULARY, streams.VOCABULARY)


@pytest.fixture(scope="module")
def speaker():
    return streams.translator(seed=6, monotonic=OFFLINE)


@pytest.fixture(scope="module")
def heard():
    return streams.material(1, 8, SHORT)


def said(speaker, heard, policy, **changes):
    given = (speaker.network, speaker.variables)
    sound = (heard.features[heard.ended], heard.amounts[heard.ended])
    decoding = models.changed(DECODING, policy=policy, **changes)
    return jax.device_get(simulate_speech(*given, *sound, decoding=decoding, words=WORDS))


@pytest.mark.slow
def test_without_a_policy_all_is_written_at_the_end(speaker, heard):
    frames = heard.frames[heard.ended]
    given = (speaker.network, speaker.variables, heard.features[heard.ended], frames)
    whole = jax.device_get(translate_speech(*given, decoding=DECODING))
    found = said(speaker, heard, None)
    np.testing.assert_array_equal(found.tokens, whole.tokens)
    there = np.arange(found.tokens.shape[1]) < found.lengths[:, None]
    wanted = np.broadcast_to(heard.amounts[heard.ended][:, None] / 16, there.shape)
    np.testing.assert_array_equal(found.delays[there], wanted[there])
    assert whole.lengths.sum() > 40


@pytest.mark.slow
def test_a_model_trained_with_masks_of_words_waits_for_words(heard):
    """It attends to all that was heard, and wait-k alone says when; offline it hears everything."""
    speech = SpeechConfig(layers=2, shared=1, channels=12, ctc_after=1)
    masked = Monotonic(policy="wait_k", counts="words", wait_k=(2, 2))
    offline = streams.translator(seed=6, monotonic=OFFLINE, speech=speech)
    at_words = PreDecision(kind="ctc_words", step_ms=120)
    model = dataclasses.replace(offline.run.model, monotonic=masked, predecision=at_words)
    loaded = Loaded(params=offline.variables["params"], statistics={}, steps=(0,))
    config = dataclasses.replace(offline.run.config, model=model)
    made = [RunTranslator(dataclasses.replace(offline.run, config=config), loaded), offline]
    policy = WaitK(k=1, units="ctc", step_ms=120)
    one, other = (said(each, heard, policy) for each in made)
    np.testing.assert_array_equal(one.tokens, other.tokens)
    np.testing.assert_array_equal(one.delays, other.delays)
    assert len(np.unique(one.delays)) > 8
    played = heard.recordings[1]
    assert made[0].translate(played) == made[1].translate(played) != ""


@pytest.mark.slow
def test_agreement_on_a_beam(speaker, heard):
    """Heard at once it is beam search; in parts nothing is taken back, and words come early."""
    frames = heard.frames[heard.ended]
    given = (speaker.network, speaker.variables, heard.features[heard.ended], frames)
    policy = LocalAgreement(beam=3)
    whole = said(speaker, heard, policy, read_ms=5_000)
    wanted = translate_speech(*given, decoding=DECODING, beam=Beam(size=3))
    width = min(whole.tokens.shape[1], wanted.tokens.shape[1])
    np.testing.assert_array_equal(whole.tokens[:, :width], wanted.tokens[:, :width])
    parts = said(speaker, heard, policy, read_ms=120)
    there = np.arange(parts.tokens.shape[1]) < parts.lengths[:, None]
    early = there & (parts.delays < heard.amounts[heard.ended][:, None] / 16)
    assert early.sum() > 10 and (np.diff(parts.delays)[there[:, 1:]] >= 0).all()
    assert not (early & (parts.tokens == EOS)).any()


def test_a_model_that_decides_by_itself_is_refused(heard):
    speaker = streams.translator()
    with pytest.raises(PolicyError, match="decides by itself"):
        said(speaker, heard, WaitK(k=3))
    with pytest.raises(PolicyError, match="decides by itself"):
        StreamingDecoder(
            model=speaker.network, features=HEARD, decoding=Decoding(policy=WaitK(k=3))
        )
    other = streams.translator(monotonic=OFFLINE, speech=SPEECH)
    with pytest.raises(PolicyError, match=r"simuljax\.decode\.reencoding"):
        decoding = Decoding(policy=LocalAgreement())
        StreamingDecoder(model=other.network, features=HEARD, decoding=decoding)
    with pytest.raises(PolicyError, match="counts words"):
        control_of(Decoding(policy=WaitK(k=3)), OFFLINE)
