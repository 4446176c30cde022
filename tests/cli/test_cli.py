"""One program: what it is called with, imports, says and refuses, and its exit status."""

import contextlib
import functools
import importlib.metadata
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import soundfile

from simuljax.cli import main as cli
from simuljax.cli.report import check
from simuljax.config import loading
from simuljax.config.loading import load_object
from simuljax.demo.run import DemoConfig
from simuljax.eval.logs import as_records, write_records
from simuljax.profile.alignment import AlignmentProfile
from simuljax.profile.decode import DecodeProfile
from simuljax.profile.train import TrainProfile
from simuljax.report.run_page import ReportOptions
from simuljax.train.run import RunError
from tests.eval.logs import made_up
from tests.report.runs import evaluation


def ended(capsys, *args: str) -> tuple[int, str, str]:
    """The status of a command, and what it says on standard output and on standard error."""
    code: Any = 0
    try:
        cli.main(args)
    except SystemExit as exit:
        code = exit.code or 0
    said = capsys.readouterr()
    return code, said.out, said.err


def replace_commands(monkeypatch, **functions: Callable[[], object]) -> None:
    """Put other functions in the place of all commands."""
    monkeypatch.setattr(cli, "COMMANDS", dict.fromkeys(functions, ""))
    monkeypatch.setattr(cli, "function_of", functions.__getitem__)


def both(monkeypatch, error: Exception) -> None:
    """A command that goes wrong when it is read, and one when it is run."""

    def raises() -> NoReturn:
        raise error

    replace_commands(monkeypatch, early=raises, late=lambda: raises)


@pytest.mark.parametrize("kind", [*cli.EXPECTED, RunError], ids=lambda kind: kind.__name__)
def test_the_same_error_is_bad_use_or_a_failure(monkeypatch, capsys, kind):
    both(monkeypatch, kind("not so"))
    assert ended(capsys, "early") == (2, "", "simuljax: not so\n")
    assert ended(capsys, "late") == (1, "", "simuljax: not so\n")


def test_an_unexpected_error_is_called_a_bug_and_its_traceback_is_kept(
    monkeypatch, capsys, tmp_path
):
    monkeypatch.setattr(loading, "_OWN", set())
    both(monkeypatch, KeyError("ours"))
    for name in ("early", "late"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        code, out, err = ended(capsys, name)
        assert (code, out) == (70, "")
        (kept,) = folder.iterdir()
        assert "Traceback" in kept.read_text() and "KeyError: 'ours'" in kept.read_text()
        assert err.count("\n") == 1 and err.startswith("simuljax: unexpected KeyError: 'ours'. ")
        assert "bug" in err and str(kept) in err
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))  # then it is printed
    code, _, err = ended(capsys, "late")
    assert code == 70 and "Traceback" in err and "bug" in err.splitlines()[-1]


def test_an_error_in_a_file_of_the_user_is_not_called_a_bug(monkeypatch, capsys, tmp_path):
    file = tmp_path / "own_loss.py"
    file.write_text("def entropy(outputs):\n    return outputs.delay\n")
    raises = functools.partial(load_object(f"{file}:entropy"), object())
    replace_commands(monkeypatch, late=lambda: raises)
    code, _, err = ended(capsys, "late")
    assert code == 1 and err.startswith(f"simuljax: {file}, line 2: AttributeError: ")
    assert err.count("\n") == 1 and "delay" in err


class ResourceError(RuntimeError):
    """Stands for the device's error, which has no class of its own in JAX's interface."""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(13, "Permission denied", "a.log"), "a.log: Permission denied"),
        (BrokenPipeError("the server has gone"), "the server has gone"),
        (MemoryError(), "out of memory"),
        (
            ResourceError("RESOURCE_EXHAUSTED: 9 GiB\nlong"),
            "out of memory: RESOURCE_EXHAUSTED: 9 GiB",
        ),
        (OSError(28, "No space left on device"), "the disk: No space left on device"),
        (OSError(28, "No space left on device", "a"), "a: No space left on device"),
        (
            ResourceError("RESOURCE_EXHAUSTED: No space left on device"),
            "the disk: No space left on device",
        ),
        (ValueError("INTERNAL: Disk quota exceeded"), "the disk: Disk quota exceeded"),
        (OSError(122, "Disk quota exceeded", "a"), "a: Disk quota exceeded"),
        (
            ValueError(
                'OUT_OF_RANGE: Error writing "kernel/0.0" in OCDBT database at local file "/r/1/": '
                "Failed to write 73027 bytes to file 8: File too large [os_error_code='27']"
            ),
            "/r/1/: File too large",
        ),
        (
            ValueError("PERMISSION_DENIED: Failed to open [os_error_code='30']"),
            "the disk: Read-only file system",
        ),
    ],
)
def test_expected_kinds_of_failure_are_one_sentence(monkeypatch, capsys, error, said):
    both(monkeypatch, error)
    assert ended(capsys, "late") == (1, "", f"simuljax: {said}\n")


