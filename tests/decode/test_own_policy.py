"""A policy from a user's file: live, simulated, swept without compiling again, and with Whisper."""

from typing import Any

import jax
import pytest

from simuljax.config.fields import ConfigError
from simuljax.config.model import Monotonic
from simuljax.decode import simulate
from simuljax.decode.policies import Policy, PolicyError, policy_class
from simuljax.decode.simulate import simulate_speech, usual_listening
from simuljax.models.whisper import Whisper
from tests.helpers import models, streams
from tests.helpers.streams import DECODING, HEARD
from tests.models.whisper.small import TOKENIZER, small_model

FILE = "tests/decode/own_policy.py"
STEP_MS = models.STEP * 40


@pytest.fixture(scope="module")
def speaker():
    return streams.translator(seed=6, monotonic=Monotonic(policy="offline"))


@pytest.fixture(scope="module")
def material():
    return streams.material(1, 3, 14_400)


def patient(share: float) -> Policy:
    patient: Any = policy_class(f"{FILE}:Patient")
    return patient(share=share)


def simulated(speaker, material, policy):
    decoding = models.changed(DECODING, policy=policy)
    listening = usual_listening(decoding, STEP_MS, filterbank=HEARD.filterbank)
    given = (material.features[material.ended], material.amounts[material.ended])
    given = (speaker.network, speaker.variables, *given)
    return jax.device_get(simulate_speech(*given, decoding=decoding, listening=listening))


def test_its_class_is_one_class_and_has_its_own_options():
    assert policy_class(f"{FILE}:Patient") is policy_class(f"{FILE}:Patient")
    assert patient(0.3).numbers() == {"share": 0.3} and patient(0.3).name == "patient"
    wrong = {f"{FILE}:Step": "Step", f"{FILE}:No": "'No'", "no.py:X": "no.py", "gredy": "'gredy'"}
    for name, fact in wrong.items():
        with pytest.raises(ConfigError, match=fact):
            policy_class(name)
    with pytest.raises(PolicyError, match="share is 2"):
        patient(2.0)


def test_it_streams_live_and_is_simulated_and_swept(speaker, material):
    """Words of a stream are those of the batch; another share compiles nothing, and differs."""
    found = []
    before = models.compilations(simulate._speech)
    for share in (0.1, 0.8):
        policy = patient(share)
        done = simulated(speaker, material, policy)
        for row, recording in enumerate(material.recordings if share == 0.1 else ()):
            stream = speaker.stream(
                decoding=models.changed(DECODING, policy=policy), states=300, tokens=100
            )
            said = streams.listened(stream, recording, material.cuts[row])
            if len(recording) % (STEP_MS * 16):
                assert said.tokens == done.tokens[row, : done.lengths[row]].tolist()
        found.append(done)
    assert models.compilations(simulate._speech) == before + 1
    means = [done.delays.sum() / done.lengths.sum() for done in found]
    assert means[0] < means[1], means


def test_whisper_streams_with_it():
    from simuljax.serve.whisper import WhisperTranslator
    from tests.serve.whisper.test_translator import SMALL, SOUND

    model = Whisper(model=small_model(positions=1500, seed=5, layers=1), tokenizer=TOKENIZER)
    translator = WhisperTranslator(model, SMALL)
    delays = {}
    for share in (0.01, 1.0):
        words = translator.stream_all([SOUND], policy=patient(share))[0]
        delays[share] = [word.delay_ms for word in words]
    assert set(delays[1.0]) == {3300.0}  # every word waits for the end
    assert min(delays[0.01]) < 3300.0
