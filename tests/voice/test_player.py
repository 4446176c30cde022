"""Playing through a stand-in for a sound card."""

import sys
import threading
import types

import numpy as np
import pytest

from simuljax.voice import Player, VoiceError


class PortAudioError(Exception):
    pass


class Card:
    def __init__(self, samplerate, channels, dtype):
        if samplerate == 1:
            raise PortAudioError("Invalid sample rate")
        self.opened = (samplerate, channels, dtype)
        self.played: list[bytes] = []
        self.state = "new"
        self.gate = threading.Event()
        self.gate.set()
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

    def abort(self):
        self.state = "aborted"
        self.gate.set()

    def close(self):
        self.state += ", closed"


cards: list[Card] = []


@pytest.fixture
def card_reader(monkeypatch):
    cards.clear()
    module = types.ModuleType("sounddevice")
    vars(module).update(RawOutputStream=Card, PortAudioError=PortAudioError)
    monkeypatch.setitem(sys.modules, "sounddevice", module)


def test_all_is_played_in_order(card_reader):
    sounds = [np.full(10 * i, i, np.int16) for i in range(5)]  # the first is empty
    with Player(24_000) as player:
        for sound in sounds:
            player.play(sound)
    (card,) = cards
    assert card.opened == (24_000, 1, "int16") and card.state == "stopped, closed"
    np.testing.assert_array_equal(
        np.frombuffer(b"".join(card.played), np.int16), np.concatenate(sounds)
    )


def test_the_caller_does_not_wait(card_reader):
    player = Player(24_000)
    cards[0].gate.clear()
    for _ in range(100):
        player.play(np.ones(24_000, np.int16))
    assert not cards[0].played
    cards[0].gate.set()
    player.close()
    assert len(cards[0].played) == 100


def test_an_error_beside_it_ends_it_at_once(card_reader):
    with pytest.raises(KeyError), Player(24_000) as player:
        cards[0].gate.clear()
        player.play(np.ones(5, np.int16))
        raise KeyError
    assert cards[0].state == "aborted, closed" and not cards[0].played


def test_a_card_that_stops_is_an_error(card_reader):
    player = Player(24_000)
    cards[0].state = "unplugged"
    player.play(np.ones(5, np.int16))
    with pytest.raises(VoiceError, match="Stream is stopped"):
        player.close()


def test_a_card_that_cannot(card_reader):
    with pytest.raises(VoiceError, match="cannot be opened: Invalid sample rate"):
        Player(1)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(VoiceError, match=r"pip install 'simuljax\[mic\]'.*to a file"):
        Player(24_000)