def test_an_output_that_is_closed_full_or_ascii_is_no_bug():
    for command, environment, status, said in (
        ("--version >&-", {}, 0, b""),
        ("--version >/dev/full", {}, 1, b"simuljax: the disk: No space left on device\n"),
        ("score 'caf\u00e9.log'", {"PYTHONIOENCODING": "ascii"}, 2, b"no log caf\\xe9.log"),
    ):
        done = subprocess.run(
            ["bash", "-c", f"$0 -m simuljax.cli.main {command}", sys.executable],
            env=os.environ | environment,
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == status and said in done.stderr
        assert said or not done.stderr


def test_an_interrupt_while_a_command_is_imported_is_one_line():
    """A module stands for a slow import: it waits until the signal comes."""
    code = (
        "import os, signal, sys, types\n"
        "from simuljax.cli import main as cli\n"
        "class Slow:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'simuljax.cli.score':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Slow())\n"
        "cli.main(['score', 'x'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, b"simuljax: interrupted\n")


def test_the_version(capsys):
    version = importlib.metadata.version("simuljax")
    assert ended(capsys, "--version") == (0, f"simuljax {version}\n", "")


def test_alone_it_shows_the_help(capsys):
    code, helped, err = ended(capsys, "--help")
    assert (code, err) == (0, "") and "--version" in helped
    code, out, err = ended(capsys)
    assert (code, out) == (2, "")
    assert err == helped + "simuljax: say which command\n"
    assert all(name in err for name in cli.COMMANDS)
    assert "  score      Score a log in SimulEval's format, ours or another tool's.\n" in err


@pytest.mark.parametrize("lines", [1, 100_000])
@pytest.mark.parametrize("command", ["say", "help"])
def test_who_has_read_enough_is_not_told_of_it(monkeypatch, capfd, command, lines):
    """As with `| head`, whether the pipe breaks while there is more to say or at the end."""

    def say() -> None:
        print("word\n" * lines)

    def explain() -> NoReturn:
        say()
        sys.exit(0)

    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(sys, "stdout", os.fdopen(writer, "w"))
    replace_commands(monkeypatch, say=lambda: say, help=explain)
    with pytest.raises(SystemExit, match=str(128 + signal.SIGPIPE)):
        cli.main([command])
    sys.stdout.close()  # and nothing is left that could not be written
    assert capfd.readouterr().err == ""


def test_a_closed_output_does_not_hide_an_unexpected_error(monkeypatch, capfd):
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(sys, "stdout", os.fdopen(writer, "w"))
    replace_commands(monkeypatch, fail=lambda: print("word") or {}["ours"])
    with pytest.raises(SystemExit, match="70"):
        cli.main(["fail"])
    assert "KeyError: 'ours'" in capfd.readouterr().err
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.close()


EXPERIMENT = """
from pathlib import Path
from simuljax.config.experiment import DataConfig, Experiment
from simuljax.config.model import DecoderWidth, ModelConfig
from simuljax.config.training import Training
EXPERIMENT = Experiment(
    run=Path("run"), data=DataConfig(directory=Path("corpus")), training=Training(updates=1),
    model=ModelConfig(decoder_width=DecoderWidth()),
)
"""
TABLE = Path(__file__).with_name("refusals.tsv").read_text().splitlines()[1:]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A place with a good experiment, bad ones, logs, sound, links and an evaluated run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("ELEVENLABS_API_KEY", raising=False)
    files = {
        "good.py": EXPERIMENT,
        "bad.py": "x = 1\ny = = 2\n",
        "indirect.py": "import bad\n",
        "raises.py": "x = 1\nint('seven')\n",
        "opens.py": "open('no_such_file')\n",
        "exits.py": "x = 1\nraise SystemExit(0)\n",
        "three.py": "EXPERIMENTS = {'a': 3}\n",
        "bad.log": "{}\n",
        "times": "kept",
        "tiny.bin": "no weights",
        "elsewhere/config.json": "{}",
    }
    for folder in ("empty", "elsewhere"):
        (tmp_path / folder).mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "binary.py").write_bytes(b"x = 1\n\0\xff")
    (tmp_path / "latin.py").write_bytes(b"x = '\xe4'\n")
    soundfile.write(tmp_path / "talk.wav", np.zeros(1600, np.int16), 16_000)
    (tmp_path / "hard.wav").hardlink_to(tmp_path / "talk.wav")
    (tmp_path / "talk.speech.jsonl").hardlink_to(tmp_path / "talk.wav")
    (tmp_path / "soft.wav").symlink_to("talk.wav")
    (tmp_path / "link.log").symlink_to("a.log")
    write_records(tmp_path / "a.log", as_records(made_up(0)))
    evaluation(tmp_path / "run", "e", made_up(0), split="test")
    return tmp_path


def held(place: Path) -> dict[Path, bytes]:
    files = (path for path in place.rglob("*") if "__pycache__" not in path.parts)
    return {path: path.read_bytes() if path.is_file() else b"" for path in files}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.split("\t")[1])
