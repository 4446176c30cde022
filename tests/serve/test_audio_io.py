"""Sound as it comes: every sample once, in order, at the pace asked for."""

import os
import sys
import time
from types import ModuleType

import numpy as np
import pytest
import soundfile

from simuljax.audio import RATE, AudioError
from simuljax.serve.audio_io import (
    check_microphone,
    input_devices,
    microphone,
    sound_file,
    standard_input,
)


@pytest.fixture
def recording(tmp_path):
    samples = np.arange(4_000, dtype=np.int16)
    soundfile.write(tmp_path / "a.wav", samples, RATE)
    return tmp_path / "a.wav", samples


@pytest.mark.parametrize("chunk", [1, 999, 4_000, 10_000])
def test_a_file_comes_whole_and_in_order(recording, chunk):
    path, samples = recording
    pieces = list(sound_file(path, chunk))
    assert all(len(piece) == chunk for piece in pieces[:-1])
    np.testing.assert_array_equal(np.concatenate(pieces), samples)


def test_at_real_pace_a_piece_comes_when_it_was_spoken(recording):
    path, samples = recording
    start, at = time.perf_counter(), []
    pieces = []
    for piece in sound_file(path, 1_000, "real"):
        pieces.append(piece)
        at.append(time.perf_counter() - start)
    np.testing.assert_array_equal(np.concatenate(pieces), samples)
    spoken = np.array([1, 2, 3, 4]) * 1_000 / RATE
    assert (np.array(at) >= spoken - 1e-3).all(), "a sample came before it was spoken"
    assert at[-1] < spoken[-1] + 1


@pytest.fixture
def piped(monkeypatch):
    """Writes to what the test then has as its standard input."""
    reading, writing = os.pipe()
    monkeypatch.setattr(sys, "stdin", os.fdopen(reading))
    yield lambda data: os.write(writing, data), lambda: os.close(writing)
    sys.stdin.close()


def test_standard_input_joins_what_a_pipe_cuts_in_half(piped):
    write, close = piped
    samples = np.array([1, -2, 300, -400], "<i2")
    source = standard_input(100)
    pieces = []
    for part in (samples.tobytes()[:3], samples.tobytes()[3:]):  # a sample and a half; the rest
        write(part)
        pieces.append(next(source))
    close()
    assert list(source) == []
    np.testing.assert_array_equal(np.concatenate(pieces), samples)
    assert [len(piece) for piece in pieces] == [1, 3]


def test_half_a_sample_at_the_end_is_told(piped):
    write, close = piped
    write(b"\x01\x00\x02")
    close()
    with pytest.raises(AudioError, match="in the middle of a sample"):
        list(standard_input(100))


class Card(ModuleType):
    """Stands in for PortAudio, which a machine without a sound card cannot run."""

    class PortAudioError(Exception):
        pass

    def __init__(self, devices=(), broken=None, lost=False):
        super().__init__("sounddevice")
        self.devices, self.broken, self.lost, self.asked = devices, broken, lost, None
        self.open = False

    def query_devices(self):
        return self.devices

    def check_input_settings(self, **asked):
        if self.broken:
            raise self.broken
        self.asked = asked

    def RawInputStream(self, **asked):
        if self.broken:
            raise self.broken
        self.asked = asked
        return self

    def __enter__(self):
        self.open = True
        return self

    def __exit__(self, *_):
        self.open = False

    def read(self, frames):
        return np.arange(frames, dtype=np.int16).tobytes(), self.lost


def test_the_microphone_is_closed_when_nobody_listens_any_more(monkeypatch, capsys):
    card = Card(lost=True)
    monkeypatch.setitem(sys.modules, "sounddevice", card)
    source = microphone(160, device=3)
    np.testing.assert_array_equal(next(source), np.arange(160))
    assert card.asked is not None
    assert card.asked["device"] == 3 and card.asked["samplerate"] == RATE and card.open
    next(source)
    assert "some sound was lost: the last 10 ms" in capsys.readouterr().err
    source.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert not card.open


@pytest.mark.parametrize("error", [Card.PortAudioError("Device unavailable"), ValueError("No in")])
def test_a_microphone_that_does_not_open(monkeypatch, error):
    monkeypatch.setitem(sys.modules, "sounddevice", Card(broken=error))
    for use in (lambda: next(microphone(160)), check_microphone):
        with pytest.raises(AudioError, match=r"^the microphone cannot be opened: (Device|No in)"):
            use()


def test_a_microphone_is_checked_as_it_will_be_opened(monkeypatch):
    card = Card()
    monkeypatch.setitem(sys.modules, "sounddevice", card)
    check_microphone("headset")
    checked = card.asked
    assert checked is not None and checked["device"] == "headset"
    next(microphone(160, "headset"))
    assert card.asked is not None and checked.items() <= card.asked.items()


def test_devices_are_listed_that_can_be_heard(monkeypatch):
    def device(name, channels):
        return {"name": name, "max_input_channels": channels, "default_samplerate": 48000.0}

    card = Card([device("loudspeaker", 0), device("headset", 1)])
    monkeypatch.setitem(sys.modules, "sounddevice", card)
    assert input_devices() == "  1 headset (1 channels, 48000 Hz)"
    card.devices = [device("loudspeaker", 0)]
    with pytest.raises(AudioError, match="no microphone; give a sound file"):
        input_devices()


@pytest.mark.parametrize("use", [input_devices, check_microphone, lambda: next(microphone(160))])
def test_without_the_package_the_message_says_what_to_install(monkeypatch, use):
    monkeypatch.setitem(sys.modules, "sounddevice", None)  # what Python takes for "not there"
    with pytest.raises(AudioError, match=r"simuljax\[mic\]'?, or give a sound file"):
        use()
