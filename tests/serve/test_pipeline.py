"""Sound as it comes; three threads and their queues: nothing is lost or grows, everything ends."""

import os
import sys
import threading
import time
from types import ModuleType

import numpy as np
import pytest
import soundfile

from simuljax.audio import RATE, AudioError
from simuljax.serve.pipeline import (
    Pipeline,
    TooSlowError,
    check_microphone,
    input_devices,
    level_db,
    microphone,
    sound_file,
    standard_input,
)
from tests.serve.live_fakes import Model, Voice, until

SOUND = np.random.default_rng(1).integers(-3000, 3000, 2 * RATE).astype(np.int16)
CHUNK = 800


@pytest.mark.parametrize("pace", ["fast", "real"])
@pytest.mark.parametrize("chunk", [999, 10_000])
def test_a_file_comes_whole_and_in_order_at_its_pace(tmp_path, pace, chunk):
    samples = np.arange(4_000, dtype=np.int16)
    soundfile.write(tmp_path / "a.wav", samples, RATE)
    start, pieces = time.perf_counter(), []
    for piece in sound_file(tmp_path / "a.wav", chunk, pace):
        pieces.append(piece)
        if pace == "real":
            took = time.perf_counter() - start
            assert took >= sum(map(len, pieces)) / RATE - 1e-3, "it came before it was spoken"
    assert all(len(piece) == chunk for piece in pieces[:-1])
    np.testing.assert_array_equal(np.concatenate(pieces), samples)
    assert time.perf_counter() - start < 1.25


@pytest.fixture
def piped(monkeypatch):
    """Writes to what the test then has as its standard input."""
    reading, writing = os.pipe()
    monkeypatch.setattr(sys, "stdin", os.fdopen(reading))
    yield lambda data: os.write(writing, data), lambda: os.close(writing)
    sys.stdin.close()


def test_standard_input_joins_what_a_pipe_cuts_in_half(piped):
    write, close = piped
    data = np.array([1, -2, 300, -400], "<i2").tobytes()
    source, pieces = standard_input(100), []
    for part in (data[:3], data[3:] + b"\x02"):  # a sample and a half; the rest, and a half
        write(part)
        pieces.append(next(source).tolist())
    close()
    assert pieces == [[1], [-2, 300, -400]]
    with pytest.raises(AudioError, match="in the middle of a sample"):
        next(source)


class Card(ModuleType):
    """Stands in for PortAudio, which a machine without a sound card cannot run."""

    class PortAudioError(Exception):
        pass

    def __init__(self, devices=(), broken=None):
        super().__init__("sounddevice")
        self.devices, self.broken, self.asked, self.open = devices, broken, [], False

    def query_devices(self):
        return self.devices

    def check_input_settings(self, **asked):
        self.asked.append(asked)
        if self.broken:
            raise self.broken

    def RawInputStream(self, **asked):
        self.check_input_settings(**asked)
        return self

    def __enter__(self):
        self.open = True
        return self

    def __exit__(self, *_):
        self.open = False

    def read(self, frames):
        return np.arange(frames, dtype=np.int16).tobytes(), True


@pytest.fixture
def card(monkeypatch):
    made = Card()
    monkeypatch.setitem(sys.modules, "sounddevice", made)
    return made


def test_the_microphone_is_opened_as_it_was_checked_and_closed_when_unused(card, capsys):
    check_microphone(3)
    source = microphone(160, device=3)
    np.testing.assert_array_equal(next(source), np.arange(160))
    checked, opened = card.asked
    assert checked["device"] == 3 and checked["samplerate"] == RATE and card.open
    assert checked.items() <= opened.items()
    next(source)
    assert "some sound was lost: the last 10 ms" in capsys.readouterr().err
    source.close()
    assert not card.open


USES = [input_devices, check_microphone, lambda: next(microphone(160))]


@pytest.mark.parametrize("error", [Card.PortAudioError("Device unavailable"), ValueError("No in")])
@pytest.mark.parametrize("use", USES[1:])
def test_a_microphone_that_does_not_open(card, use, error):
    card.broken = error
    with pytest.raises(AudioError, match=r"^the microphone cannot be opened: (Device|No in)"):
        use()


