"""`simuljax translate` with a small model of random numbers, and what it refuses."""

import functools
import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

import simuljax
from simuljax.audio import RATE, read_audio
from simuljax.cli import main as cli
from simuljax.cli import translate as command
from simuljax.cli.interpret import WhisperOptions
from simuljax.cli.translate import RunOptions, check_run, is_whisper, translate_command
from simuljax.config.decoding import Decoding
from simuljax.config.model import Monotonic
from simuljax.config.options import from_options
from simuljax.decode.policies import AlignAtt, LocalAgreement, WaitK
from simuljax.profile.measure import counted_programs
from simuljax.serve.live import LiveOptions
from simuljax.serve.pipeline import LiveError
from simuljax.serve.run import RunError
from simuljax.serve.stream import Stream
from tests.helpers import models, streams
from tests.helpers.streams import DECODING, SPEECH
from tests.models.whisper.small import GGML, TINY, needs_tiny
from tests.written_runs import write_run

TALKATIVE = models.changed(DECODING, avoid_eos_while_reading=True)


def translate(model, **given):
    """Return the command; options go where their names belong."""

    def taken(kind):
        names = {field.name for field in fields(kind)} & given.keys()
        return kind(**{name: given.pop(name) for name in names})

    live, whisper, then_k = taken(LiveOptions), taken(WhisperOptions), given.pop("then_k", None)
    run = from_options(RunOptions, given)
    return translate_command(model=model, then_k=then_k, live=live, run=run, whisper=whisper)


@pytest.fixture
def sound(tmp_path):
    samples = np.random.default_rng(3).integers(-3000, 3000, RATE).astype(np.int16)
    soundfile.write(tmp_path / "a.wav", samples, RATE)
    return str(tmp_path / "a.wav"), samples


@pytest.fixture
def run(tmp_path):
    """A directory that is a run as far as its name goes."""
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.mark.slow
def test_a_file_is_translated_live(monkeypatch, run, sound, tmp_path, capsys):
    waiting = Monotonic(policy="wait_k", wait_k=(2, 2))
    made = streams.translator(seed=13, speech=SPEECH, monotonic=waiting)
    monkeypatch.setattr(command, "load", lambda *_: made)
    monkeypatch.setattr(command, "open_run", lambda _: made.run)
    monkeypatch.setattr(command, "enable_compilation_cache", lambda: None)
    short = functools.partial(made.stream, states=60, tokens=30)
    monkeypatch.setattr(type(made), "stream", lambda _, **how: short(decoding=TALKATIVE))
    audio, samples = sound
    stream = made.stream()
    words = [word.text for word in (*stream.push(samples), *stream.finish())]
    assert words
    translate(run, audio=audio, srt=tmp_path / "a.srt")()
    assert capsys.readouterr().out == " ".join(words) + "\n"
    assert [w for w in (tmp_path / "a.srt").read_text().split() if w in words] == words
    translate(run, audio=audio, timeline=True, pace="real")()
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["delay_ms", "elapsed_ms", "word"]
    assert [line.split(maxsplit=2)[-1] for line in lines] == words


@pytest.mark.slow
def test_all_lengths_are_compiled_before_a_speaker_begins(monkeypatch, run, tmp_path):
    """Of an encoder that reads all sound anew, which needs two programs for five seconds."""
    made = streams.translator(seed=6, monotonic=Monotonic(policy="offline"))
    monkeypatch.setattr(command, "load", lambda *_: made)
    monkeypatch.setattr(command, "open_run", lambda _: made.run)
    monkeypatch.setattr(command, "enable_compilation_cache", lambda: None)
    short = functools.partial(made.stream, states=150, tokens=30)
    monkeypatch.setattr(type(made), "stream", lambda _, **how: short(**how))
    sound = np.random.default_rng(3).integers(-3000, 3000, 5 * RATE).astype("<i2")
    (tmp_path / "pcm").write_bytes(sound.tobytes())
    push, before = Stream.push, []
    with (tmp_path / "pcm").open() as pipe, counted_programs() as programs:
        monkeypatch.setattr("sys.stdin", pipe)
        noted = lambda *given: before.append(len(programs)) or push(*given)  # noqa: E731
        monkeypatch.setattr(Stream, "push", noted)
        translate(run, audio="-", policy="align-att", sentences="one")()
    assert 1 < before[0] == len(programs)


