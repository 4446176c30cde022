"""A live translation with a stand-in for the model: signals, keys, errors, outputs, warnings."""

import contextlib
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile

from simuljax.audio import RATE, AudioError
from simuljax.eval.logs import read_records
from simuljax.serve.live import LiveOptions, few_words, run_live
from tests.serve.live_fakes import ROOT, Model, on_terminal, read_until

RUN = """
import sys
from pathlib import Path
from simuljax.serve.live import LiveOptions, run_live
from simuljax.serve.whisper import WhisperStreaming
from tests.serve.live_fakes import Model

model = Model(last_s={last_s})
run_live(LiveOptions(audio="-", log=Path({log!r})), lambda: model, WhisperStreaming())
print("model got", len(model.samples), model.window_s, file=sys.stderr)
"""


def script(log, last_s=0.0) -> str:
    return RUN.format(log=str(log), last_s=last_s)


def speak(process: subprocess.Popen) -> None:
    """A second of sound. The pipe stays open."""
    assert process.stdin is not None
    process.stdin.write(np.zeros(RATE, np.int16).tobytes())
    process.stdin.flush()


@contextlib.contextmanager
def speaking(code: str) -> Iterator[Any]:
    """A process that has written words of a second of sound, and is gone after the test."""
    pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, **pipes) as process:
        try:
            speak(process)
            assert process.stdout and process.stdout.readline()
            yield process
        finally:
            process.kill()


def test_a_signal_finishes_what_was_heard_and_all_is_written(tmp_path):
    with speaking(script(tmp_path / "a.log")) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert b"model got 16000 1.0\n" in process.stderr.read()
        assert process.stdout.read().endswith(b"end\n")
    (record,) = read_records(tmp_path / "a.log")
    assert record.prediction.endswith("end")
    assert len(record.delays) == len(record.prediction.split())
    assert (record.source, record.source_length) == ("-", 1000)


@pytest.mark.slow
def test_a_second_one_leaves_at_once_and_what_was_said_is_written(tmp_path):
    with speaking(script(tmp_path / "a.log", last_s=100)) as process:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert process.poll() is None, "the model is still busy"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    (record,) = read_records(tmp_path / "a.log")
    assert record.prediction and "end" not in record.prediction


def test_an_error_is_raised_and_what_was_said_is_written(tmp_path, capsys):
    soundfile.write(tmp_path / "a.wav", np.zeros(RATE, np.int16), RATE)
    files = {"log": tmp_path / "a.log", "srt": tmp_path / "a.srt"}
    model = Model(fails_at=3)
    with pytest.raises(ZeroDivisionError, match="the model broke"):
        run_live(LiveOptions(audio=str(tmp_path / "a.wav"), **files), lambda: model)  # pyright: ignore[reportArgumentType]
    assert capsys.readouterr().out == "1600 1600 1600\n"
    (record,) = read_records(tmp_path / "a.log")
    assert record.delays == (100, 200, 300)
    assert "1600 1600 1600" in (tmp_path / "a.srt").read_text()


def test_a_reader_that_leaves_ends_all_threads_and_what_was_said_is_written(tmp_path, monkeypatch):
    """A thread that computes while Python ends would abort it."""
    soundfile.write(tmp_path / "a.wav", np.zeros(30 * RATE, np.int16), RATE)
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(sys, "stdout", os.fdopen(writer, "w"))
    options = LiveOptions(audio=str(tmp_path / "a.wav"), log=tmp_path / "a.log")
    with pytest.raises(BrokenPipeError):
        run_live(options, lambda: Model(slow_s=0.02))  # pyright: ignore[reportArgumentType]
    assert "translate" not in {thread.name for thread in threading.enumerate()}
    assert read_records(tmp_path / "a.log")[0].prediction
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.close()


def test_a_damaged_file_is_found_before_the_model_is_loaded(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(RATE, np.int16), RATE)
    whole = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "a.wav").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(AudioError, match=r"a\.wav"):
        run_live(LiveOptions(audio=str(tmp_path / "a.wav")), lambda: pytest.fail("it was loaded"))


@pytest.mark.slow
def test_on_a_terminal_keys_change_settings_and_finish(tmp_path):
    """Sound comes from a pipe; keys from the terminal, without Enter, which is restored."""
    process, terminal = on_terminal(
        "-c", script(tmp_path / "a.log"), stdin=subprocess.PIPE, env={**os.environ, "TERM": "xterm"}
    )
    modes = termios.tcgetattr(terminal)[3]
    speak(process)
    assert "consensus 0.50  window 1 s" in read_until(terminal, "q finish")
    changed = termios.tcgetattr(terminal)[3]
    assert modes & termios.ICANON and not changed & termios.ICANON and not changed & termios.ECHO
    assert changed & termios.ISIG, "Ctrl-C has to stay a signal"
    os.write(terminal, b"+w")
    read_until(terminal, "consensus 0.55  window 2 s")
    speak(process)
    os.write(terminal, b"q")
    last = read_until(terminal, "model got")
    assert "finishing" in last
    assert "model got 32000 2.0" in last + read_until(terminal, "no more")
    assert process.wait(30) == 0
    assert termios.tcgetattr(terminal)[3] == modes, "the terminal is not as before"
    assert "end" in (tmp_path / "a.log").read_text()
    os.close(terminal)


def test_minutes_of_sound_with_hardly_any_words_are_a_warning():
    for seconds, words, ended, warns in (
        (119, 0, False, False),
        (120, 0, False, True),
        (120, 5, False, True),
        (120, 6, False, False),
        (119, 1, True, False),
        (120, 0, True, True),
    ):
        state: Any = SimpleNamespace(recorded_s=seconds, loudest_db=-71)
        warning = few_words(state, words, ended=ended)
        assert (warning is not None) == warns
        assert warning is None or ("2:00" in warning and "-71 dB" in warning)


@pytest.mark.parametrize("words", [[], ["end"]])
@pytest.mark.parametrize("seconds", [3, 130])
def test_the_warning_is_printed_once(tmp_path, capsys, seconds, words):
    class Silent(Model):
        def push(self, samples):
            return []

        def finish(self):
            return super().finish() if words else []

    soundfile.write(tmp_path / "a.wav", np.zeros(seconds * RATE, np.int16), RATE)
    run_live(LiveOptions(audio=str(tmp_path / "a.wav")), Silent)  # pyright: ignore[reportArgumentType]
    printed = capsys.readouterr()
    assert printed.out.split() == words
    assert printed.err.count("words in ") == (seconds == 130 or not words)
