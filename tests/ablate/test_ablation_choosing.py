"""What there is not to choose is refused with exit 2, and with what is like it."""

from pathlib import Path

import pytest

from experiments.papi2022 import phrasebook as papi_phrasebook
from experiments.papi2022 import recipe as papi
from simuljax.ablate.grid import plan
from simuljax.cli import main as cli
from simuljax.errors import unknown
from simuljax.config.experiment import ExperimentError
from tests.ablate.small_ablation import grid

ONE = """
from pathlib import Path
from tests.ablate.small_ablation import grid
ABLATION = grid(Path({corpus!r}), Path({runs!r}))
"""
SEVERAL = ONE.replace("ABLATION =", "EXPERIMENTS = (one :=") + (
    ").rows\nABLATIONS = {{'figure_1': one, 'table': one}}\n"
)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A file with one grid and one with two, whose runs are in `tmp_path / "runs"`."""
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "summary.json").write_text("{}")
    made = {}
    for name, text in (("one", ONE), ("several", SEVERAL)):
        made[name] = tmp_path / f"{name}.py"
        places = {"corpus": str(tmp_path / "corpus"), "runs": str(tmp_path / "runs")}
        made[name].write_text(text.format(**places))
    return made


@pytest.mark.parametrize(
    ("file", "args", "said"),
    [
        ("one", ["--grid", "figure_9"], "one.py has one grid, and that has no name: leave --grid"),
        ("several", ["--grid", "figur_1"], "there is no 'figur_1'; do you mean 'figure_1'?"),
        ("several", ["--grid", "zzz"], "has the grids figure_1, table: there is no 'zzz' (--grid)"),
        ("several", [], "has the grids figure_1, table: say which one"),
        ("one", ["--only", "othr-seed1"], "do you mean 'other-seed1-"),
        (
            "one",
            ["--rows", "othr"],
            "donor, one, other, later: there is no 'othr'; do you mean 'other'",
        ),
        ("one", ["--rows", "one", "z*"], "there is no 'z*' (--rows)"),
        ("one", ["--seeds", "7"], "the grid has the seeds 0, 1: there is no 7 (--seeds)"),
        ("one", ["--seeds", "0", "--only", "x"], "--only names runs: leave --rows and --seeds"),
        ("one", ["--workers", "0"], "--workers 0: say 1 or more"),
        ("one", ["--together", "-1"], "--together -1: say 1 or more"),
    ],
)
def test_what_there_is_not_exits_2_before_anything(files, tmp_path, capsys, file, args, said):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["ablate", str(files[file]), *args])
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_what_there_is_is_listed(files, tmp_path, capsys):
    for args in ([str(files["one"])], [str(files["several"]), "--grid", "table"]):
        cli.main(["ablate", *args, "--list"])
        listed = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
        ablation = grid(tmp_path / "corpus", tmp_path / "runs")
        assert listed == [run.name for run in plan(ablation)]


@pytest.mark.parametrize(
    ("args", "rows"),
    [
        (["--rows", "later", "--seeds", "1"], ["donor", "other-seed1", "later-seed1"]),
        (["--rows", "o*"], ["donor", "one-seed0", "one-seed1", "other-seed0", "other-seed1"]),
        (["--rows", "donor", "--seeds", "0"], ["donor"]),
        (["--seeds", "0"], ["donor", "one-seed0", "other-seed0", "later-seed0"]),
    ],
)
def test_a_part_has_what_it_begins_with(files, capsys, args, rows):
    cli.main(["ablate", str(files["one"]), "--list", *args])
    listed = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert sorted(name.rsplit("-", 1)[0] for name in listed) == sorted(rows)


def test_a_row_of_training_is_suggested_before_the_list(files, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["train", str(files["several"]), "doner"])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "there is no 'doner'; do you mean 'donor'? (" in said
    assert said.index("do you mean") < said.index("donor, one, other, later")


def test_rows_are_listed_by_help(files, capsys):
    cli.main(["train", str(files["several"]), "--help"])
    said = capsys.readouterr().out
    assert said.startswith("usage: ") and "rows: donor, one, other, later" in said


def test_nothing_is_suggested_that_is_not_like_it():
    assert unknown("dra", ["asr", "dar", "mma"]) == "there is no 'dra'; do you mean 'dar'?"
    assert unknown("dra", ["conformer", "teacher"]) == "there is no 'dra'"


def test_a_figure_without_its_corpus_says_how_to_build_it(tmp_path, monkeypatch):
    figures = papi.grids(papi_phrasebook.RECIPE)
    assert {"figure_4", "figure_4_fixed", "figure_5"} <= figures.keys()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ExperimentError, match=r"holds no prepared corpus: .*--distil"):
        plan(figures["figure_5"])


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("replace(ABLATION, evaluations=(Evaluation(run=Path(), mode='ofline'),))", "'ofline'"),
        ("replace(ABLATION, seed=(0,))", "argument 'seed', at mistaken.py, line 8"),
        ("replace(ABLATION, seeds=(1, 1))", "seeds are (1, 1)"),
        ("replace(ABLATION, seeds=0)", "mistaken.py, line 8, in grid.py, line"),
        ("replace(ABLATION, rows={**ABLATION.rows, 'one': wrong})", "rows['one'].training.updates"),
        (
            "Evaluations",
            "NameError: name 'Evaluations' is not defined, at mistaken.py, line 8: correct it",
        ),
    ],
)
def test_a_mistake_in_the_file_is_named_before_anything_runs(
    files, tmp_path, capsys, mistake, said
):
    text = files["one"].read_text()
    more = "from dataclasses import replace\nfrom simuljax.config.evaluation import Evaluation\n"
    more += "first = ABLATION.rows['one']\n"
    more += "wrong = replace(first, training=replace(first.training, updates='many'))\n"
    file = tmp_path / "mistaken.py"
    file.write_text(f"{text.strip()}\n{more}ABLATION = {mistake}\n")
    with pytest.raises(SystemExit) as exit_:
        cli.main(["ablate", str(file), "--list"])
    assert exit_.value.code == 2
    assert said in " ".join(capsys.readouterr().err.split())
