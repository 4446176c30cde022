"""What nobody said is not said."""

import numpy as np
import pytest

from simuljax.audio import RATE
from simuljax.config.fields import ConfigError
from simuljax.serve.whisper.hypothesis import (
    FRAME,
    Guards,
    Hypothesis,
    Loudness,
    is_echo,
    levels,
    nobody_speaks,
    repeats_itself,
    silent_samples,
)


def noise(seconds, db=-30.0, *, colour=0.0, seed=0):
    """Gaussian noise with a power of 1 / frequency^colour."""
    spectrum = np.fft.rfft(np.random.default_rng(seed).standard_normal(int(seconds * RATE)))
    hertz = np.fft.rfftfreq(int(seconds * RATE), 1 / RATE)
    spectrum *= np.maximum(hertz, 20.0) ** (-colour / 2) * (hertz >= 20)
    sound = np.fft.irfft(spectrum, int(seconds * RATE))
    return (
        np.rint(sound / sound.std() * 32768 * 10 ** (db / 20)).clip(-32768, 32767).astype(np.int16)
    )


def syllables(seconds, db=-30.0, seed=0):
    """Noise that comes four times a second."""
    sound = noise(seconds, db, seed=seed)
    rises = 0.5 - 0.5 * np.cos(2 * np.pi * 4 * np.arange(len(sound)) / RATE)
    return np.rint(sound * rises).astype(np.int16)


def test_levels_of_a_buffer_that_grows_and_is_trimmed_are_those_of_its_sound():
    random, sound = np.random.default_rng(5), syllables(30.0)
    loudness, start, end, kept = Loudness(), 0, 0, 0
    for _ in range(200):
        end = min(len(sound), end + int(random.integers(0, RATE)))
        buffer = sound[start:end]
        differences = levels(np.diff(buffer.astype(np.int32)))
        np.testing.assert_array_equal(loudness.of_differences(buffer), differences)
        np.testing.assert_array_equal(loudness.of(buffer), levels(buffer))
        count = int(random.choice([0, 0, 3 * FRAME, 320])) if len(buffer) > RATE else 0
        loudness.trim(count)
        start, kept = start + count, kept + len(loudness.sound)
    assert start > FRAME and kept > 1000


def test_levels():
    full = np.full(FRAME * 2 + 10, 16384, np.int16)
    full[FRAME : 2 * FRAME] = 0
    np.testing.assert_allclose(levels(full), [-6.02, -120, -6.02], atol=0.01)
    assert len(levels(full[:0])) == 0


@pytest.mark.parametrize("colour", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("db", [-90.0, -50.0, -20.0])
def test_silence_and_noise_are_no_speech(colour, db):
    for seed in range(20):
        sound = noise(2.5, db, colour=colour, seed=seed)
        assert silent_samples(sound, Guards()) == len(sound), seed


def test_syllables_are_speech_though_noise_is_beside_them():
    for db in (-90, -40, -34):
        sound = syllables(2.0) + noise(2.0, db, seed=1)
        assert silent_samples(sound, Guards()) < FRAME


def test_silence_before_speech_is_found():
    sound = np.concatenate([noise(1.0, -70), syllables(1.0, -30)])
    assert abs(silent_samples(sound, Guards()) - RATE) <= 2 * FRAME
    unguarded = Guards(quiet_db=None, steady_db=None)
    assert silent_samples(sound, unguarded) == 0
    assert silent_samples(noise(2.0), unguarded) == 0


def test_a_moment_of_steady_sound_is_not_judged():
    assert silent_samples(noise(0.5), Guards()) == 0


@pytest.mark.parametrize(
    ("no_speech", "log_probability", "silent"),
    [(0.59, -2.0, False), (0.61, -0.51, True), (0.61, -0.49, False), (0.91, -0.1, True)],
)
def test_the_model_may_hear_no_speech(no_speech, log_probability, silent):
    written = Hypothesis(no_speech=no_speech, log_probability=log_probability)
    assert nobody_speaks(written, Guards()) == silent
    assert not nobody_speaks(written, Guards(no_speech=None, surely_no_speech=None))


def test_without_a_limit_of_its_own_the_text_does_not_count():
    alone = Guards(log_probability=None)
    assert nobody_speaks(Hypothesis(no_speech=0.61, log_probability=-0.01), alone)
    assert not nobody_speaks(Hypothesis(no_speech=0.59, log_probability=-9.0), alone)


def test_a_text_that_repeats_itself():
    assert repeats_itself("and so on " * 10, Guards())
    assert not repeats_itself("ask not what your country can do for you", Guards())
    assert not repeats_itself("and so on " * 10, Guards(compression=None, echo_words=None))


@pytest.mark.parametrize(
    ("text", "loops"),
    [
        ("we look for the recipe for the recipe, for the recipe", True),
        ("we look for the recipe for the recipe", False),
        ("for the recipe for the recipe for the recipe of the day", False),  # it went on
        ("no no no no", False),
        ("no no no no no", True),
        ("on and on and on", False),
        ("", False),
    ],
)
def test_a_loop_that_begins(text, loops):
    assert repeats_itself(text, Guards()) == loops


@pytest.mark.parametrize(
    ("said", "words", "echo"),
    [
        ("thank you very much", "thank you very much", True),
        ("i say thank you very much", "thank you very much", True),
        ("thank you very much all", "thank you very much", False),
        ("no no no", "no", False),  # people do
        ("no no no no", "no", True),
        ("thank you", "thank you", False),
        ("thank you thank you", "thank you", True),
        ("a b c d", "a b c d a b c d", True),
        ("a b c d", "a b c d e", False),
        ("i have a dream that one day", "i have a dream", False),
        ("of the people by the people for", "the people", False),
        ("one two three four one two three", "four", True),  # word by word
        ("one two three four one two", "three", False),  # the round is not whole
        ("", "one two three four", False),
        ("one two three four", "", False),
    ],
)
def test_echoes(said, words, echo):
    assert is_echo(words.split(), said.split(), Guards()) == echo
    assert not is_echo(words.split(), said.split(), Guards(echo_words=None))


@pytest.mark.parametrize("given", [{"quiet_db": 3.0}, {"steady_db": -1.0}, {"echo_words": 0}])
def test_impossible_limits_are_refused(given):
    with pytest.raises(ConfigError, match=next(iter(given))):
        Guards(**given)
