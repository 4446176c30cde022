"""Read the options of `simuljax ablate` and `train`: unknown names exit 2 with a suggestion."""

from pathlib import Path

import pytest
from tqdm import tqdm

from experiments.papi2022 import multi30k
from experiments.papi2022 import recipe as papi
from simuljax.ablate.grid import load_grid, plan
from simuljax.ablate.run import missing_table, show
from simuljax.cli import main as cli
from simuljax.config.fields import ConfigError
from tests.helpers.grids import grid

ONE = """
from pathlib import Path
from tests.helpers.grids import grid
GRID = grid(Path({corpus!r}), Path({runs!r}))
"""
SEVERAL = ONE.replace("GRID =", "EXPERIMENTS = (one :=") + (
    ").variants\nGRIDS = {{'figure_1': one, 'table': one}}\n"
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
    ("file", "args", "facts"),
    [
        ("one", ["--rows", "other"], ["--rows", "--variants"]),
        ("one", ["--grid", "figure_9"], ["one.py", "--grid", "figure_9"]),
        ("several", ["--grid", "figur_1"], ["--grid", "'figur_1'", "'figure_1'"]),
        ("several", ["--grid", "zzz"], ["figure_1, table", "'zzz'", "--grid"]),
        ("several", [], ["figure_1, table", "--grid"]),
        ("one", ["--only", "othr-seed1"], ["'other-seed1-", "--only"]),
        ("one", ["--variants", "othr"], ["donor, one, other, later", "'othr'", "'other'"]),
        ("one", ["--variants", "one", "z*"], ["'z*'", "--variants"]),
        ("one", ["--seeds", "7"], ["0, 1", "7", "--seeds"]),
        ("one", ["--seeds", "0", "--only", "x"], ["--only", "--variants", "--seeds"]),
        ("one", ["--workers", "0"], ["--workers 0"]),
        ("one", ["--together", "-1"], ["--together -1"]),
    ],
)
def test_unknown_choice_exits_2_before_anything(files, tmp_path, capsys, file, args, facts):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["ablate", str(files[file]), *args])
    assert stopped.value.code == 2
    printed = capsys.readouterr().err
    assert all(fact in printed for fact in facts), printed
    assert not (tmp_path / "runs").exists()


def listed(capsys) -> list[str]:
    return [line.split()[1] for line in capsys.readouterr().out.splitlines()]


def test_list_names_the_runs_of_the_plan(files, tmp_path, capsys):
    for args in ([str(files["one"])], [str(files["several"]), "--grid", "table"]):
        cli.main(["ablate", *args, "--list"])
        ablation = grid(tmp_path / "corpus", tmp_path / "runs")
        assert listed(capsys) == [run.name for run in plan(ablation)]


@pytest.mark.parametrize(
    ("args", "variants"),
    [
        (["--variants", "later", "--seeds", "1"], ["donor", "other-seed1", "later-seed1"]),
        (["--variants", "o*"], ["donor", "one-seed0", "one-seed1", "other-seed0", "other-seed1"]),
        (["--variants", "donor", "--seeds", "0"], ["donor"]),
        (["--seeds", "0"], ["donor", "one-seed0", "other-seed0", "later-seed0"]),
    ],
)
def test_part_includes_the_runs_it_starts_from(files, capsys, args, variants):
    cli.main(["ablate", str(files["one"]), "--list", *args])
    assert sorted(name.rsplit("-", 1)[0] for name in listed(capsys)) == sorted(variants)


def test_corpora_of_variants_that_are_not_chosen_may_be_missing(files, tmp_path, capsys):
    missing = """
from dataclasses import replace
base = GRID.variants["one"]
lost = replace(base, data=replace(base.data, directory=Path("lost/corpus")))
GRID = replace(GRID, variants={**GRID.variants, GRID.baseline: lost})
"""
    file = tmp_path / "missing.py"
    file.write_text(files["one"].read_text() + missing)
    names = ["donor", "other-seed0", "other-seed1"]
    cli.main(["ablate", str(file), "--variants", "other", "--list"])
    found = listed(capsys)
    assert sorted(name.rsplit("-", 1)[0] for name in found) == names
    cli.main(["ablate", str(file), "--only", found[-1], "--list"])
    cli.main(["ablate", str(file), "--variants", "donor", "--list"])
    capsys.readouterr()
    for args in ([], ["--variants", "o*"], ["--seeds", "0"], ["--variants", "other", "--publish"]):
        with pytest.raises(SystemExit):
            cli.main(["ablate", str(file), *args])
        assert "lost/corpus" in capsys.readouterr().err
    ablation = load_grid(file)
    (table,) = missing_table(ablation, plan(ablation, {"other"}))
    assert table.rows[0][:2] == ("one", "0, 1")


def test_train_suggests_a_row_and_lists_them(files, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["train", str(files["several"]), "doner"])
    assert stopped.value.code == 2
    printed = capsys.readouterr().err
    assert printed.index("'donor'") < printed.index("donor, one, other, later")
    cli.main(["train", str(files["several"]), "--help"])
    assert "donor, one, other, later" in capsys.readouterr().out


def test_missing_distilled_corpus_names_the_option(tmp_path, monkeypatch):
    figures = papi.grids(multi30k.RECIPE)
    assert {"figure_4", "figure_4_fixed", "figure_5"} <= figures.keys()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"multi30k-speech-distilled .*--distil"):
        plan(figures["figure_5"])


@pytest.mark.parametrize(
    ("mistake", "facts"),
    [
        ("replace(GRID, evaluations=(Evaluation(run=Path(), mode='ofline'),))", ["'ofline'"]),
        ("replace(GRID, seed=(0,))", ["'seed'", "mistaken.py, line 7"]),
        ("replace(GRID, seeds=(1, 1))", ["(1, 1)"]),
        ("replace(GRID, seeds=0)", ["mistaken.py, line 7"]),
        ("replace(first, training=replace(first.training, updates='many'))", ["updates", "'many'"]),
        ("Evaluations", ["NameError", "'Evaluations'", "mistaken.py, line 7"]),
    ],
)
def test_mistake_in_the_file_is_named_before_anything_runs(files, tmp_path, capsys, mistake, facts):
    text = files["one"].read_text()
    more = "from dataclasses import replace\nfrom simuljax.config.evaluation import Evaluation\n"
    more += "first = GRID.variants['one']\n"
    file = tmp_path / "mistaken.py"
    file.write_text(f"{text.strip()}\n{more}GRID = {mistake}\n")
    with pytest.raises(SystemExit) as exit_:
        cli.main(["ablate", str(file), "--list"])
    assert exit_.value.code == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert all(fact in printed for fact in facts), printed


def test_a_progress_bar_that_is_switched_off_shows_nothing(tmp_path):
    with tqdm(total=1, disable=True) as bar:  # as TQDM_DISABLE does
        show(bar, [], {}, grid(tmp_path, tmp_path))