def test_devices_are_listed_that_can_record(card):
    def device(name, channels):
        return {"name": name, "max_input_channels": channels, "default_samplerate": 48000.0}

    card.devices = [device("loudspeaker", 0), device("headset", 1)]
    assert input_devices() == "  1 headset (1 channels, 48000 Hz)"
    card.devices = card.devices[:1]
    with pytest.raises(AudioError, match="no microphone; give a sound file"):
        input_devices()


@pytest.mark.parametrize("use", USES)
def test_without_the_package_the_message_says_what_to_install(monkeypatch, use):
    monkeypatch.setitem(sys.modules, "sounddevice", None)  # what Python takes for "not there"
    with pytest.raises(AudioError, match=r"simuljax\[mic\]'?, or give a sound file"):
        use()


def speech(samples=SOUND, error=None, sleep_s=0.0):
    """Yield sound in small pieces, then perhaps raise."""
    for first in range(0, len(samples), CHUNK):
        time.sleep(sleep_s)
        yield samples[first : first + CHUNK]
    if error:
        raise error


def endless(closed):
    try:
        while True:
            time.sleep(0.001)
            yield SOUND[:CHUNK]
    finally:
        closed.set()


def run(pipeline: Pipeline) -> Pipeline:
    pipeline.start()
    assert pipeline.wait(20), "it hangs"
    return pipeline


def texts(pipeline: Pipeline) -> list[str]:
    return [word.text for word in pipeline.words]


def test_a_slow_model_gets_all_sound_in_order_in_longer_pieces():
    model = Model()
    model.gate.clear()
    pipeline = Pipeline(model, speech())
    pipeline.start()
    until(lambda: pipeline.recorded_s == 2.0)  # the recorder goes on while the model stalls
    model.gate.set()
    assert pipeline.wait(10) and pipeline.error is None
    np.testing.assert_array_equal(model.samples, SOUND)
    assert len(model.chunks) <= 2, "all that waits is to be taken at once"
    assert texts(pipeline) == [*(str(len(piece)) for piece in model.chunks), "end"]
    assert pipeline.lag_s == 0.0
    assert pipeline.level_db == level_db(SOUND[-CHUNK:]) <= pipeline.loudest_db < -15


def test_a_patient_source_is_read_piece_by_piece_when_the_model_takes_it():
    model, asked = Model(), []
    model.gate.clear()
    source = (asked.append(piece) or piece for piece in speech())
    pipeline = Pipeline(model, source, pace="fast")
    pipeline.start()
    until(lambda: asked)
    assert not pipeline.wait(0.05) and len(asked) == 1 and pipeline.recorded_s == CHUNK / RATE
    model.gate.set()
    assert pipeline.wait(10) and pipeline.recorded_s == 2.0 and pipeline.error is None
    np.testing.assert_array_equal(model.samples, SOUND)
    assert [len(piece) for piece in model.chunks] == [CHUNK] * 40  # whatever the speed


def test_a_model_too_far_behind_is_an_error_that_says_how_far_and_words_are_kept():
    model, closed = Model(), threading.Event()

    def source():
        yield SOUND[:CHUNK]
        while not model.chunks:  # the first is taken; then the model stalls
            time.sleep(0.001)
        model.gate.clear()
        yield from endless(closed)

    pipeline = Pipeline(model, source(), queue_s=1.0)
    pipeline.start()
    assert closed.wait(10), "the recorder has to stop"
    model.gate.set()
    assert pipeline.wait(10)
    assert isinstance(pipeline.error, TooSlowError)
    assert "1 s behind the speaker" in str(pipeline.error)
    assert "--pace fast" in str(pipeline.error)
    assert texts(pipeline)[0] == str(CHUNK)


def test_a_slow_voice_stalls_nobody_and_says_everything():
    voice = Voice()
    voice.gate.clear()
    pipeline = Pipeline(Model(), speech(), speaker=voice, pace="fast")
    pipeline.start()
    until(lambda: texts(pipeline)[-1:] == ["end"])  # the model goes on while the voice stalls
    assert len(pipeline.words) == 41 and voice.spoken == []
    voice.gate.set()
    assert pipeline.wait(20)
    assert " ".join(text for text, _ in voice.spoken).split() == texts(pipeline)
    assert len(voice.spoken) <= 2, "what waits is to be said at once"
    assert voice.finished