@pytest.mark.slow
@needs_tiny
def test_a_whisper_file_is_a_model(capsys, tmp_path):
    text = "ask not what your country can do for you"
    given = ["translate", str(GGML), str(TINY / "jfk.flac"), "--from", "en"]
    for args in (["--offline"], ["--policy", "offline", "--window", "5", "--timeline"]):
        cli.main([*given, *args])
        printed = capsys.readouterr().out.lower()
        assert text in " ".join(re.findall("[a-z]+", printed))


@pytest.mark.slow
@needs_tiny
def test_what_whisper_recognises_is_translated(monkeypatch, tmp_path, capsys):
    """As a stream of the same settings has it; offline, too."""
    monkeypatch.setattr(command, "enable_compilation_cache", lambda: None)
    model = Path(f"{GGML}+{write_run(tmp_path / 'mt')}")
    given = {"audio": str(TINY / "jfk.flac"), "spoken": "en", "padding": "short"}
    translate(model, then_k=2, window=3.0, **given)()
    stream = simuljax.load(model).stream(
        window_s=3.0, language="en", padding="short", translating={"k": 2}
    )
    words = stream.push(read_audio(given["audio"]).samples) + stream.finish()
    assert capsys.readouterr().out.split() == [word.text for word in words] != []


def test_a_whole_file_may_have_a_beam(monkeypatch, tmp_path, run, sound):
    (tmp_path / "tiny.bin").write_bytes(b"no weights")
    assert callable(translate(tmp_path / "tiny.bin", audio=sound[0], offline=True, beam=2))
    made = streams.translator(speech=SPEECH, monotonic=Monotonic(policy="offline")).run
    monkeypatch.setattr(command, "open_run", lambda _: made)
    given = {"offline": True, "beam": 2, "length_penalty": 0.5}
    assert callable(translate(run, audio=sound[0], **given))


def test_which_models_are_whispers(tmp_path, run):
    assert not is_whisper(run) and not is_whisper(tmp_path / "missing")
    (run / "model.safetensors").write_bytes(b"")
    assert is_whisper(run) and is_whisper(run / "model.safetensors")
    with pytest.raises(LiveError, match="model"):
        translate(tmp_path / "missing", audio="-")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"k": 3}, Decoding(k=3)),
        ({"threshold": 0.3}, Decoding(threshold=0.3)),
        ({"policy": "wait-k", "k": 3, "units": "ctc"}, Decoding(policy=WaitK(k=3, units="ctc"))),
        ({"policy": "align-att", "last_frames": 4}, Decoding(policy=AlignAtt(frames=4))),
        ({"policy": "local-agreement", "beam": 5}, Decoding(policy=LocalAgreement(beam=5))),
        ({"force_finish": True}, Decoding(force_finish=True)),
    ],
)
def test_settings_of_decoding(given, wanted):
    assert from_options(RunOptions, given).decoding() == replace(wanted, sentences="pauses")


@pytest.mark.parametrize(
    ("policy", "given", "fact"),
    [
        ("learned", {"k": 3}, "--k would change nothing"),
        ("learned", {"policy": "wait-k", "k": 3}, "decides by itself"),
        ("offline", {"threshold": 0.3}, "--threshold would change nothing"),
    ],
)
def test_settings_that_the_run_does_not_have(tmp_path, policy, given, fact):
    made = streams.translator(speech=SPEECH, monotonic=Monotonic(policy=policy))
    with pytest.raises(RunError, match=fact):
        check_run(tmp_path, from_options(RunOptions, given), made.run.model)


def test_speech_of_a_run_needs_a_language(monkeypatch, run, sound, tmp_path):
    made = streams.translator(speech=SPEECH, monotonic=Monotonic(policy="offline")).run
    monkeypatch.setattr(command, "open_run", lambda _: made)
    with pytest.raises(LiveError, match="--to de"):
        translate(run, audio=sound[0], speak=tmp_path / "out.wav")
