"""`simuljax translate` and `interpret`: options, refusals, a small model and real weights."""

import os
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import simuljax
from simuljax.audio import RATE, AudioError
from simuljax.cli import main as cli
from simuljax.cli import translate as command
from simuljax.cli.interpret import WhisperOptions, WhisperPolicy, interpret_command
from simuljax.cli.translate import (
    RunOptions,
    check_run,
    is_whisper,
    translate_command,
    whisper_settings,
)
from simuljax.config.decoding import Decoding
from simuljax.config.model import Monotonic, SpeechConfig
from simuljax.config.options import from_options
from simuljax.decode.policies import AlignAtt, Confidence, Consensus, LocalAgreement, WaitK
from simuljax.eval.logs import read_records
from simuljax.profile.measure import counted_programs
from simuljax.serve.live import LiveOptions
from simuljax.serve.pipeline import LiveError
from simuljax.serve.session import Stream
from simuljax.serve.translator import Translator
from simuljax.train.run import RunError
from tests.helpers import models, streams
from tests.helpers.streams import SPEECH
from tests.models.whisper.small import GGML, TINY, needs_tiny
from tests.serve.web.servers import small_run
from tests.written_runs import write_run


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
def test_a_file_is_translated_live(sound, tmp_path, capsys):
    run, (audio, samples) = small_run(tmp_path / "run"), sound
    stream = simuljax.load(run).stream(sentences="pauses")
    words = [word.text for word in streams.push_all(stream, [samples])]
    assert words
    translate(run, audio=audio, srt=tmp_path / "a.srt")()
    assert capsys.readouterr().out == " ".join(words) + "\n"
    assert [w for w in (tmp_path / "a.srt").read_text().split() if w in words] == words
    translate(run, audio=audio, timeline=True, pace="real")()
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["delay_ms", "elapsed_ms", "word"]
    assert [line.split(maxsplit=2)[-1] for line in lines] == words


@pytest.mark.slow
def test_all_lengths_are_compiled_before_a_speaker_begins(monkeypatch, tmp_path):
    """Take an encoder that reads all sound anew: five seconds of it need two programs."""
    small: Any = {"speech": SpeechConfig(layers=1, shared=0, channels=12), "text": None}
    small |= {"decoder_layers": 1, "monotonic": Monotonic(policy="offline")}
    run = write_run(tmp_path / "run", **small)
    start = Translator.stream
    short = lambda self, **how: start(self, states=150, tokens=30, **how)  # noqa: E731
    monkeypatch.setattr(Translator, "stream", short)
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
def test_a_whisper_file_is_a_model(capsys):
    cli.main(["translate", str(GGML), str(TINY / "jfk.flac"), "--from", "en", "--offline"])
    assert "ask not what your country can do for you" in plain(capsys.readouterr().out)


@pytest.fixture
def offline(monkeypatch):
    """A run that was trained offline stands in for every directory."""
    made = streams.translator(speech=SPEECH, monotonic=Monotonic(policy="offline")).run
    monkeypatch.setattr(command, "open_run", lambda _: made)


def test_a_whole_file_may_have_a_beam(tmp_path, run, sound, offline):
    (tmp_path / "tiny.bin").write_bytes(b"no weights")
    assert callable(translate(tmp_path / "tiny.bin", audio=sound[0], offline=True, beam=2))
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


def test_settings_that_the_run_does_not_have(tmp_path):
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ("learned", {"k": 3}, "--k would change nothing"),
        ("learned", {"policy": "wait-k", "k": 3}, "decides by itself"),
        ("offline", {"threshold": 0.3}, "--threshold would change nothing"),
    ]
    for policy, given, fact in cases:
        model = models.translator(Monotonic(policy=policy), speech=SPEECH).config
        with pytest.raises(RunError, match=fact):
            check_run(tmp_path, from_options(RunOptions, given), model)


def test_speech_of_a_run_needs_a_language(run, sound, tmp_path, offline):
    with pytest.raises(LiveError, match="--to de"):
        translate(run, audio=sound[0], speak=tmp_path / "out.wav")


def settings(audio="a.wav", mic=False, **given):
    """Return the settings of the stream."""
    live = {name: given.pop(name) for name in ("to", "pace") if name in given}
    own = {name: given.pop(name) for name in ("spoken", "window", "padding") if name in given}
    options = LiveOptions(audio=None if mic else audio, mic=mic, **live)
    policy = from_options(WhisperPolicy, given).policy
    return whisper_settings(options, WhisperOptions(**own), policy)[1]