def test_words_of_a_live_source_have_the_time_on_the_clock():
    """Not the sum of all computation, which went on while the speaker spoke."""
    began, voice = time.perf_counter(), Voice()
    live = speech(SOUND[: 6 * CHUNK], sleep_s=CHUNK / RATE)
    pipeline = run(Pipeline(Model(slow_s=0.03), live, speaker=voice))
    took_ms = (time.perf_counter() - began) * 1000
    elapsed = [word.elapsed_ms for word in pipeline.words]
    assert elapsed == sorted(elapsed) and elapsed[-1] < took_ms
    assert all(word.elapsed_ms >= word.delay_ms + 30 for word in pipeline.words[:-1])
    assert {at * 1000 for _, at in voice.spoken} <= {*elapsed}


def test_words_of_a_patient_source_are_ready_after_their_sound_and_all_computation():
    voice = Voice()
    given = speech(SOUND[: 3 * CHUNK])
    pipeline = run(Pipeline(Model(slow_s=0.02), given, speaker=voice, pace="fast"))
    assert [w.elapsed_ms - w.delay_ms for w in pipeline.words] == [1] * 4, "as the stream has it"
    ready = [at for _, at in voice.spoken]  # 4 pieces, or fewer if the voice came late
    assert ready == sorted(ready)
    assert ready[0] >= CHUNK / RATE + 0.02
    assert 3 * CHUNK / RATE + 0.02 <= ready[-1] < 10.0


@pytest.mark.parametrize("pace", ["real", "fast"])
def test_finish_drains_what_was_recorded_and_closes_the_source(pace):
    model, closed = Model(slow_s=0.05), threading.Event()
    pipeline = Pipeline(model, endless(closed), pace=pace)
    pipeline.start()
    until(lambda: len(model.chunks) >= 2)
    pipeline.finish()
    assert pipeline.wait(10) and closed.wait(5)
    assert len(model.samples) == round(pipeline.recorded_s * RATE)
    assert texts(pipeline)[-1] == "end"


def test_finish_does_not_wait_for_a_source_that_hangs():
    model, hang = Model(), threading.Event()

    def source():
        yield SOUND[:CHUNK]
        hang.wait(30)

    pipeline = Pipeline(model, source())
    pipeline.start()
    until(lambda: model.chunks)
    pipeline.finish()
    assert pipeline.wait(5)
    assert texts(pipeline) == [str(CHUNK), "end"]
    hang.set()


@pytest.mark.parametrize("pace", ["real", "fast"])
def test_an_error_of_the_source_comes_after_the_sound_before_it(pace):
    model, error = Model(slow_s=0.01), AudioError("truncated", "unplugged")
    pipeline = Pipeline(model, speech(error=error), speaker=(voice := Voice()), pace=pace)
    assert run(pipeline).error is error
    np.testing.assert_array_equal(model.samples, SOUND)
    assert texts(pipeline)[-1] == "end"
    assert "end" in voice.spoken[-1][0] and voice.finished


@pytest.mark.parametrize("who", ["recorder", "model", "voice"])
def test_an_unforeseen_error_ends_all_and_words_are_kept(who):
    closed, voice = threading.Event(), Voice(fails=who == "voice")
    model = Model(fails_at=3 if who == "model" else None)
    source = endless(closed) if who != "recorder" else speech(error=RuntimeError("odd"))
    pipeline = run(Pipeline(model, source, speaker=voice))
    assert str(pipeline.error) == ("odd" if who == "recorder" else f"the {who} broke")
    assert who != "model" or len(pipeline.words) == 3
    if who != "recorder":
        assert pipeline.words and "end" not in texts(pipeline) and not voice.finished
        assert closed.wait(5)


def test_level():
    for samples, db in (([32767] * 99, 0.0), ([3277] * 99, -20.0), ([0] * 9, -100.0), ([], -100.0)):
        assert level_db(np.asarray(samples, np.int16)) == pytest.approx(db, abs=0.01)
