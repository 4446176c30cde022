"""A track of speech: places, speeds, and a file that is always complete."""

import sys
import threading
import tracemalloc
import types
from contextlib import closing
from itertools import pairwise

import numpy as np
import pytest
import soundfile

from simuljax.voice import Placed, Player, Timeline, VoiceError

RATE = 1000


def sound(seconds: float, level: int = 7) -> np.ndarray:
    return np.full(round(seconds * RATE), level, np.int16)


def test_any_order_of_times_against_an_obvious_track(tmp_path):
    """Each placed sound is found in the file where it was said to be, and silence elsewhere."""
    random = np.random.default_rng(0)
    with closing(Timeline(RATE, tmp_path / "out.wav")) as timeline:
        places = [
            (timeline.place(sound(seconds, level), ready), ready, level)
            for level, (seconds, ready) in enumerate(random.uniform(0.01, 5, (60, 2)), 1)
        ]
    track = np.zeros(round(timeline.duration * RATE), np.int16)
    for placed, ready, level in places:
        here = track[round(placed.start_s * RATE) : round(placed.end_s * RATE)]
        assert not here.any()
        here[:] = level
        assert placed.start_s >= ready - 1 / RATE
    for (before, _, _), (placed, ready, _) in pairwise(places):
        assert placed.start_s == pytest.approx(max(ready, before.end_s), abs=1 / RATE)
    np.testing.assert_array_equal(soundfile.read(tmp_path / "out.wav", dtype="int16")[0], track)


def test_who_is_late_speaks_faster():
    with closing(Timeline(RATE)) as timeline:
        timeline.place(sound(10), 0.0)
        late = {10 - ready: timeline.speed(ready) for ready in (12, 10, 9, 8.5, 8, 7, 3)}
    assert late == {-2: 1, 0: 1, 1: 1, 1.5: 1.0625, 2: 1.125, 3: 1.25, 7: 1.25}


def test_the_file_is_whole_after_every_word(tmp_path):
    """A word without sound takes no time."""
    path = tmp_path / "out.wav"
    with closing(Timeline(RATE, path)) as timeline:
        assert len(soundfile.read(path)[0]) == 0
        for i in range(1, 4):
            timeline.place(sound(1), 2.0 * i)
            assert len(soundfile.read(path)[0]) == round(timeline.duration * RATE)
        assert timeline.place(sound(0), 9.0) == Placed(start_s=9.0, end_s=9.0, speed=1.0)
        assert timeline.duration == 7.0
    with pytest.raises(VoiceError, match=r"cannot be written to .*No such file"):
        Timeline(RATE, tmp_path / "nowhere" / "out.wav")


def test_minutes_do_not_fill_the_memory(tmp_path):
    rate = 24_000
    second = np.ones(rate, np.int16)
    with closing(Timeline(rate, tmp_path / "long.wav")) as timeline:
        timeline.place(second, 0.0)
        tracemalloc.start()
        for minute in range(1, 21):
            timeline.place(second, 60.0 * minute)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert timeline.duration == 1201
    assert peak < 2e6  # of 58 MB
    assert (tmp_path / "long.wav").stat().st_size == 44 + 2 * 1201 * rate


class PortAudioError(Exception):
    pass


class Card:
    """A stand-in for a sound card."""

    def __init__(self, samplerate, channels, dtype):
        if samplerate == 1:
            raise PortAudioError("Invalid sample rate")
        self.opened = (samplerate, channels, dtype)
        self.played: list[bytes] = []
        self.state = "new"
        self.gate = threading.Event()
        cards.append(self)

    def start(self):
        self.state = "playing"

    def write(self, data):
        self.gate.wait(5)
        if self.state != "playing":
            raise PortAudioError("Stream is stopped")
        self.played.append(data)

    def stop(self):
        self.state = "stopped"

    def close(self):
        self.state += ", closed"


cards: list[Card] = []


@pytest.fixture
def card_reader(monkeypatch):
    cards.clear()
    module = types.ModuleType("sounddevice")
    vars(module).update(RawOutputStream=Card, PortAudioError=PortAudioError)
    monkeypatch.setitem(sys.modules, "sounddevice", module)


def test_all_is_played_in_order_and_the_caller_does_not_wait(card_reader):
    sounds = [np.full(1000 * i, i, np.int16) for i in range(50)]  # the first is empty
    player = Player(24_000)
    (card,) = cards
    for each in sounds:
        player.play(each)
    assert not card.played
    card.gate.set()
    player.close()
    assert card.opened == (24_000, 1, "int16") and card.state == "stopped, closed"
    played = np.frombuffer(b"".join(card.played), np.int16)
    np.testing.assert_array_equal(played, np.concatenate(sounds))


def test_a_card_that_cannot_or_stops_is_an_error(card_reader, monkeypatch):
    player = Player(24_000)
    cards[0].state = "unplugged"
    cards[0].gate.set()
    player.play(np.ones(5, np.int16))
    with pytest.raises(VoiceError, match="Stream is stopped"):
        player.close()
    with pytest.raises(VoiceError, match="cannot be opened: Invalid sample rate"):
        Player(1)
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(VoiceError, match=r"pip install 'simuljax\[mic\]'.*to a file"):
        Player(24_000)
