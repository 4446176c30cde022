"""`simuljax translate` with a small model of random numbers: the words of its stream, printed."""

import functools
import re

import numpy as np
import pytest
import soundfile

from simuljax.audio import RATE
from simuljax.cli import translate as terminal
from simuljax.cli.translate import Listening, ListeningError, translate_command
from simuljax.decode.options import Decoding
from simuljax.decode.policies import AlignAtt, LocalAgreement, WaitK
from simuljax.nn.monotonic import Monotonic
from simuljax.serve.run import RunError
from tests.decode import small, spoken
from tests.decode.streams import DECODING, SPEECH

TALKATIVE = small.changed(DECODING, avoid_eos_while_reading=True)


@pytest.fixture
def translator(monkeypatch):
    waiting = Monotonic(policy="wait_k", wait_k=(2, 2))
    made = spoken.translator(seed=13, speech=SPEECH, monotonic=waiting)
    monkeypatch.setattr(terminal, "load", lambda *_: made)
    monkeypatch.setattr(terminal, "enable_compilation_cache", lambda: None)
    short = functools.partial(made.stream, states=60, tokens=30)
    monkeypatch.setattr(type(made), "stream", lambda _, **how: short(decoding=TALKATIVE))
    return made


@pytest.mark.slow
def test_a_file_is_translated_as_it_is_heard(translator, tmp_path, capsys):
    samples = np.random.default_rng(3).integers(-3000, 3000, RATE).astype(np.int16)
    soundfile.write(tmp_path / "a.wav", samples, RATE)
    stream = translator.stream()
    words = [*stream.push(samples), *stream.finish()]
    assert words
    terminal.translate(Listening(run=tmp_path, audio=str(tmp_path / "a.wav")))
    assert capsys.readouterr().out == " ".join(word.text for word in words) + " \n"
    terminal.translate(
        Listening(run=tmp_path, audio=str(tmp_path / "a.wav"), timeline=True, pace="real")
    )
    lines = capsys.readouterr().out.splitlines()
    assert [re.split(r" ms  ", line)[-1] for line in lines] == [word.text for word in words]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "give a sound file, -, or --mic"),
        ({"audio": "a.wav", "mic": True}, "give a sound file, -, or --mic"),
        ({"audio": "a.wav", "beam": 3}, "--beam needs --offline"),
        ({"audio": "a.wav", "threshold": 2.0}, "threshold is 2.0; it lies between 0 and 1"),
        ({"audio": "a.wav", "predecision_ms": 50}, "--predecision-ms 50: "),
        ({"audio": "a.wav", "read_ms": 0}, "--read-ms 0: it counts from 1"),
        ({"audio": "-", "offline": True}, "--offline hears a whole file first"),
        ({"mic": True, "offline": True}, "--offline hears a whole file first"),
        ({"audio": "a.wav", "offline": True, "threshold": 0.3}, "not with --offline"),
        ({"audio": "a.wav", "offline": True, "policy": "wait-k", "k": 3}, "not with --offline"),
        ({"mic": True, "pace": "real"}, "--pace is for files"),
        ({"audio": "a.wav", "policy": "wait-k"}, "--policy wait-k: wait-k needs k"),
        ({"audio": "a.wav", "k": 0}, "k is 0"),
        ({"audio": "a.wav", "alpha": 0.2}, "--alpha is of a policy"),
    ],
)
def test_bad_use_is_refused_before_anything_is_loaded(tmp_path, given, problem):
    with pytest.raises(ListeningError, match=re.escape(problem)):
        translate_command(Listening(run=tmp_path, **given))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"k": 3}, Decoding(k=3)),
        ({"policy": "wait-k", "k": 3, "units": "ctc"}, Decoding(policy=WaitK(k=3, units="ctc"))),
        ({"policy": "align-att", "last_frames": 4}, Decoding(policy=AlignAtt(frames=4))),
        ({"policy": "local-agreement", "beam": 5}, Decoding(policy=LocalAgreement(beam=5))),
        ({"force_finish": True}, Decoding(force_finish=True)),
    ],
)
def test_who_decides(tmp_path, given, wanted):
    chosen = Listening(run=tmp_path, audio="a.wav", **given)
    terminal.check(chosen)
    assert chosen.decoding() == wanted


@pytest.mark.parametrize(
    ("policy", "given", "problem"),
    [
        ("learnt", {"k": 3}, "--k would change nothing"),
        ("learnt", {"policy": "wait-k", "k": 3}, "decides by itself"),
        ("offline", {"threshold": 0.3}, "--threshold would change nothing"),
    ],
)
def test_what_is_nothing_to_the_model_is_refused(tmp_path, policy, given, problem):
    made = spoken.translator(speech=SPEECH, monotonic=Monotonic(policy=policy))
    with pytest.raises(RunError, match=problem):
        terminal.check_run(Listening(run=tmp_path, audio="a.wav", **given), made.run.model)
