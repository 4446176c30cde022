"""Plan a grid: its command, the order of runs, hashes, evaluations of single variants, cascades."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tqdm import tqdm

from data_pipelines.dataset import SUMMARY
from experiments.papi2022 import multi30k
from experiments.papi2022 import recipe as papi
from simuljax.ablate.grid import Grid, load_grid, plan
from simuljax.ablate.run import show
from simuljax.ablate.summary import missing_table, results_of
from simuljax.cli import main as cli
from simuljax.config.evaluation import Evaluation
from simuljax.config.fields import ConfigError
from simuljax.losses import Term
from simuljax.report.results import Claim
from tests.eval.logs import made_up
from tests.helpers.experiments import experiment
from tests.helpers.grids import grid, summarised_corpus, with_training
from tests.report.runs import evaluation

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


@pytest.mark.parametrize(
    ("file", "args", "variants"),
    [
        ("one", ["--variants", "later", "--seeds", "1"], ["donor", "other-seed1", "later-seed1"]),
        (
            "one",
            ["--variants", "o*"],
            ["donor", *(f"{v}-seed{s}" for v in ("one", "other") for s in "01")],
        ),
        ("one", ["--variants", "donor", "--seeds", "0"], ["donor"]),
        (
            "several",
            ["--grid", "table", "--seeds", "0"],
            ["donor", *(f"{v}-seed0" for v in ("one", "other", "later"))],
        ),
    ],
)
def test_part_includes_the_runs_it_starts_from(files, capsys, file, args, variants):
    cli.main(["ablate", str(files[file]), "--list", *args])
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
    assert listed(capsys) == found[-1:]
    cli.main(["ablate", str(file), "--variants", "donor", "--list"])
    capsys.readouterr()
    for args in ([], ["--variants", "o*"], ["--seeds", "0"], ["--variants", "other", "--publish"]):
        with pytest.raises(SystemExit):
            cli.main(["ablate", str(file), *args])
        assert "lost/corpus" in capsys.readouterr().err
    cli.main(["ablate", str(file), "--list"])
    *runs, no_data, why = capsys.readouterr().out.splitlines()
    assert {*names} <= {line.split()[1].rsplit("-", 1)[0] for line in runs}
    assert no_data.endswith(" one") and "lost/corpus" in why
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
        (
            "replace(GRID, claims=(Claim(says='a', variant='one', over='other', evaluation='x'),))",
            ["'a'", "'x'", "'test-speech-offline"],
        ),
        ("replace(first, training=replace(first.training, updates='many'))", ["updates", "'many'"]),
        ("Evaluations", ["NameError", "'Evaluations'", "mistaken.py, line 7"]),
    ],
)
def test_mistake_in_the_file_is_named_before_anything_runs(files, tmp_path, capsys, mistake, facts):
    text = files["one"].read_text()
    more = "from dataclasses import replace\nfrom simuljax.config.evaluation import Evaluation\n"
    more += "first = GRID.variants['one']; from simuljax.ablate.grid import Claim\n"
    file = tmp_path / "mistaken.py"
    file.write_text(f"{text.strip()}\n{more}GRID = {mistake}\n")
    with pytest.raises(SystemExit) as exit_:
        cli.main(["ablate", str(file), "--list"])
    assert exit_.value.code == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert all(fact in printed for fact in facts), printed


def test_a_progress_bar_that_is_switched_off_shows_nothing(tmp_path):
    with tqdm(total=1, disable=True) as bar:  # as TQDM_DISABLE does
        show(bar, [], {})


ANY = Path()


@pytest.fixture
def corpus(tmp_path) -> Path:
    return summarised_corpus(tmp_path / "corpus")


def test_plan_puts_runs_after_those_they_start_from(corpus, tmp_path):
    runs = plan(grid(corpus, tmp_path / "runs"))
    variants = [(run.variant, run.seed) for run in runs]
    assert variants[0] == ("donor", None)
    assert sorted(variants[1:]) == [
        (variant, s) for variant in ("later", "one", "other") for s in (0, 1)
    ]
    by_name = {run.name: run for run in runs}
    assert len(by_name) == 7
    for i, run in enumerate(runs):
        assert {need.name for need in run.needs} <= {earlier.name for earlier in runs[:i]}
        assert run.experiment.run == tmp_path / "runs" / run.name
        for begin in run.to_train.init_from:
            assert begin.run.name in by_name
    (later,) = [run for run in runs if (run.variant, run.seed) == ("later", 1)]
    assert [need.seed for need in later.needs if need.variant == "other"] == [1]


def digests(ablation: Grid) -> dict[str, str]:
    return {f"{run.variant}{run.seed}": run.digest for run in plan(ablation)}


def test_digest_covers_what_changes_a_result_and_nothing_else(corpus, tmp_path):
    base = grid(corpus, tmp_path / "runs")
    before = digests(base)
    assert digests(grid(corpus, tmp_path / "elsewhere")) == before
    assert digests(with_training(base, "other", log_every=77)) == before
    longer = digests(with_training(base, "other", updates=77))
    changed = {name for name in before if longer[name] != before[name]}
    assert changed == {"other0", "other1", "later0", "later1"}, "and what begins with it"
    own, objective = tmp_path / "own.py", experiment(corpus, tmp_path).training.objective
    terms = (*objective.terms, Term(name="own", function=f"{own}:term", weight=1.0))
    edited = []
    for code in ("def term(*_): return 1", "def term(*_): return 2"):
        own.write_text(code)
        objective = dataclasses.replace(objective, terms=terms)
        edited.append(digests(with_training(base, "other", objective=objective)))
    assert {name for name in before if edited[0][name] != edited[1][name]} == changed
    donor = digests(with_training(base, "donor", updates=77))
    assert all(donor[name] != before[name] for name in before)
    (corpus / SUMMARY).write_text('{"sentences": 3}')
    assert not set(digests(base).values()) & set(before.values())


def test_impossible_grids_are_rejected(corpus, tmp_path):
    averaged = Evaluation(run=Path(), checkpoint="averaged")
    then = dataclasses.replace(averaged, then=tmp_path / "donor")
    streamed, replace = Evaluation(run=Path(), name="same"), dataclasses.replace
    kept = with_training(grid(corpus, tmp_path), "one", average=2)
    dataclasses.replace(kept, own={"one": (averaged,)})
    for given, changes, problem in (
        (grid(corpus, tmp_path), {"table": ("on",)}, "no variant 'on'"),
        (kept, {"own": {"onee": ()}}, "no variant 'onee'"),
        (kept, {"baseline": "donor"}, "no variant of the table"),
        (grid(corpus, tmp_path), {"own": {"one": (averaged,)}}, r"averages .*one, whose training"),
        (kept, {"evaluations": (streamed, replace(streamed, threshold=0.8))}, "2 .*share .*, same"),
        (kept, {"latency": "LALA"}, "Grid.latency is 'LALA'"),
        (kept, {"own": {"one": (then,)}}, r"'one' asks for averages .*donor, whose training"),
    ):
        with pytest.raises(ConfigError, match=problem):
            dataclasses.replace(given, **changes)
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"published": -3.0}, "published is -3.0"),
        ({"published": "0.95"}, "published is '0.95'"),
        ({"over": "one"}, "compares 'one' with itself"),
    )
    claim = Claim(says="so", variant="one", over="other")
    for fields, problem in wrong:
        with pytest.raises(ConfigError, match=problem):
            dataclasses.replace(claim, **fields)
    (corpus / SUMMARY).unlink()
    with pytest.raises(ConfigError, match="holds no prepared corpus"):
        plan(grid(corpus, tmp_path))


@pytest.fixture
def cascade(tmp_path) -> Grid:
    """A recogniser that is followed by a variant which is only needed for that."""
    (tmp_path / SUMMARY).write_text("{}")
    variants = {name: experiment(tmp_path, tmp_path / name) for name in ("mma", "asr", "mt")}
    variants["asr"] = dataclasses.replace(variants["asr"], training=dataclasses.replace(
        variants["asr"].training, accumulate=2))  # fmt: skip
    return Grid(
        runs=tmp_path / "runs",
        variants=variants,
        table=("mma", "asr"),
        baseline="mma",
        evaluations=(Evaluation(run=ANY), Evaluation(run=ANY, threshold=0.2)),
        own={"asr": (Evaluation(run=ANY, then=variants["mt"].run, then_k=3),)},
        seeds=(0, 1),
    )


def test_second_run_of_a_cascade_is_planned_first(cascade):
    runs = {(run.variant, run.seed): run for run in plan(cascade)}
    assert list(runs) == [("mma", 0), ("mma", 1), ("mt", None), ("asr", 0), ("asr", 1)]
    (asked,) = runs["asr", 1].evaluations
    assert asked.run == runs["asr", 1].experiment.run
    assert asked.then == runs["mt", None].experiment.run
    assert asked.folder.name.startswith("test-speech-streamed-then-mt-")
    assert len(runs["mma", 0].evaluations) == 2
    assert runs["mt", None].evaluations == ()
    without = dataclasses.replace(cascade, own={})  # it does not change the first
    assert {run.name for run in plan(without)} < {run.name for run in plan(cascade)}


def test_seeds_of_a_cascade_are_one_setting(cascade):
    """Each is followed by the run of its own seed."""
    both = dataclasses.replace(cascade, table=(*cascade.table, "mt"), own={**cascade.own, "mt": ()})
    runs, folders = plan(both), set()
    for run in [run for run in runs if run.variant == "asr"]:
        (way,) = run.evaluations
        folders.add(way.folder.name)
        evaluation(run.experiment.run, way.folder.name, made_up(run.seed or 0))
    assert len(folders) == 2
    found = results_of(both, runs, "").evaluations
    assert {each.setting for each in found} == {"test-speech-streamed-then-mt-then-k3"}
    assert [each.seed for each in found] == [0, 1]


def test_cascades_of_two_rows_with_one_run_name_are_two_settings(cascade, tmp_path):
    other = experiment(tmp_path, tmp_path / "another" / "mt")
    after = [Evaluation(run=ANY, then=then) for then in (cascade.variants["mt"].run, other.run)]
    both = dataclasses.replace(
        cascade,
        variants={**cascade.variants, "other_mt": other},
        own={"asr": tuple(after)},
        seeds=(0,),
    )
    (run,) = [run for run in plan(both) if run.variant == "asr"]
    for way in run.evaluations:
        evaluation(run.experiment.run, way.folder.name, made_up(0))
    named = {"test-speech-streamed-then-mt", "test-speech-streamed-then-other_mt"}
    assert {each.setting for each in results_of(both, plan(both), "").evaluations} == named
