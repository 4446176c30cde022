"""What is typed, what is refused, and real weights through the whole command."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import tyro

from simuljax.audio import RATE, AudioError
from simuljax.cli import main as cli
from simuljax.eval.logs import read_records
from simuljax.serve.interpret import (
    AlignAtt,
    Confidence,
    Consensus,
    Greedy,
    LocalAgreement,
    Offline,
)
from simuljax.serve.interpret.command import interpret_command
from simuljax.serve.interpret.options import Interpretation, interpreting, pace

TINY = Path(__file__).parents[3] / ".." / "shared" / "data" / "weights" / "whisper-tiny"
GGML = TINY / "ggml-tiny.bin"


def command(*args: str):
    """As the command line reads it."""
    return tyro.extras.subcommand_cli_from_dict(
        {"interpret": interpret_command, "other": lambda: print},
        args=["interpret", *args],
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.CascadeSubcommandArgs),
    )


def refused(capsys, *args: str) -> str:
    """What the whole command line says to it, and nothing on standard output; it exits 2."""
    with pytest.raises(SystemExit) as exit:
        cli.main(["interpret", *args])
    assert exit.value.code == 2
    said = capsys.readouterr()
    assert not said.out
    return said.err


def chosen(*args: str) -> Interpretation:
    return tyro.cli(Interpretation, args=args, config=(tyro.conf.OmitArgPrefixes,))


@pytest.fixture
def files(tmp_path):
    soundfile.write(tmp_path / "talk.wav", np.zeros(1600, np.int16), RATE)
    (tmp_path / "tiny.bin").write_bytes(b"no weights")
    return [str(tmp_path / "talk.wav"), "--model", str(tmp_path / "tiny.bin")]


@pytest.mark.parametrize(
    ("args", "policy"),
    [
        ([], Consensus()),
        (["--policy", "consensus", "--threshold", ".75"], Consensus(threshold=0.75)),
        (["--policy", "confidence", "--threshold", "0.9"], Confidence(threshold=0.9)),
        (
            ["--policy", "confidence", "--by", "log_probability"],
            Confidence(by="log_probability"),
        ),
        (["--policy", "greedy"], Greedy()),
        (["--policy", "offline"], Offline()),
        (["--policy", "align-att", "--frames", "10"], AlignAtt(frames=10)),
        (["--policy", "local-agreement", "--hypotheses", "3"], LocalAgreement(hypotheses=3)),
    ],
)
def test_policies(args, policy):
    assert interpreting(chosen("a.wav", *args)).policy == policy


@pytest.mark.parametrize(
    ("args", "task", "language"),
    [
        ([], "translate", None),
        (["--from", "es"], "translate", "es"),
        (["--from", "Spanish", "--to", "English"], "translate", "es"),
        (["--from", "de", "--to", "de"], "transcribe", "de"),
        (["--from", "en"], "transcribe", "en"),
    ],
)
def test_languages(args, task, language):
    settings = interpreting(chosen("a.wav", *args))
    assert (settings.task, settings.language) == (task, language)


@pytest.mark.parametrize(
    ("args", "how", "behind"),
    [
        (["a.wav"], "fast", "every"),
        (["a.wav", "--pace", "real"], "real", "latest"),
        (["-"], "real", "latest"),
        (["-", "--pace", "fast"], "fast", "every"),
        (["--mic"], "real", "latest"),
    ],
)
def test_a_live_source_may_skip_windows_and_a_file_does_not(args, how, behind):
    assert pace(chosen(*args)) == how
    assert interpreting(chosen(*args)).behind == behind


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--to", "de"], "Whisper translates into English only, not into German; to write down"),
        (["--to", "de", "--from", "es"], "add --from de"),
        (["--to", "klingon"], "--to: Whisper knows no language 'klingon'"),
        (["--from", "xx"], "--from: Whisper knows no language 'xx'"),
        (["--policy", "greedy", "--threshold", "0.5"], "--threshold is for --policy confidence or"),
        (["--by", "no_speech"], "--by is for --policy confidence; consensus has none"),
        (["--frames", "3"], "--frames is for --policy align-att"),
        (["--hypotheses", "3"], "--hypotheses is for --policy local-agreement"),
        (["--threshold", "1.5"], "simuljax: --threshold is 1.5; it lies in [0, 1]"),
        (["--window", "0"], "simuljax: --window is 0.0; it lies in [0.1, 15]"),
        (["--policy", "align-att", "--frames", "-1"], "simuljax: --frames is -1"),
        (["--policy", "local-agreement", "--hypotheses", "1"], "simuljax: --hypotheses is 1"),
        (["--mic"], "give a sound file, -, or --mic"),
        (["--device", "2"], "--device is for --mic"),
        (["--voice", "espeak"], "add --speak FILE.wav or --play"),
        (["--play", "--voice", "http"], "--voice http and --voice-name NAME"),
        (["--play", "--voice-name", "Ana"], "go together"),
        (
            ["--play", "--voice", "hibari", "--to", "de", "--from", "de"],
            "hibari speaks English, not German: --voice espeak",
        ),
        (["--log", "/nowhere/at/all.log"], "there is no directory /nowhere/at for all.log"),
        (["--speak", "/nowhere/at/all.wav"], "there is no directory /nowhere/at for all.wav"),
    ],
)
def test_what_cannot_be_exits_2_with_a_sentence(files, capsys, args, sentence):
    assert sentence in refused(capsys, *files, *args)


def test_windows_may_be_padded_less():
    assert interpreting(chosen("a.wav", "--padding", "short")).padding == "short"
    assert interpreting(chosen("a.wav")).padding == "full"


def test_what_can_be_is_not_refused(files):
    assert callable(command(*files, "--from", "es", "--threshold", "0.4", "--window", "2"))


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ([], "give a sound file, -, or --mic"),
        (["nothing.wav"], "there is no sound file nothing.wav"),
        (["--mic", "--pace", "real"], "--pace is for files and -"),
        (["--mic"], "give the model with --model. Whisper's weights come from"),
        (["--mic", "--model", "gone.bin"], "there are no weights at gone.bin. Whisper's weights"),
    ],
)
def test_sources_and_weights_that_are_not_there(capsys, args, sentence):
    said = refused(capsys, *args)
    assert sentence in said
    assert ("ggml-tiny.bin" in said) == ("Whisper's" in sentence)


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["--polcy", "greedy"], "--policy"),
        (["--policy", "gredy"], "greedy"),
        (["--policy", "alignatt"], "align-att"),
    ],
)
def test_typos_exit_2(files, capsys, args, hint):
    assert hint in refused(capsys, *files, *args)


def test_the_keyboard_is_no_sound(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert "standard input is the keyboard" in refused(capsys, "-", "--model", "a.bin")


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--speak", "talk.wav"], "--speak talk.wav is also the sound to hear"),
        (["--log", "talk.wav"], "--log talk.wav is also the sound to hear"),
        (["--log", "elsewhere/../talk.wav"], "is also the sound to hear"),
        (["--log", "hard.wav"], "--log hard.wav is also the sound to hear"),
        (["--speak", "soft.wav"], "--speak soft.wav is also the sound to hear"),
        (["--log", "tiny.bin"], "--log tiny.bin is also a file of the model"),
        (["--model", "folder", "--log", "folder/config.json"], "is also a file of the model"),
        (["--log", "new", "--speak", "./new"], "--log new is also what --speak writes"),
        (["--log", "a.log", "--speak", "a.speech.jsonl"], "is also what --speak writes"),
        (["--log", "talk.log", "--play"], "talk.speech.jsonl is also the sound to hear"),
        (["--log", "elsewhere"], "--log elsewhere is a directory"),
        (["--log", ".", "--play"], "--log . is a directory"),
    ],
)
def test_nothing_that_is_read_is_written_over(files, tmp_path, monkeypatch, capsys, args, sentence):
    monkeypatch.chdir(tmp_path)
    for folder in (Path("elsewhere"), Path("folder")):
        folder.mkdir()
    Path("folder/config.json").write_text("{}")
    Path("hard.wav").hardlink_to("talk.wav")
    Path("soft.wav").symlink_to("talk.wav")
    if "--play" in args:
        Path("talk.speech.jsonl").hardlink_to("talk.wav")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert sentence in refused(capsys, "talk.wav", "--model", "tiny.bin", *args)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


def test_standard_input_may_be_a_file_too(files, tmp_path):
    """Of which only the system knows the name; in a process of its own."""
    code = "from simuljax.cli.main import main; main()"
    given = ["interpret", "-", *files[1:], "--log", files[0]]
    with open(files[0]) as sound:
        done = subprocess.run(
            [sys.executable, "-c", code, *given], stdin=sound, capture_output=True, text=True
        )
    assert done.returncode == 2 and "is also the sound to hear" in done.stderr


def test_a_log_without_speech_has_no_file_beside_it(files, tmp_path):
    """So one that has its name may be heard; a log that is there already is written anew."""
    (tmp_path / "a.log").write_text("old")
    (tmp_path / "a.speech.jsonl").symlink_to(files[0])
    assert callable(command(*files, "--log", str(tmp_path / "a.log")))


def test_what_is_no_sound_is_found_before_the_model_is_loaded(files, capsys):
    Path(files[0]).write_text("not a sound at all, but text " * 9)
    assert "talk.wav" in refused(capsys, *files)


def test_a_microphone_without_its_package_is_found_before_the_model_is_loaded(
    files, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    said = refused(capsys, "--mic", *files[1:])
    assert said.startswith("simuljax: there is no way to a microphone here")


def test_a_missing_key_is_found_before_the_model_is_loaded(files, capsys, monkeypatch):
    asked = [*files, "--play", "--voice", "http", "--voice-name", "Ana"]
    monkeypatch.setenv("ELEVENLABS_API_KEY", "a key")
    assert callable(command(*asked))
    monkeypatch.delenv("ELEVENLABS_API_KEY")
    assert "wants a key: set ELEVENLABS_API_KEY" in refused(capsys, *asked)


def test_devices_need_a_sound_card(monkeypatch):
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(AudioError, match="or give a file"):
        command("--devices")()


@pytest.mark.slow
@pytest.mark.skipif(
    not GGML.exists(), reason="Whisper tiny is not among the shared data (weights/whisper-tiny)"
)
def test_a_speech_is_interpreted_and_spoken(tmp_path, capsys):
    """Real weights, a real voice, and what was said is heard again by the model."""
    pytest.importorskip("hibari", reason="the voice is not installed: simuljax[speech]")
    out, log = tmp_path / "out.wav", tmp_path / "instances.log"
    given = (str(TINY / "jfk.flac"), "--model", str(GGML), "--from", "en", "--window", "5")
    command(*given, "--policy", "offline", "--speak", str(out), "--log", str(log))()
    text = "ask not what your country can do for you ask what you can do for your country"
    assert text in plain(capsys.readouterr().out)
    (record,) = read_records(log)
    assert text in plain(record.prediction)
    assert record.source_length == pytest.approx(11_000)
    assert record.delays == (11_000.0,) * len(record.prediction.split())
    notes = log.with_suffix(".speech.jsonl").read_text().splitlines()
    pieces = [json.loads(line) for line in notes]
    assert " ".join(piece["text"] for piece in pieces) == record.prediction
    assert pieces[0]["start_s"] > 11
    sound, rate = soundfile.read(out, dtype="int16")
    assert len(sound) / rate == pytest.approx(pieces[-1]["end_s"], abs=0.01)
    assert not sound[: int(11 * rate)].any() and sound[int(pieces[0]["start_s"] * rate) :].any()

    command(str(out), *given[1:], "--policy", "offline")()
    assert "what you can do for your country" in plain(capsys.readouterr().out)


def plain(text: str) -> str:
    letters = (c for c in text.lower() if c.isalnum() or c.isspace())
    return " ".join("".join(letters).split())
