"""Policies as users meet them: streams of speech and of text, and many streams at once."""

import dataclasses

import numpy as np
import pytest

from simuljax.audio import AudioError
from simuljax.config.model import Monotonic
from simuljax.decode.policies import AlignAtt, FixedSteps, LocalAgreement, WaitK
from simuljax.serve.cascade import TextReader
from simuljax.serve.run_translator import IncrementalBackend, RunTranslator
from simuljax.train.run import RunError
from tests.helpers import models, streams
from tests.helpers.streams import DECODING, SPEECH, push_all, sound, timed

pytestmark = pytest.mark.slow  # compiles much

OFFLINE = Monotonic(policy="offline")
LIMITS = {"states": 60, "tokens": 30, "events": 4}


@pytest.fixture(scope="module")
def streaming() -> RunTranslator:
    return streams.translator(seed=6, monotonic=OFFLINE, speech=SPEECH, decoder_layers=1)


@pytest.mark.parametrize("policy", [AlignAtt(frames=3), LocalAgreement()])
def test_many_streams_under_a_policy_say_what_each_says_alone(streaming, policy):
    """Of 5 streams in 4 rows, pushed in pieces of other sizes; READs are due at different times.

    AlignAtt goes on where it was; LocalAgreement needs all sound anew, whatever the encoder.
    """
    random = np.random.default_rng(2)
    sounds = [sound(random, 20_000 - 1_700 * i) for i in range(5)]
    options = LIMITS | {"decoding": dataclasses.replace(DECODING, policy=policy)}
    engine, found = streaming.engine(streams=4, **options), []
    alone = [
        timed(push_all(streaming.stream(**options), np.array_split(each, 5))) for each in sounds
    ]
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
    if isinstance(backend := streaming.backend(**options), IncrementalBackend):
        assert models.compilations(backend.step) == 2  # alone, in the engine
    else:  # with all sound anew there is a limit
        with pytest.raises(AudioError, match=r"more than 2 s.*streaming encoder"):
            streaming.stream(**options).push(sound(random, 45_000))


def test_what_a_stream_cannot_do_is_said(streaming):
    with pytest.raises(RunError, match="wait-k is for models trained offline"):
        streams.translator().stream(policy=WaitK(k=3))
    with pytest.raises(RunError, match="counts the words that a CTC head hears"):
        streaming.stream(policy=WaitK(k=3, units="ctc"))
    with pytest.raises(RunError, match="a text has none"):
        TextReader(streaming, policy=FixedSteps(first_ms=100, step_ms=100, tokens=1))
    with pytest.raises(TypeError, match="do you mean 'policy'"):
        streaming.stream(polcy=WaitK(k=3))
