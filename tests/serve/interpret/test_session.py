"""The run of a command in a process of its own: signals, keys, what is kept. A pretended model."""

import json
import os
import signal
import subprocess
import sys
import termios
import time
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile

from simuljax.audio import RATE, AudioError
from simuljax.eval.logs import read_records, record_line
from simuljax.serve.interpret import Interpreting, session
from simuljax.serve.interpret.options import Interpretation
from simuljax.serve.interpret.session import record_of
from simuljax.serve.session import Word
from tests.serve.interpret.pretended import Model
from tests.serve.interpret.terminals import ROOT, on_terminal, read_until

SECOND = np.zeros(RATE, np.int16).tobytes()
RUN = """
import sys
from pathlib import Path
from types import SimpleNamespace
from simuljax.serve.interpret import session, Interpreting
from simuljax.serve.interpret.options import Interpretation
from tests.serve.interpret.pretended import Model

model = Model(last_s={last_s})
session._interpreter = lambda *_: SimpleNamespace(stream=lambda: model)
session.run(Interpretation(audio="-", log=Path({log!r})), Interpreting())
print("model heard", len(model.samples), len(model.changes), file=sys.stderr)
"""


def script(log, last_s=0.0) -> str:
    return RUN.format(log=str(log), last_s=last_s)


@pytest.fixture
def started():
    """Processes that are gone after the test, however it ends."""
    processes = []

    def start(code: str) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def speak(process: subprocess.Popen) -> None:
    """A second of sound. The pipe stays open."""
    assert process.stdin is not None
    process.stdin.write(SECOND)
    process.stdin.flush()


def first_line(process: subprocess.Popen) -> bytes:
    """Waits for words."""
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_signal_finishes_what_was_heard_and_all_is_written(started, tmp_path, number):
    process = started(script(tmp_path / "a.log"))
    speak(process)
    assert first_line(process)
    process.send_signal(number)
    assert process.wait(30) == 0
    assert b"model heard 16000 0" in process.stderr.read()
    assert process.stdout.read().endswith(b"end\n")
    (record,) = read_records(tmp_path / "a.log")
    assert record.prediction.endswith("end")
    assert len(record.delays) == len(record.prediction.split())
    assert (record.source, record.source_length) == ("-", 1000)


def test_a_second_one_leaves_at_once_and_what_was_said_is_written(started, tmp_path):
    process = started(script(tmp_path / "a.log", last_s=100))
    speak(process)
    assert first_line(process)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None, "the model is still busy"
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    (record,) = read_records(tmp_path / "a.log")
    assert record.prediction and "end" not in record.prediction


def test_an_error_is_raised_and_what_was_said_is_written(monkeypatch, tmp_path, capsys):
    soundfile.write(tmp_path / "a.wav", np.zeros(RATE, np.int16), RATE)
    pretended = SimpleNamespace(stream=lambda: Model(fails_at=3))
    monkeypatch.setattr(session, "_interpreter", lambda *_: pretended)
    chosen = Interpretation(audio=str(tmp_path / "a.wav"), log=tmp_path / "a.log")
    with pytest.raises(ZeroDivisionError, match="the model broke"):
        session.run(chosen, Interpreting())
    assert capsys.readouterr().out == "1600\n1600\n1600\n"
    (record,) = read_records(tmp_path / "a.log")
    assert record.delays == (100, 200, 300)


def test_a_damaged_file_is_found_before_the_model_is_loaded(monkeypatch, tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(RATE, np.int16), RATE)
    whole = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "a.wav").write_bytes(whole[: len(whole) // 2])
    monkeypatch.setattr(session, "_interpreter", lambda *_: pytest.fail("the model was loaded"))
    with pytest.raises(AudioError, match=r"a\.wav"):
        session.run(Interpretation(audio=str(tmp_path / "a.wav")), Interpreting())


def test_on_a_terminal_keys_change_settings_and_finish(tmp_path):
    """Sound comes from a pipe, keys from the terminal."""
    process, terminal = on_terminal(
        "-c", script(tmp_path / "a.log"), stdin=subprocess.PIPE, env={**os.environ, "TERM": "xterm"}
    )
    modes = termios.tcgetattr(terminal)[3]
    speak(process)
    assert "consensus 0.50  window 1 s" in read_until(terminal, "q finish")
    os.write(terminal, b"+w")
    read_until(terminal, "consensus 0.55  window 2 s")
    speak(process)
    os.write(terminal, b"q")
    last = read_until(terminal, "model heard")
    assert "finishing what was heard" in last
    assert "model heard 32000 1" in last + read_until(terminal, "no more")
    assert process.wait(30) == 0
    assert termios.tcgetattr(terminal)[3] == modes, "the terminal is not as before"
    assert "end" in (tmp_path / "a.log").read_text()
    os.close(terminal)


def test_the_record_is_simulevals():
    words = [
        Word(text=t, delay_ms=d, elapsed_ms=d + 5) for t, d in (("so", 1000.0), ("it", 2000.0))
    ]
    assert json.loads(record_line(record_of(words, "talk.wav", 2.5))) == {
        "index": 0,
        "prediction": "so it",
        "delays": [1000.0, 2000.0],
        "elapsed": [1005.0, 2005.0],
        "prediction_length": 2,
        "reference": None,
        "source": "talk.wav",
        "source_length": 2500.0,
    }