@pytest.fixture
def files(tmp_path):
    soundfile.write(tmp_path / "talk.wav", np.zeros(1600, np.int16), RATE)
    (tmp_path / "tiny.bin").write_bytes(b"no weights")
    return [str(tmp_path / "talk.wav"), "--model", str(tmp_path / "tiny.bin")]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, {"policy": Consensus(), "task": "translate", "language": None, "behind": "every"}),
        ({"threshold": 0.75}, {"policy": Consensus(threshold=0.75)}),
        (
            {"policy": "confidence", "by": "log_probability"},
            {"policy": Confidence(by="log_probability")},
        ),
        ({"policy": "align-att", "last_frames": 10}, {"policy": AlignAtt(frames=10)}),
        ({"spoken": "es"}, {"task": "translate", "language": "es"}),
        ({"spoken": "Spanish", "to": "English"}, {"task": "translate", "language": "es"}),
        ({"spoken": "de", "to": "de"}, {"task": "transcribe", "language": "de"}),
        ({"spoken": "en"}, {"task": "transcribe", "language": "en"}),
        # A live source may skip windows, and a file does not.
        ({"pace": "real"}, {"behind": "latest"}),
        ({"audio": "-"}, {"behind": "latest"}),
        ({"audio": "-", "pace": "fast"}, {"behind": "every"}),
        ({"mic": True}, {"behind": "latest"}),
    ],
)
def test_settings_of_options(given, wanted):
    made = settings(**given)
    assert {name: getattr(made, name) for name in wanted} == wanted


def test_the_keyboard_is_no_sound(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    with pytest.raises(SystemExit, match="2"):
        cli.main(["interpret", "-", "--model", "a.bin"])
    assert "keyboard" in capsys.readouterr().err


@pytest.fixture
def standard_input(files):
    """The sound of `files` is file 0 of this process."""
    before = os.dup(0)
    with open(files[0]) as sound:
        os.dup2(sound.fileno(), 0)
    yield
    os.dup2(before, 0)
    os.close(before)


def test_standard_input_may_be_a_file_too(files, standard_input, capsys):
    """Ask for what only the system knows by name."""
    with pytest.raises(SystemExit, match="2"):
        cli.main(["interpret", "-", *files[1:], "--log", files[0]])
    assert "is also the sound to translate" in capsys.readouterr().err


def test_a_log_without_speech_has_no_file_beside_it_and_a_server_needs_its_key(
    files, tmp_path, monkeypatch
):
    """So a file of that name may be translated; a log that is there already is written anew."""
    monkeypatch.setenv("ELEVENLABS_API_KEY", "a key")
    (tmp_path / "a.log").write_text("old")
    (tmp_path / "a.speech.jsonl").symlink_to(files[0])
    for live in (
        LiveOptions(audio=files[0], log=tmp_path / "a.log"),
        LiveOptions(audio=files[0], play=True, voice="http", voice_name="Ana"),
    ):
        assert callable(interpret_command(live, WhisperOptions(), WhisperPolicy(), Path(files[2])))


def test_devices_need_a_sound_card(monkeypatch):
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(AudioError, match="or give a sound file"):
        interpret_command(LiveOptions(devices=True), WhisperOptions(), WhisperPolicy())()


@pytest.mark.slow
@needs_tiny
def test_a_speech_is_interpreted_and_spoken(tmp_path, capsys):
    """Real weights, a real voice, and the speech is transcribed again."""
    pytest.importorskip("hibari", reason="the voice is not installed: simuljax[speech]")
    out, log = tmp_path / "out.wav", tmp_path / "instances.log"
    given = (str(TINY / "jfk.flac"), "--model", str(GGML), "--from", "en", "--window", "5")
    cli.main(["interpret", *given, "--policy", "offline", "--speak", str(out), "--log", str(log)])
    text = "ask not what your country can do for you ask what you can do for your country"
    assert text in plain(capsys.readouterr().out)
    (record,) = read_records(log)
    assert text in plain(record.prediction)
    assert record.source_length == pytest.approx(11_000)
    assert record.delays == (11_000.0,) * len(record.prediction.split())
    sound, rate = soundfile.read(out, dtype="int16")
    assert not sound[: int(11 * rate)].any() and sound[int(11 * rate) :].any()

    cli.main(["interpret", str(out), *given[1:], "--policy", "offline"])
    assert "what you can do for your country" in plain(capsys.readouterr().out)


def plain(text: str) -> str:
    letters = (c for c in text.lower() if c.isalnum() or c.isspace())
    return " ".join("".join(letters).split())
