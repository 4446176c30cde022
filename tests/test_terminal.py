"""`simuljax translate` with a small model of random numbers: the words of its stream, printed."""

import re

import numpy as np
import pytest
import soundfile

from simuljax import terminal
from simuljax.audio import RATE
from simuljax.nn.monotonic import Monotonic
from simuljax.terminal import Listening, translate_command
from tests.decode import small, spoken
from tests.decode.streams import DECODING, SPEECH

TALKATIVE = small.changed(DECODING, avoid_eos_while_reading=True)


@pytest.fixture
def translator(monkeypatch):
    waiting = Monotonic(policy="wait_k", wait_k=(2, 2))
    made = spoken.translator(seed=13, speech=SPEECH, monotonic=waiting)
    monkeypatch.setattr(terminal, "load", lambda *_: made)
    monkeypatch.setattr(terminal, "enable_compilation_cache", lambda: None)
    monkeypatch.setattr(
        terminal,
        "_stream",
        lambda translator, _: translator.stream(states=60, tokens=30, decoding=TALKATIVE),
    )
    return made


@pytest.mark.slow
def test_a_file_is_translated_as_it_is_heard(translator, tmp_path, capsys):
    samples = np.random.default_rng(3).integers(-3000, 3000, RATE).astype(np.int16)
    soundfile.write(tmp_path / "a.wav", samples, RATE)
    stream = translator.stream(states=60, tokens=30, decoding=TALKATIVE)
    words = [*stream.push(samples), *stream.finish()]
    assert words
    command = translate_command(Listening(run=tmp_path, audio=str(tmp_path / "a.wav")))
    command()
    assert capsys.readouterr().out == " ".join(word.text for word in words) + " \n"
    translate_command(
        Listening(run=tmp_path, audio=str(tmp_path / "a.wav"), timeline=True, pace="real")
    )()
    lines = capsys.readouterr().out.splitlines()
    assert [re.split(r" ms  ", line)[-1] for line in lines] == [word.text for word in words]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "give a sound file, -, or --mic"),
        ({"audio": "a.wav", "mic": True}, "give a sound file, -, or --mic"),
        ({"audio": "a.wav", "beam": 3}, "--beam needs --offline"),
    ],
)
def test_bad_use_exits_2(tmp_path, capsys, given, problem):
    with pytest.raises(SystemExit) as exit:
        translate_command(Listening(run=tmp_path, **given))
    assert exit.value.code == 2
    assert problem in capsys.readouterr().err
