"""`simuljax interpret`: what its options mean, what is refused, and real weights."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from simuljax.audio import RATE, AudioError
from simuljax.cli import main as cli
from simuljax.cli.interpret import WhisperPolicy, interpret_command
from simuljax.cli.translate import WhisperOptions, whisper_settings
from simuljax.config.options import from_options
from simuljax.decode.policies import AlignAtt, Confidence, Consensus
from simuljax.eval.logs import read_records
from simuljax.serve.live import LiveOptions
from tests.models.whisper.small import GGML, TINY, needs_tiny


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


@pytest.mark.slow
def test_standard_input_may_be_a_file_too(files, tmp_path):
    """Of which only the system knows the name; in a process of its own."""
    code = "from simuljax.cli.main import main; main()"
    given = ["interpret", "-", *files[1:], "--log", files[0]]
    with open(files[0]) as sound:
        done = subprocess.run(
            [sys.executable, "-c", code, *given], stdin=sound, capture_output=True, text=True
        )
    assert done.returncode == 2 and "is also the sound to translate" in done.stderr


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