def test_bad_use_is_refused_before_anything_is_made(here, capsys, row):
    status, line, *facts = row.split("\t")
    before = held(here)
    with pytest.raises(SystemExit) as end:
        cli.main(line.replace("9*5000", "9" * 5000).split())
    said = capsys.readouterr()
    assert (end.value.code, said.out) == (int(status), "")
    text = " ".join(re.sub(r"[│─╭╮╰╯]", " ", said.err).split())  # without its frame
    assert all(" ".join(fact.split()) in text for fact in facts), text
    assert "Traceback" not in text and ("Errno" not in text or "opens.py" in line)
    kinds = ("Parsing error", "Unrecognized options", "Value error", "Invalid choice")
    assert text.startswith(("simuljax: ", *kinds))
    assert held(here) == before


@pytest.mark.parametrize("kind", [TrainProfile, DecodeProfile, DemoConfig])
def test_every_number_is_positive(kind):
    for name in [f.name for f in fields(kind) if type(f.default) in (int, float)]:
        for number in (0, -8):
            with pytest.raises(ValueError, match=rf"^{name} is {number}; it must be above 0"):
                kind(**{name: number})


def test_what_can_be_is_let_through(here):
    TrainProfile(unroll=False, vocabulary=5)
    DecodeProfile(unroll=False, seconds=0.28, live_s=0.28, batches=(1,), live=())
    AlignmentProfile(problems=0)
    DemoConfig(held_out=1, rows=8)
    check(ReportOptions(runs=(str(here / "a.log"), str(here / "run")), split="test", utterances=0))


HEAVY = {"jax", "flax", "optax", "orbax", "grain", "tensorflow_datasets", "scipy", "matplotlib"}
CODE = """
import contextlib, sys
from simuljax.cli.main import main
for command in sys.argv[1:]:
    with contextlib.suppress(SystemExit):
        main(command.split())
    print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def test_quick_commands_import_nothing_heavy(tmp_path):
    """One process runs them all; of the last the imports have to be seen."""
    write_records(tmp_path / "a.log", as_records(made_up(0)))
    quick = ["--version", "--help", "trian", "score --help", f"score {tmp_path / 'a.log'}"]
    command = [sys.executable, "-c", CODE, *quick, "train --help"]
    said = subprocess.run(command, capture_output=True, text=True).stderr.splitlines()
    *_, before, after = (set(line.split()) for line in said if "simuljax" in line.split())
    assert not before & HEAVY and after >= {"jax", "flax", "orbax"}


@pytest.mark.slow
def test_child_processes_ignore_packages_in_the_working_directory(tmp_path):
    for package in ("simuljax", "data_pipelines", "experiments"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit('the wrong package')")
    command = [sys.executable, "-P", "-m", "simuljax.cli.main", "prepare", "phrasebook"]
    command += ["--to", "corpus", "--train", "4", "--valid", "1", "--test", "1", "--workers", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "corpus" / "summary.json").exists()
