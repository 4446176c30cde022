"""A model that writes one word for ever: no decoder lets more than two of them out."""

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simuljax.config.decoding import Blocks, LengthLimit
from simuljax.config.model import Monotonic, PreDecision
from simuljax.decode.policies import AlignAtt, FixedSteps, Greedy, LocalAgreement, WaitK
from simuljax.decode.repetition import Stammer
from simuljax.serve.cascade import TextReader
from simuljax.serve.run_translator import RunTranslator
from simuljax.serve.whisper import Guards, WhisperSession, WhisperStreaming
from simuljax.serve.whisper.hypothesis import Hypothesis, Segment, SpelledWord
from simuljax.train.transfer import Loaded
from tests.helpers import models, streams
from tests.helpers.streams import RATE, SPEECH, sound

OFFLINE = Monotonic(policy="offline")
CAAT = {
    "monotonic": OFFLINE,
    "decoder": "caat",
    "joiner_layers": 2,
    "text": None,
    "speech": models.CAAT_SPEECH,
    "predecision": PreDecision(step_ms=40 * models.CAAT_GROUP),
}
LIMIT = LengthLimit(ratio=0.5, constant=4)
RECORDING = sound(np.random.default_rng(1), RATE)
WAITS = Monotonic(policy="wait_k", wait_k=(3, 3))
STEPS = FixedSteps(first_ms=200, step_ms=100, tokens=2)
DECODERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "monotonic heads": ({"speech": SPEECH}, {}),
    "monotonic heads, re-encoding": ({}, {}),
    "wait-k heads": ({"speech": SPEECH, "monotonic": WAITS}, {}),
    "wait-k": ({"monotonic": OFFLINE}, {"policy": WaitK(k=2)}),
    "alignatt": ({"monotonic": OFFLINE}, {"policy": AlignAtt(frames=4)}),
    "fixed steps": ({"monotonic": OFFLINE}, {"policy": STEPS}),
    "agreement of beams": ({"monotonic": OFFLINE}, {"policy": LocalAgreement(beam=2)}),
    "CAAT": (CAAT, {"blocks": Blocks(inside=3)}),
}


@functools.cache
def stuck(**changes: Any) -> RunTranslator:
    """Writes the piece "▁c" and nothing else, whatever comes."""
    made = streams.translator(**changes)
    params = made.variables["params"]
    decoder = dict(params["decoder"])
    kernel = np.zeros_like(decoder["output"]["kernel"])
    kernel[:, streams.VOCABULARY.pieces.index("▁c")] = 3.0
    size = len(decoder["norm"]["bias"])
    decoder["norm"] = {"scale": np.zeros(size, np.float32), "bias": np.ones(size, np.float32)}
    decoder["output"] = {"kernel": kernel}
    rigged = {**params, "decoder": decoder}
    return RunTranslator(made.run, Loaded(params=rigged, statistics={}, steps=(0,)))


QUICK = "monotonic heads"  # every decoder hands its words to the same filter


@pytest.mark.parametrize(
    "name", [n if n == QUICK else pytest.param(n, marks=pytest.mark.slow) for n in DECODERS]
)
def test_no_stream_stammers(name):
    model, settings = DECODERS[name]
    translator = stuck(**model)
    for times in (2, 0):
        stream = translator.stream(limit=LIMIT, stammer=Stammer(times=times), **settings)
        words = [w for piece in np.array_split(RECORDING, 7) for w in stream.push(piece)]
        texts = [word.text for word in words + stream.finish()]
        assert texts == ["c", "c"] if times else len(texts) > 4 and set(texts) == {"c"}


@pytest.mark.parametrize("beam", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_no_whole_recording_stammers(beam):
    assert stuck(monotonic=OFFLINE).translate(RECORDING, beam=beam) == "c c"


def test_no_text_stammers():
    translator = stuck()
    stream = TextReader(translator, limit=LIMIT).stream()
    words = [word.text for word in stream.push("a b c d e f") + stream.finish()]
    assert words == ["c", "c"] and translator.translate_text("a b c") == "c c"


def test_a_new_segment_may_say_the_same_again():
    translator, pause = stuck(speech=SPEECH), np.zeros(RATE, np.float32)
    stream = translator.stream(limit=LIMIT, sentences="pauses")
    talk = np.concatenate([RECORDING, pause] * 3)
    assert [word.text for word in stream.push(talk) + stream.finish()] == ["c"] * 6


@pytest.mark.parametrize("times", [2, 0])
def test_whisper(times):
    """Without its own guards, which refuse whole segments."""
    guards = Guards(**dict.fromkeys(Guards.__dataclass_fields__))
    own = {"policy": Greedy(), "guards": guards, "stammer": Stammer(times=times)}
    session, words = WhisperSession(replace(WhisperStreaming(), **own)), []
    for _ in range(6):
        session.push((RECORDING * 32767).astype(np.int16))
        while (window := session.next()) is not None:
            said = (SpelledWord(text="you", ids=(1,)), SpelledWord(text="you", ids=(1,)))
            end = len(window.samples) / RATE
            segments = (Segment(words=said, start=0.0, end=end),)
            words += session.commit(Hypothesis(segments=segments, states=50, language="en"))
    assert words == ["you"] * (2 if times else 12)
