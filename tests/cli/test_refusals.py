"""Numbers and files that cannot be: said while the command is read, before anything is made."""

import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import soundfile

from simuljax.cli import main as cli
from simuljax.cli.report import check
from simuljax.demo.run import DemoConfig
from simuljax.eval.logs import as_records, write_records
from simuljax.profile.alignment import AlignmentProfile
from simuljax.profile.decode import DecodeProfile
from simuljax.profile.train import TrainProfile
from simuljax.report.run_page import Report
from tests.eval.logs import made_up
from tests.report.runs import evaluation

EXPERIMENT = """
from pathlib import Path
from simuljax.config.data import DataConfig
from simuljax.config.experiment import Experiment
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
    assert text.startswith(("simuljax: ", "Parsing error", "Unrecognized options", "Value error"))
    assert held(here) == before


@pytest.mark.parametrize("kind", [TrainProfile, DecodeProfile, DemoConfig])
@pytest.mark.parametrize("number", [0, -8])
def test_every_number_is_positive(kind, number):
    numbers = [f.name for f in fields(kind) if type(f.default) in (int, float)]
    for name in numbers:
        with pytest.raises(ValueError, match=rf"^{name} is {number}; it must be above 0"):
            kind(**{name: number})


@pytest.mark.parametrize(
    ("kind", "asked", "sentence"),
    [
        (TrainProfile, {"vocabulary": 4}, "vocabulary is 4; the special pieces alone are 4"),
        (DecodeProfile, {"vocabulary": 1}, "vocabulary is 1"),
        (DecodeProfile, {"batches": ()}, "batches is empty"),
        (DecodeProfile, {"batches": (1, -4)}, "batches is -4"),
        (DecodeProfile, {"read_ms": 50}, "read_ms is 50; choose a multiple of 40"),
        (DecodeProfile, {"seconds": 0.2}, "seconds is 0.2 and live_s 30.0"),
        (DecodeProfile, {"live_s": float("inf")}, "live_s is inf"),
        (DemoConfig, {"rows": 12}, "rows is 12; choose a multiple of 8"),
    ],
)
def test_other_numbers_that_cannot_be(kind, asked, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        kind(**asked)


def test_what_can_be_is_let_through():
    TrainProfile(unroll=False, vocabulary=5)
    DecodeProfile(unroll=False, seconds=0.28, live_s=0.28, batches=(1,), live=())
    AlignmentProfile(problems=0)
    DemoConfig(held_out=1, rows=8)


def test_a_split_is_chosen_where_there_is_a_run(here):
    run, log = str(here / "run"), str(here / "a.log")
    for runs in ((run,), (log, run)):
        check(Report(runs=runs, split="test", utterances=0))
    check(Report(runs=(log,)))
