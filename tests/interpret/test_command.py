"""What is typed, what is refused, and real weights through the whole command."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import tyro

from simuljax.audio import RATE, AudioError
from simuljax.eval.records import read_records
from simuljax.interpret import (
    AlignAtt,
    Confidence,
    Consensus,
    Greedy,
    LocalAgreement,
    Offline,
)
from simuljax.interpret.command import interpret_command
from simuljax.interpret.options import Interpretation, interpreting, pace

TINY = Path(__file__).parents[2] / ".." / "shared" / "data" / "weights" / "whisper-tiny"
GGML = TINY / "ggml-tiny.bin"


def command(*args: str):
    """As the command line reads it."""
    return tyro.extras.subcommand_cli_from_dict(
        {"interpret": interpret_command, "other": lambda: print},
        args=["interpret", *args],
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.CascadeSubcommandArgs),
    )


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
        (["--policy", "alignatt", "--frames", "10"], AlignAtt(frames=10)),
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
        (["--frames", "3"], "--frames is for --policy alignatt"),
        (["--hypotheses", "3"], "--hypotheses is for --policy local-agreement"),
        (["--threshold", "1.5"], "threshold is 1.5"),
        (["--window", "0"], "window_s is 0"),
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
    with pytest.raises(SystemExit) as exit:
        command(*files, *args)
    assert exit.value.code == 2
    assert sentence in capsys.readouterr().err


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
    with pytest.raises(SystemExit) as exit:
        command(*args)
    assert exit.value.code == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert ("ggml-tiny.bin" in said) == ("Whisper's" in sentence)


@pytest.mark.parametrize(
    ("args", "hint"), [(["--polcy", "greedy"], "--policy"), (["--policy", "gredy"], "greedy")]
)
def test_typos_exit_2(files, capsys, args, hint):
    with pytest.raises(SystemExit) as exit:
        command(*files, *args)
    assert exit.value.code == 2
    said = capsys.readouterr()
    assert hint in said.out + said.err


def test_the_keyboard_is_no_sound(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    with pytest.raises(SystemExit):
        command("-", "--model", "a.bin")
    assert "standard input is the keyboard" in capsys.readouterr().err


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
