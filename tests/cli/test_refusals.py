"""Numbers and files that cannot be: said while the command is read, before anything is made."""

import re
from dataclasses import fields

import pytest

from simuljax.cli import main as cli
from simuljax.cli.report import check
from simuljax.demo.run import DemoConfig
from simuljax.eval.logs import as_records, write_records
from simuljax.profile.alignment import AlignmentProfile
from simuljax.profile.decode import DecodeProfile
from simuljax.profile.measure import check_positive
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


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A place with a good experiment, bad ones, a log and a run that was evaluated."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "good.py").write_text(EXPERIMENT)
    (tmp_path / "bad.py").write_text("x = 1\ny = = 2\n")
    (tmp_path / "indirect.py").write_text("import bad\n")
    (tmp_path / "binary.py").write_bytes(b"x = 1\n\0\xff")
    (tmp_path / "latin.py").write_bytes(b"x = '\xe4'\n")
    (tmp_path / "raises.py").write_text("x = 1\nint('seven')\n")
    (tmp_path / "opens.py").write_text("open('no_such_file')\n")
    (tmp_path / "exits.py").write_text("x = 1\nraise SystemExit(0)\n")
    (tmp_path / "three.py").write_text("EXPERIMENTS = {'a': 3}\n")
    write_records(tmp_path / "a.log", as_records(made_up(0)))
    evaluation(tmp_path / "run", "e", made_up(0), split="test")
    return tmp_path


def refused(capsys, line: str) -> str:
    """What is said of a command when it is read, without the frame that it may be shown in."""
    with pytest.raises(SystemExit) as end:
        cli.main(line.split())
    said = capsys.readouterr()
    assert (end.value.code, said.out) == (2, "")
    return " ".join(re.sub(r"[│─╭╮╰╯]", " ", said.err).split())


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("prepare phrasebook --to new --train -3", "train is -3 sentences"),
        ("prepare phrasebook --to new --train 1 --test -1", "test is -1 sentences"),
        ("prepare phrasebook --to new --train 0 --valid 0 --test 0", "no sentence is asked for"),
        ("prepare phrasebook --to new --workers -2", "workers is -2: it must be 1 or more"),
        ("prepare phrasebook --to new --max-seconds nan", "max_seconds is nan"),
        ("prepare phrasebook --to new --frames-per-batch 0", "frames_per_batch is 0"),
        ("prepare phrasebook --to new --vocabulary 4", "vocabulary is 4: the special pieces"),
        ("speak text --to new --workers 0", "workers is 0: it must be 1 or more"),
        ("speak a.log --to new --source ../../etc", "--source is '../../etc'"),
        ("speak a.log --to new --target de/", "--target is 'de/'"),
        ("train bad.py", "bad.py, line 2: invalid syntax"),
        ("ablate bad.py", "bad.py, line 2: invalid syntax"),
        ("train indirect.py", "bad.py, line 2: invalid syntax"),
        ("train binary.py", "binary.py is not a Python file"),
        ("train latin.py", "latin.py, line 1: "),
        ("train raises.py", "raises.py, line 2: ValueError: invalid literal"),
        ("train opens.py", "opens.py, line 1: FileNotFoundError: "),
        ("train exits.py", "exits.py, line 2: SystemExit: 0"),
        ("train three.py a", "three.py: EXPERIMENTS['a'] is 3, not an Experiment"),
        ("train good.py --training.optimiser.learning-rate nan", "learning_rate is nan"),
        ("train good.py --training.optimiser.learning-rate -1", "learning_rate is -1.0"),
        ("train good.py --training.optimiser.learning-rate 1e30", "learning_rate is 1e+30"),
        (f"train good.py --training.updates {10**30}", "it must be a whole number of at most"),
        (f"train good.py --training.seed {2**70}", "it must be a whole number of at most 64"),
        (f"train good.py --training.updates {'9' * 5000}", "Error parsing"),
        ("train good.py --model.width.heads 0", "heads is 0; it must be at least 1"),
        ("train good.py --model.width.heads -8", "heads is -8; it must be at least 1"),
        ("train good.py --model.width.heads 7", "heads is 7; a width of 512 does not divide"),
        ("train good.py --model.width.model 0", "model is 0; it must be at least 1"),
        ("train good.py --model.decoder-width.heads 0", "DecoderWidth.heads is 0; it must be"),
        ("train good.py --model.decoder-width.heads 7", "decoder_width.heads is 7; a width"),
        ("report", "a report needs a run"),
        ("report a.log --utterances -1", "utterances is -1"),
        ("report a.log --bucket-ms nan", "bucket_ms is nan"),
        ("report a.log --split nothing", "--split nothing"),
        ("profile train --utterances 0 --preset tiny", "utterances is 0; it must be above 0"),
        ("profile decode --live 0", "live is 0; it must be above 0"),
        ("profile alignment --problems -1", "problems is -1; it must be at least 0"),
        ("demo --updates 0 --out new", "updates is 0; it must be above 0"),
    ],
)
def test_bad_numbers_and_files_are_bad_use(here, capsys, line, sentence):
    before = sorted(here.rglob("*"))
    assert sentence in refused(capsys, line)
    assert [each for each in sorted(here.rglob("*")) if "__pycache__" not in each.parts] == before


@pytest.mark.parametrize("kind", [TrainProfile, DecodeProfile, DemoConfig])
@pytest.mark.parametrize("number", [0, -8])
def test_every_number_is_positive(kind, number):
    numbers = [f.name for f in fields(kind) if type(f.default) in (int, float)]
    for name in {*numbers} - {"drawn"}:
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
        (DemoConfig, {"held_out": 8, "drawn": 8}, "drawn is 8; held-out sentences are 0 to 7"),
        (DemoConfig, {"drawn": -1}, "drawn is -1"),
    ],
)
def test_other_numbers_that_cannot_be(kind, asked, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        kind(**asked)


def test_what_can_be_is_let_through():
    TrainProfile(unroll=False, vocabulary=5)
    DecodeProfile(unroll=False, seconds=0.28, live_s=0.28, batches=(1,), live=())
    AlignmentProfile(problems=0)
    DemoConfig(held_out=1, drawn=0, rows=8)
    with pytest.raises(ValueError, match="drawn is 0"):
        check_positive(DemoConfig(drawn=0))  # the field that is let through is let through by name


def test_a_split_is_chosen_where_there_is_a_run(here):
    run, log = str(here / "run"), str(here / "a.log")
    for runs in ((run,), (log, run)):
        check(Report(runs=runs, split="test", utterances=0))
    check(Report(runs=(log,)))
