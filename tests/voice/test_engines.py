"""Voices that run on this machine."""

import math
import random
import re
import sys

import numpy as np
import pytest

from simuljax.voice import Espeak, Hibari, Voice, VoiceError, voice_for
from simuljax.voice.base import split

TEXT = "A man is standing in the park."


@pytest.fixture(scope="module")
def hibari() -> Hibari:
    return Hibari()


@pytest.fixture(params=["hibari", "espeak", "german"])
def voice(request, hibari) -> Voice:
    return {"hibari": hibari, "espeak": Espeak(variant="f2"), "german": Espeak("de")}[request.param]


def seconds(voice: Voice, text: str, speed: float = 1.0) -> float:
    return len(voice.speak(text, speed=speed)) / voice.rate


def test_a_sentence(voice):
    """It is the same whatever was said before; nothing to say is no sound."""
    samples = voice.speak(TEXT)
    assert samples.dtype == np.int16 and samples.ndim == 1
    assert 1.2 < len(samples) / voice.rate < 3.5
    assert 3000 < np.abs(samples.astype(int)).max() <= 32767
    assert not np.array_equal(voice.speak("Other words."), samples)
    np.testing.assert_array_equal(voice.speak(TEXT), samples)
    for text in ("", "  \n", "...", "— ?!", "( )", "'"):
        assert voice.speak(text).shape == (0,) and voice.speak(text).dtype == np.int16


def test_speed(voice):
    plain = seconds(voice, TEXT)
    for speed in (0.8, 1.25, 1.6):
        assert seconds(voice, TEXT, speed) == pytest.approx(plain / speed, rel=0.13)
    for speed in (0.1, 9.0, math.nan):
        with pytest.raises(VoiceError, match=r"speed is .*0.5 to"):
            voice.speak(TEXT, speed=speed)


def test_letters_that_an_engine_does_not_know(hibari):
    with pytest.raises(VoiceError, match=r"hibari .*'日本語'"):
        hibari.speak("日本語")
    with_others = hibari.speak("hello 日本語 there")
    assert len(with_others) / hibari.rate == pytest.approx(1.35, abs=0.4)

    with pytest.raises(VoiceError, match=r"espeak de .*'①'"):
        Espeak("de").speak("①")


def test_hibari_says_what_the_package_says(hibari):
    import hibari as package

    text = "Good morning. A man in the park!"
    direct = np.rint(package.Hibari()(text, seed=0) * 32767).astype(np.int16)
    np.testing.assert_array_equal(hibari.speak(text), direct)


def test_a_text_without_a_stop_is_said_in_parts(hibari, monkeypatch):
    """In one piece, the engine's time for it would grow with the square of its length."""
    monkeypatch.setattr("simuljax.voice.hibari._LONGEST", 40)
    parts = ["a man walks and the woman sits and the", "dog runs"]
    assert len(hibari.speak(" ".join(parts))) == sum(len(hibari.speak(part)) for part in parts)


def test_the_language_and_the_variant_matter():
    voices = [Espeak("de"), Espeak("en"), Espeak("de", "f2")]
    german, *others = (each.speak("Guten Morgen.") for each in voices)
    assert not any(np.array_equal(german, other) for other in others)
    assert [each.name for each in voices] == ["espeak de", "espeak en", "espeak de+f2"]


def test_english_is_hibaris_and_the_others_are_espeaks():
    assert isinstance(voice_for("en_GB"), Hibari)
    names = {"de": "de", "DE_at": "de", "pt-BR": "pt-br", "zh": "cmn", "zh-TW": "cmn", "no": "nb"}
    for language, name in names.items():
        assert voice_for(language).name == f"espeak {name}"
    assert seconds(voice_for("zh"), "今天天气很好。") > 0.8
    for language in ("xx", "*", "", "xx-de"):
        with pytest.raises(VoiceError, match="no language"):
            voice_for(language)


@pytest.mark.parametrize(("package", "make"), [("hibari", Hibari), ("espeakng_loader", Espeak)])
def test_a_missing_package_is_named(monkeypatch, package, make):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"pip install 'simuljax\[speech\]'"):
        make()


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("  \n ", []),
        ("Short. And whole.", ["Short. And whole."]),
        ("One two three. Four five six.", ["One two three.", "Four five six."]),
        ('He said "go now." They left him.', ['He said "go now."', "They left him."]),
        ("„Es ist da.“ Er ging fort.", ["„Es ist da.“", "Er ging fort."]),
        ("Am bi. Do. Go hi. Ja. Li.", ["Am bi. Do. Go hi.", "Ja. Li."]),
        ("One Dr. Li and two more of us", ["One Dr. Li and two", "more of us"]),
        ("It is 3.5 or 4.75 and not any more", ["It is 3.5 or 4.75", "and not any more"]),
        ("one two, three four, five six seven", ["one two, three four,", "five six seven"]),
        ("x" * 45, ["x" * 20, "x" * 20, "x" * 5]),
        (
            "今日は良い天気です。明日は雨が降るでしょう。",
            ["今日は良い天気です。", "明日は雨が降るでしょう。"],
        ),
    ],
)
def test_the_best_cut(text, pieces):
    assert split(text, 20) == pieces


def test_nothing_is_lost_and_nothing_is_too_long():
    for seed in range(20):
        draw = random.Random(seed)
        text = "".join(draw.choices("abcde .,!?\n“”。 ", k=500))
        limit = draw.randint(1, 90)
        pieces = split(text, limit)
        assert all(0 < len(piece) <= limit for piece in pieces)
        assert re.sub(r"\s", "", "".join(pieces)) == re.sub(r"\s", "", text)
