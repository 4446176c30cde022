"""Segments of speech: pauses are found, long ones are cut, and no chunking matters."""

import numpy as np
import pytest

from simuljax.audio import RATE
from simuljax.audio.segmentation import (
    FLOOR_S,
    FRAME,
    LEAD_MS,
    SEARCH_S,
    Part,
    Segmentation,
    Segmenter,
)

SETTINGS = Segmentation()
LEAD, PAUSE = LEAD_MS * RATE // 1000, SETTINGS.pause_ms * RATE // 1000


def voice(random: np.random.Generator, seconds: float, level_db: float = -20.0) -> np.ndarray:
    """Noise in syllables of 200 ms: loud for 150 ms, 25 dB lower for 50."""
    count = int(seconds * RATE)
    loud = np.where(np.arange(count) % (RATE // 5) < RATE * 3 // 20, 1.0, 10 ** (-25 / 20))
    return random.normal(size=count) * loud * 10 ** (level_db / 20)


def noise(random: np.random.Generator, seconds: float, level_db: float | None) -> np.ndarray:
    scale = 0.0 if level_db is None else 10 ** (level_db / 20)
    return random.normal(size=int(seconds * RATE)) * scale


def pcm(*parts: np.ndarray) -> np.ndarray:
    return (np.concatenate(parts) * 32767).clip(-32768, 32767).astype(np.int16)


def segments(sound: np.ndarray, cuts=(), settings: Segmentation = SETTINGS) -> list[np.ndarray]:
    """The sound of every segment, pushed in pieces."""
    segmenter, parts = Segmenter(settings), []
    for piece in np.split(sound, cuts):
        parts += segmenter.push(piece)
    parts += segmenter.finish()
    return assembled(parts)


def assembled(parts: list[Part]) -> list[np.ndarray]:
    found, open_parts = [], []
    for part in parts:
        open_parts.append(part.samples)
        if part.ends:
            found.append(np.concatenate(open_parts))
            open_parts = []
    assert not open_parts, "a segment has no end"
    return found


@pytest.mark.parametrize("floor_db", [None, -60.0, -50.0, -40.0])
def test_every_pause_is_found(floor_db):
    random = np.random.default_rng(0)
    lengths = random.uniform(0.8, 4.0, 12)
    parts = [noise(random, 1.5, floor_db)]
    for seconds in lengths:
        parts += [voice(random, seconds), noise(random, random.uniform(0.5, 3.0), floor_db)]
    rest = noise(random, sum(map(len, parts)) / RATE, floor_db)
    sound = pcm(*parts)
    if floor_db is not None:
        sound = (sound + pcm(rest)[: len(sound)] // 4).astype(np.int16)
    found = segments(sound)
    own = [len(each) / RATE - SETTINGS.pause_ms / 1000 for each in found]
    if floor_db is not None:  # until the floor is known, noise may be taken for speech
        found, own = found[-len(lengths) :], own[-len(lengths) :]
    assert len(found) == len(lengths)
    assert own == pytest.approx(list(lengths + LEAD_MS / 1000), abs=0.25)


def test_a_segment_has_its_lead_and_its_pause_and_every_sample_between():
    random = np.random.default_rng(1)
    before, after = np.zeros(RATE, np.int16), np.zeros(2 * RATE, np.int16)
    said = pcm(voice(random, 1.0))
    (found,) = segments(np.concatenate([before, said, after]))
    start = len(before) - LEAD
    whole = np.concatenate([before, said, after])
    np.testing.assert_array_equal(found, whole[start : start + len(found)])
    quiet_tail = RATE // 20  # the last syllable's low part
    assert abs(len(found) - (LEAD + len(said) + PAUSE)) <= quiet_tail + FRAME


def test_no_chunking_matters():
    random = np.random.default_rng(2)
    parts = []
    for _ in range(6):
        parts += [
            voice(random, random.uniform(0.3, 7.0)),
            noise(random, random.uniform(0.1, 1), -60),
        ]
    sound, settings = pcm(*parts), Segmentation(segment_s=5.0)
    expected = segments(sound, settings=settings)
    assert len(expected) > 5
    for trial in range(12):
        count = int(random.integers(1, 400))
        cuts = np.sort(random.integers(0, len(sound) + 1, count)).tolist()
        if trial == 0:
            cuts = list(range(1, 3000))  # sample by sample
        found = segments(sound, cuts, settings)
        assert [len(each) for each in found] == [len(each) for each in expected]
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_sound_is_given_out_as_soon_as_it_is_known():
    """Nothing of a segment waits for what follows, but before a forced cut."""
    random = np.random.default_rng(3)
    sound = pcm(noise(random, 1.0, None), voice(random, 6.0))
    segmenter, given = Segmenter(SETTINGS), 0
    for start in range(0, len(sound), FRAME):
        given += sum(len(part.samples) for part in segmenter.push(sound[start : start + FRAME]))
        known = start + FRAME - RATE
        if known > 5 * FRAME:
            assert given == LEAD + known


def test_speech_without_a_pause_is_cut_at_its_quietest_place():
    random, settings = np.random.default_rng(4), Segmentation(segment_s=6.0)
    sound = pcm(voice(random, 30.0))
    dips = [int((5.2 + 5 * n) * RATE) for n in range(4)]  # 150 ms: no pause
    for place in dips:
        sound[place : place + 3 * RATE // 20] //= 100
    found = segments(sound, settings=settings)
    ends = np.cumsum([len(each) for each in found])
    assert ends[-1] == len(sound), "sound was lost"
    assert max(map(len, found)) <= 6 * RATE
    assert min(map(len, found[:-1])) >= (6 - SEARCH_S) * RATE
    assert dips[0] <= ends[0] <= dips[0] + 3 * RATE // 20
    np.testing.assert_array_equal(np.concatenate(found), sound)


@pytest.mark.parametrize("level_db", [None, -90.0, -75.0])
def test_silence_alone(level_db):
    sound = pcm(noise(np.random.default_rng(5), 60.0, level_db))
    assert segments(sound) == []
    assert segments(sound[:0]) == []


def test_a_click_is_no_speech():
    sound = np.zeros(10 * RATE, np.int16)
    sound[3 * RATE : 3 * RATE + 2 * FRAME] = 20_000
    assert segments(sound) == []


def test_steady_noise_becomes_the_floor():
    random = np.random.default_rng(6)
    sound = pcm(noise(random, 2, -70), noise(random, 30, -35))
    segmenter = Segmenter(SETTINGS)
    segmenter.push(sound)
    assert not segmenter.inside
    assert sum(map(len, segments(sound))) < (FLOOR_S + 1.5) * RATE


def test_memory_is_bounded():
    random, segmenter, held = np.random.default_rng(7), Segmenter(Segmentation(segment_s=8.0)), 0
    talk = pcm(voice(random, 50.0), noise(random, 10.0, -60))
    for minute in range(4):
        for piece in np.array_split(talk, 37):
            segmenter.push(piece)
            kept = max(SEARCH_S, LEAD_MS / 1000 + 0.05)
            assert segmenter.held <= kept * RATE + FRAME
        size = segmenter.held + len(segmenter.floors) + len(segmenter.levels)
        held = size if minute == 0 else held
        assert size <= max(held, 1) + FLOOR_S * 100 + SEARCH_S * RATE
    assert len(segmenter.floors) <= FLOOR_S * 100 + 1
