"""What policies promise, whatever the model writes."""

import dataclasses

import jax
import numpy as np
import pytest

from simuljax.config.decoding import Beam, Decoding
from simuljax.config.model import Monotonic, PreDecision, SpeechConfig
from simuljax.decode.beam import translate_speech
from simuljax.decode.policies import LocalAgreement, PolicyError, WaitK
from simuljax.decode.simulate import Listening, simulate_speech
from simuljax.decode.state import control_of
from simuljax.decode.stream import StreamingDecoder
from simuljax.serve.run_translator import RunTranslator
from simuljax.text import EOS, Words
from simuljax.train.transfer import Loaded
from tests.helpers import models, streams
from tests.helpers.streams import DECODING, HEARD, SPEECH

OFFLINE = Monotonic(policy="offline")
WORDS = Words.of(streams.VOCABULARY, streams.VOCABULARY)
SHORT = 28_800  # samples


@pytest.fixture(scope="module")
def speaker():
    return streams.translator(seed=6, monotonic=OFFLINE)


@pytest.fixture(scope="module")
def heard():
    return streams.material(3, 12, SHORT)


def said(speaker, heard, policy, listening=None, **changes):
    given = (speaker.network, speaker.variables)
    sound = (heard.features[heard.ended], heard.amounts[heard.ended])
    decoding = models.changed(DECODING, policy=policy, **changes)
    how = {"decoding": decoding, "listening": listening, "words": WORDS}
    return jax.device_get(simulate_speech(*given, *sound, **how))


@pytest.mark.slow
def test_a_wait_beyond_the_source_is_offline_decoding(speaker, heard):
    """Word for word; and so is a model without a policy."""
    frames = heard.frames[heard.ended]
    given = (speaker.network, speaker.variables, heard.features[heard.ended], frames)
    whole = jax.device_get(translate_speech(*given, decoding=DECODING))
    for policy in (WaitK(k=10**6, step_ms=120), None):
        found = said(speaker, heard, policy)
        np.testing.assert_array_equal(found.tokens, whole.tokens)
        there = np.arange(found.tokens.shape[1]) < found.lengths[:, None]
        wanted = np.broadcast_to(heard.amounts[heard.ended][:, None] / 16, there.shape)
        np.testing.assert_array_equal(found.delays[there], wanted[there])
    assert whole.lengths.sum() > 60
    other = said(speaker, heard, WaitK(k=1, step_ms=120))
    assert np.any(other.tokens != whole.tokens), "the wait makes no difference here"


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
    whole = said(speaker, heard, policy, Listening(read_ms=5_000))
    wanted = translate_speech(*given, decoding=DECODING, beam=Beam(size=3))
    width = min(whole.tokens.shape[1], wanted.tokens.shape[1])
    np.testing.assert_array_equal(whole.tokens[:, :width], wanted.tokens[:, :width])
    parts = said(speaker, heard, policy, Listening(read_ms=120))
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
