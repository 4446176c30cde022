from itertools import pairwise

import numpy as np
import pytest

from data_pipelines.augmentation.effects import (
    Effects,
    augment_speech,
    echo,
    random_effects,
    speed,
    tempo,
)
from data_pipelines.synthesis import Speech, espeak
from data_pipelines.utterance import Span, Voice

RATE = 16_000
SECONDS = 2.0


def sine(hertz: float, amplitude: float = 8000.0) -> np.ndarray:
    at = np.arange(int(SECONDS * RATE)) / RATE
    return (amplitude * np.sin(2 * np.pi * hertz * at)).astype(np.int16)


def pitch_of(samples: np.ndarray) -> float:
    inner = samples[1600:-1600].astype(float)
    spectrum = np.abs(np.fft.rfft(inner * np.hanning(len(inner)), 1 << 18))
    return float(spectrum.argmax() * RATE / (1 << 18))


@pytest.mark.parametrize("factor", [0.85, 0.9, 1.1, 1.3])
@pytest.mark.parametrize("hertz", [110.0, 313.0])
def test_tempo_changes_the_duration_and_not_the_pitch(factor, hertz):
    samples = sine(hertz)
    changed = tempo(samples, factor)
    assert len(changed) == round(len(samples) / factor)
    assert pitch_of(changed) == pytest.approx(hertz, rel=0.01)
    # Windows that did not fit would beat: the loudness of a sine must stay as it is.
    peaks = np.abs(changed[800:-800]).astype(int)[: len(changed) // 800 * 800 - 1600]
    assert peaks.reshape(-1, 400).max(1).min() > 0.9 * 8000


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_speed_changes_both(factor):
    changed = speed(sine(200.0), factor)
    assert len(changed) == pytest.approx(SECONDS * RATE / factor, abs=1)
    assert pitch_of(changed) == pytest.approx(200.0 * factor, rel=0.001)


@pytest.mark.parametrize("cents", [-300, 120, 300])
def test_pitch_shift_keeps_the_duration(cents):
    changed = Effects(pitch_cents=cents).apply(sine(200.0))
    assert len(changed) == SECONDS * RATE
    assert pitch_of(changed) == pytest.approx(200.0 * 2 ** (cents / 1200), rel=0.01)


def test_the_echo_of_a_click():
    click = np.zeros(1600)
    click[100] = 1.0
    late = echo(click, 45, 0.1)
    assert {int(i): float(late[i]) for i in np.nonzero(late)[0]} == {100: 1.0, 100 + 720: 0.1}
    assert np.count_nonzero(echo(click, 200, 0.1)) == 1  # after the end: cut off


def test_loud_audio_saturates():
    loud = sine(100.0, amplitude=32700.0)
    late = echo(loud, 10.0, 0.9)  # one period later: in phase, so 1.9 times as loud
    inside = slice(200, None)
    assert late.max() == 32767 and late.min() == -32768
    assert np.all(np.sign(late[inside]) * np.sign(loud[inside]) >= 0)  # wrapping flips the sign
    square = np.where(np.arange(8000) // 80 % 2, 32767, -32768).astype(np.int16)
    overshoot = speed(square.astype(np.float64), 1.1)
    assert overshoot.max() > 32767  # the control: there is something to saturate
    saturated = speed(square, 1.1).astype(float)
    assert np.array_equal(saturated, np.clip(np.rint(overshoot), -32768, 32767))


@pytest.mark.parametrize("dtype", [np.int16, np.float32])
def test_neutral_effects_are_the_identity(dtype):
    samples = np.random.default_rng(0).normal(0, 3000, 5000).astype(dtype)
    for same in (
        tempo(samples, 1),
        speed(samples, 1),
        echo(samples, 50, 0),
        Effects().apply(samples),
    ):
        assert same.dtype == dtype
        assert same is not samples
        assert np.array_equal(same, samples)


@pytest.mark.parametrize("count", [0, 1, 100, 700])
def test_short_audio(count):
    chain = Effects(tempo=1.2, pitch_cents=200, echo_ms=30, echo_decay=0.2)
    changed = chain.apply(np.full(count, 1000, np.int16))
    assert len(changed) == round(count / 1.2)


def test_random_effects_are_reproducible_and_in_range():
    drawn = [random_effects(f"u{number}") for number in range(200)]
    assert drawn == [random_effects(f"u{number}") for number in range(200)]
    assert str(drawn[0]) == "tempo 0.889 pitch -111 echo 186/0.113"
    assert len(set(drawn)) == 200
    for field, low, high in (
        ("tempo", 0.85, 1.3),
        ("pitch_cents", -300, 300),
        ("echo_ms", 20, 200),
        ("echo_decay", 0.05, 0.2),
    ):
        values = [getattr(chain, field) for chain in drawn]
        assert low <= min(values) < low + 0.1 * (high - low)
        assert high >= max(values) > high - 0.1 * (high - low)
    samples = np.random.default_rng(1).normal(0, 3000, 8000).astype(np.int16)
    assert np.array_equal(drawn[0].apply(samples), drawn[0].apply(samples))


def onset_after(samples: np.ndarray, at_ms: float) -> float:
    """When it is first loud again."""
    loud = np.abs(samples.astype(float)) > 0.05 * np.abs(samples.astype(float)).max()
    at = int(at_ms * RATE / 1000)
    return (at + int(np.argmax(loud[at:]))) * 1000 / RATE


@pytest.mark.parametrize("factor", [0.85, 1.0, 1.3])
def test_word_times_still_fit_the_audio(factor):
    text = "Apples, oranges, ice, eggs, animals, and avenues, all of it."
    said = espeak.speak(text, Voice(engine="espeak", variant="m3"))
    chain = Effects(tempo=factor, pitch_cents=150, echo_ms=20, echo_decay=0.05)
    changed = augment_speech(said, chain)
    assert [w.text for w in changed.words] == text.split()
    times = [t for w in changed.words for t in (w.start_ms, w.end_ms)]
    assert times == sorted(times) and times[-1] <= changed.duration_ms
    assert len(changed.phonemes) == len(said.phonemes)
    assert max(p.end_ms for p in changed.phonemes) <= changed.duration_ms

    moved, unmoved = [], []  # from a word's start behind a pause to where its sound starts
    for number, (before, word) in enumerate(pairwise(changed.words), start=1):
        if word.start_ms - before.end_ms > 50:
            onset = onset_after(changed.samples, (before.end_ms + word.start_ms) / 2)
            moved.append(onset - word.start_ms)
            unmoved.append(onset - said.words[number].start_ms)
    assert len(moved) == 6
    assert np.abs(moved).max() < 25
    if factor != 1:
        assert np.abs(unmoved).max() > 200  # the control: times that did not follow the audio


def test_word_times_stay_inside_when_the_length_is_rounded():
    word = Span(text="all", start_ms=0.0, end_ms=1001 * 1000 / RATE)
    said = Speech(samples=np.ones(1001, np.int16), words=(word,), phonemes=())
    changed = augment_speech(said, Effects(tempo=1.3))
    assert changed.words[0].end_ms == changed.duration_ms == 770 * 1000 / RATE
