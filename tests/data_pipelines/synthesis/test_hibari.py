from itertools import pairwise

import numpy as np
import pytest

from data_pipelines.synthesis import Hibari
from data_pipelines.utterance import Voice
from simuljax.voice import VoiceError

VOICE = Voice(engine="hibari")
TEXT = "Hello there, a man in the park. He sat - down; with 23 dogs!"


@pytest.fixture(scope="module")
def engine() -> Hibari:
    return Hibari()


def inside(said, word) -> str:
    middles = [(p.text, (p.start_ms + p.end_ms) / 2) for p in said.phonemes]
    return "".join(text for text, at in middles if word.start_ms <= at < word.end_ms)


def test_two_sentences(engine):
    said = engine.speak(TEXT, VOICE)
    assert [word.text for word in said.words] == TEXT.split()
    times = [at for word in said.words for at in (word.start_ms, word.end_ms)]
    assert times == sorted(times) and times[-1] <= said.duration_ms
    assert said.samples.dtype == np.int16 and 4000 < said.duration_ms < 6500
    phonemes = {word.text: inside(said, word) for word in said.words}
    assert phonemes["Hello"] == "həlˈO" and phonemes["park."] == "pˈɑɹk"
    assert phonemes["-"] == "" and phonemes["23"] == "twˈɛntiθɹˈi"
    for before, phoneme in pairwise(said.phonemes):
        assert before.end_ms <= phoneme.start_ms < phoneme.end_ms


def test_words_fit_the_sound(engine):
    """At the start, at the end, and around the pause between two sentences."""
    said = engine.speak(TEXT, VOICE)
    loudness = np.abs(said.samples.astype(float))
    loud = loudness > 0.03 * loudness.max()
    words = {word.text: word for word in said.words}
    pause = [round(16 * at) for at in (words["park."].end_ms, words["He"].start_ms)]
    assert pause[1] - pause[0] > 16 * 400
    assert not loud[pause[0] + 16 * 40 : pause[1] - 16 * 40].any()
    assert loud[: pause[0]].nonzero()[0][-1] == pytest.approx(pause[0], abs=16 * 60)
    assert (pause[1] + np.argmax(loud[pause[1] :])) == pytest.approx(pause[1], abs=16 * 60)
    edges = loud.nonzero()[0][[0, -1]] / 16
    assert edges[0] == pytest.approx(said.words[0].start_ms, abs=50)
    assert edges[1] == pytest.approx(said.words[-1].end_ms, abs=50)


def test_the_same_whatever_was_said_before(engine):
    first = engine.speak("A man in the park.", VOICE)
    engine.speak("Other words.", VOICE)
    again = engine.speak("A man in the park.", VOICE)
    assert np.array_equal(first.samples, again.samples) and first.words == again.words


def test_the_audio_is_the_packages_own(engine):
    """The added output changes nothing."""
    import hibari
    from scipy.signal import resample_poly

    direct = resample_poly(hibari.Hibari()("A man.", seed=0).astype(float), 2, 3) * 32767
    ours = engine.speak("A man.", VOICE).samples
    assert len(ours) == len(direct)
    assert np.abs(ours - direct).max() <= 1


def test_the_rate(engine):
    fast = Voice(engine="hibari", words_per_minute=250)
    text = "A man is standing in the park."
    assert engine.speak(text, fast).duration_ms < 0.85 * engine.speak(text, VOICE).duration_ms


@pytest.mark.parametrize(
    ("text", "voice", "message"),
    [
        ("  ", VOICE, "no text to say"),
        ("...", VOICE, "nothing to say"),
        ("ok", Voice(engine="hibari", language="de"), "one voice.*'de'"),
        ("ok", Voice(engine="hibari", variant="f2"), "one voice.*'f2'"),
        # The engine reads "upper-class Chinese" with a stray "zero" between the two.
        ("An upper-class Chinese restaurant.", VOICE, "as 5 words and its parts as 4"),
    ],
)
def test_errors_say_what_is_wrong(engine, text, voice, message):
    with pytest.raises(VoiceError, match=message):
        engine.speak(text, voice)
