"""Policies as users meet them: streams of speech and of text, and many streams at once."""

import dataclasses

import numpy as np
import pytest

from simuljax.config.decoding import LengthLimit
from simuljax.config.model import Monotonic
from simuljax.decode.policies import AlignAtt, FixedSteps, LocalAgreement, WaitK
from simuljax.serve.cascade import TextReader
from simuljax.serve.run import RunError
from simuljax.serve.run_translator import IncrementalBackend, RunTranslator
from tests.helpers import models, streams
from tests.helpers.streams import DECODING, SPEECH, push_all, sound, timed

pytestmark = pytest.mark.slow  # compiles much

OFFLINE = Monotonic(policy="offline")
LIMITS = {"states": 60, "tokens": 30, "events": 4}


@pytest.fixture(scope="module")
def streaming() -> RunTranslator:
    return streams.translator(seed=6, monotonic=OFFLINE, speech=SPEECH)


@pytest.fixture(scope="module")
def whole() -> RunTranslator:
    return streams.translator(seed=6, monotonic=OFFLINE)


@pytest.mark.parametrize(
    ("encoder", "policy"),
    [
        ("streaming", AlignAtt(frames=3)),
        ("whole", AlignAtt(frames=3)),
        ("streaming", LocalAgreement()),  # needs all sound anew, whatever the encoder
    ],
)
def test_many_streams_under_a_policy_say_what_each_says_alone(request, encoder, policy):
    """Of 5 streams in 4 rows, pushed in pieces of other sizes; READs are due at different times."""
    speaker, random = request.getfixturevalue(encoder), np.random.default_rng(2)
    sounds = [sound(random, 20_000 - 1_700 * i) for i in range(5)]
    options = LIMITS | {"decoding": dataclasses.replace(DECODING, policy=policy)}
    engine, found = speaker.engine(streams=4, **options), []
    alone = [timed(push_all(speaker.stream(**options), np.array_split(each, 5))) for each in sounds]
    for some in (sounds[:4], sounds[4:]):
        seats = [engine.open() for _ in some]
        for turn in range(5):
            for seat, each in zip(seats, some, strict=True):
                seat.push(np.array_split(each, 5)[turn])
                if random.random() < 0.5:
                    engine.step()
        for seat in seats:
            seat.finish()
        while engine.step():
            pass
        found += [timed(seat.words()) for seat in seats]
    assert found == alone and sum(map(len, alone)) > 5
    assert speaker.stream_all(sounds, streams=3, **options)
    if isinstance(backend := speaker.backend(**options), IncrementalBackend):
        assert models.compilations(backend.step) == 3  # alone, in the engine, all at once


def test_fixed_steps_read_first_k_and_then_s(whole):
    """However little is pushed at a time; a word comes with the READ that completed it."""
    policy = FixedSteps(first_ms=250, step_ms=90, tokens=1)
    limit, random, delays = LengthLimit(ratio=0.5, constant=4), np.random.default_rng(5), set()
    for _ in range(4):
        stream = whole.stream(policy=policy, limit=limit, repetition=DECODING.repetition)
        words = push_all(stream, np.split(sound(random, 25_000), range(160, 25_000, 160)))
        delays |= {word.delay_ms for word in words}
    steps = {min(250 + 90 * t, 25_000 / 16) for t in range(30)}
    assert delays <= steps and len(delays) > 4


def test_what_a_stream_cannot_do_is_said(whole, streaming):
    own = streams.translator()
    with pytest.raises(RunError, match="wait-k is for models trained offline"):
        own.stream(policy=WaitK(k=3))
    with pytest.raises(RunError, match="counts the words that a CTC head hears"):
        whole.stream(policy=WaitK(k=3, units="ctc"))
    with pytest.raises(RunError, match="a text has none"):
        TextReader(whole, policy=FixedSteps(first_ms=100, step_ms=100, tokens=1))
    with pytest.raises(TypeError, match="do you mean 'policy'"):
        whole.stream(polcy=WaitK(k=3))
