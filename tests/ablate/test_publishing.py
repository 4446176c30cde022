"""From the evaluations of a grid's runs to its page, its verdicts, and the published results."""

import dataclasses
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from data_pipelines.dataset import SUMMARY
from simuljax.ablate.grid import Grid, Planned, plan
from simuljax.ablate.summary import publish, write_summary
from simuljax.cli.main import main
from simuljax.config.evaluation import Evaluation
from simuljax.config.fields import ConfigError, write_json
from simuljax.eval import read_records, score, write_records
from simuljax.eval.logs import ARCHIVE, read_archive
from simuljax.report.results import Claim, read_results
from simuljax.train.run import ENDED
from tests.helpers.experiments import experiment
from tests.report.test_variants import evaluated

GOOD = {"plain": 0.5, "better": 0.8, "same": 0.5}


@pytest.fixture
def grid(tmp_path) -> tuple[Grid, list[Planned]]:
    """Three rows, one of them better, as if they had been trained and evaluated."""
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / SUMMARY).write_text("{}")
    runs = tmp_path / "runs" / "question"
    base = experiment(tmp_path / "corpus", runs / "plain")
    rows = {}
    for number, name in enumerate(GOOD):
        training = dataclasses.replace(base.training, accumulate=number + 1)
        rows[name] = dataclasses.replace(base, run=runs / name, training=training)
    claims = (
        Claim(says="better is better", variant="better", over="plain", published=1.5),
        Claim(says="worse is better", variant="plain", over="better"),
        Claim(says="the same is better", variant="same", over="plain"),
    )
    ablation = Grid(
        runs=runs,
        variants=rows,
        table=tuple(GOOD),
        baseline="plain",
        seeds=(0, 1, 2, 3),
        claims=claims,
        evaluations=(Evaluation(run=Path(), mode="offline"),),
    )
    planned = plan(ablation)
    for number, run in enumerate(planned):
        pretend(run, number)
    return ablation, planned


def pretend(run: Planned, number: int) -> None:
    """The files of a run that was evaluated."""
    folder = run.experiment.run / "eval" / "test-speech-offline"
    folder.mkdir(parents=True)
    records = evaluated(GOOD[run.variant], 600.0, number, mode="offline").records
    write_records(folder / "instances.log", records)
    write_json(folder / "scores.json", score(records) | {"steps": [8]})
    write_json(folder / "config.json", {"mode": "offline", "split": "test", "branch": "speech"})
    sized = dataclasses.replace(run.to_train.model, source_vocabulary=40, target_vocabulary=50)
    trained = dataclasses.replace(run.to_train, model=sized)
    write_json(run.experiment.run / "config.json", trained)
    (run.experiment.run / "metrics.jsonl").write_text('{"step": 1}\n')
    (run.experiment.run / "checkpoints").mkdir(exist_ok=True)


def page_of(ablation: Grid, runs: list[Planned]) -> ElementTree.Element:
    """The page, parsed."""
    page = write_summary(ablation, runs, "simuljax ablate question.py")
    assert page == ablation.runs / "summary" / "index.html"
    return ElementTree.fromstring(page.read_text("utf-8").removeprefix("<!DOCTYPE html>\n"))


def rows_of(page: ElementTree.Element) -> list[list[str]]:
    """The cells of all rows of all tables."""
    return [["".join(cell.itertext()) for cell in row] for row in page.iter("tr")]


def verdicts_in(page: ElementTree.Element) -> dict[str, str]:
    """By claim."""
    return {row[0]: row[-1] for row in rows_of(page) if "is better" in row[0]}


def test_claims_are_judged(grid, tmp_path):
    page = page_of(*grid)
    assert verdicts_in(page) == {
        "better is better": "supported",
        "worse is better": "contradicted",
        "the same is better": "inconclusive",
    }
    assert "+1.50" in rows_of(page)[1]
    said = "".join(page.itertext())
    assert "Of 3 claims: 1 supported, 1 contradicted, 1 inconclusive." in said
    assert str(tmp_path) not in said, "directories of this machine say nothing to others"
    heads = [head for row in rows_of(page) for head in row]
    assert "accumulate" in heads, "the field in which the variants differ"


def test_published_results_can_be_scored_and_give_the_same_page(grid, tmp_path):
    ablation, runs = grid
    to = tmp_path / "results" / "question"
    to.mkdir(parents=True)
    (to / "index.html").write_text("an older one")  # is replaced
    assert publish(ablation, runs, tmp_path / "results", "simuljax ablate question.py") == to
    names = {path.name for path in to.rglob("*")}
    assert names == {"scores.jsonl", "runs.jsonl", "logs.tar.xz", "index.html"}
    results = read_results(to)
    assert results.grid is not None and results.grid.rule == ablation.rule
    assert {run.run for run in results.runs} == {run.name for run in runs}
    assert all(run.config["run"] and run.curves["train"]["step"] == [1] for run in results.runs)
    (size,) = {run.parameters for run in results.runs}
    assert size and f"{size / 1e6:.1f} M" in (to / "index.html").read_text("utf-8")
    assert {(each.variant, each.seed) for each in results.evaluations} == {
        (run.variant, run.seed) for run in runs
    }
    for each in results.evaluations:
        log = read_records(f"{to}:{each.run}/{each.evaluation}")
        assert score(log)["BLEU"] == each.scores["BLEU"]
        assert each.steps == [8] and len(each.config_hash) == 12
    own, published = page_of(ablation, runs), (to / "index.html").read_text("utf-8")
    published = ElementTree.fromstring(published.removeprefix("<!DOCTYPE html>\n"))
    without = [row for row in rows_of(own) if "all" not in row[2:3]]  # "Not run" is of this place
    assert [row for row in rows_of(published) if row not in without] == []
    main(["report", str(to), "--out", str(tmp_path / "again")])
    again = (tmp_path / "again" / "index.html").read_text("utf-8")
    assert again == (to / "index.html").read_text("utf-8")
    assert (tmp_path / "again" / "claims.pdf").exists()


def test_seeds_that_another_machine_published_stay(grid, tmp_path, capsys):
    ablation, runs = grid
    for seeds in ((2, 3), (0, 2)):
        for number, run in enumerate(runs):
            shutil.rmtree(run.experiment.run, ignore_errors=True)
            if run.seed in seeds:
                pretend(run, number)
        to = publish(ablation, runs, tmp_path / "results", "simuljax ablate question.py")
    results = read_results(to)
    found = [(each.variant, each.seed) for each in results.evaluations]
    assert found == [(variant, seed) for variant in GOOD for seed in (0, 2, 3)]
    assert set(read_archive(to / ARCHIVE)) == {each.log for each in results.evaluations}
    assert len({run.run for run in results.runs}) == len(results.runs) == 9
    declared = [run for run in runs if run.seed != 3]
    fewer = dataclasses.replace(ablation, seeds=(0, 1, 2))
    publish(fewer, declared, tmp_path / "results", "simuljax ablate question.py")
    assert {each.seed for each in read_results(to).evaluations} == {0, 2}
    assert "better-seed3" in capsys.readouterr().out
    moved = dataclasses.replace(ablation, table=("plain", "better"), curves={"plain": ("same",)})
    for run in runs:
        shutil.rmtree(run.experiment.run / "eval", ignore_errors=True)  # begun, not evaluated
        if run.variant == "plain":
            pretend(run, 1)
    publish(moved, runs, tmp_path / "results", "simuljax ablate question.py")
    results = read_results(to)
    assert {(e.variant, e.seed) for e in results.evaluations if e.variant != "plain"} == {
        ("better", 0),
        ("better", 2),
    }
    assert len({run.run for run in results.runs}) == len(results.runs)


def test_evaluations_of_a_run_that_another_machine_published_stay(grid, tmp_path):
    ablation, _ = grid
    ways = (*ablation.evaluations, Evaluation(run=Path()))
    more = dataclasses.replace(ablation, evaluations=ways)
    runs = plan(more)
    for run in runs:
        shutil.copytree(run.evaluations[0].folder, run.evaluations[1].folder)
    to = publish(more, runs, tmp_path / "results", "simuljax ablate question.py")
    for run in runs:
        shutil.rmtree(run.evaluations[1].folder)  # not made on the second machine
    before = read_results(to)
    publish(more, runs, tmp_path / "results", "simuljax ablate question.py")
    assert read_results(to) == before and len(before.evaluations) == 2 * len(runs)
    assert set(read_archive(to / ARCHIVE)) == {each.log for each in before.evaluations}


def test_results_at_another_address_are_not_removed_unless_they_are_replaced(grid, tmp_path):
    ablation, runs = grid
    to = publish(ablation, runs, tmp_path / "results", "simuljax ablate question.py")
    (tmp_path / "corpus" / SUMMARY).write_text('{"made": "elsewhere"}')
    elsewhere = plan(ablation)
    for number, run in enumerate(elsewhere):
        if run.seed != 3:
            pretend(run, number)
    before = read_results(to)
    with pytest.raises(
        ConfigError, match=r"remove plain-seed3-\w+ \(1 evaluations\), better-seed3"
    ):
        publish(ablation, elsewhere, tmp_path / "results", "simuljax ablate question.py")
    assert read_results(to) == before
    for number, run in enumerate(elsewhere):
        if run.seed == 3:
            pretend(run, number)
    publish(ablation, elsewhere, tmp_path / "results", "simuljax ablate question.py")
    assert {each.run for each in read_results(to).evaluations} == {run.name for run in elsewhere}


def test_what_was_not_run_is_listed_and_leaves_claims_untested(grid):
    ablation, runs = grid
    for run in runs:
        (run.experiment.run / ENDED).touch()
    assert "Not run" not in "".join(page_of(ablation, runs).itertext())
    for run in [run for run in runs if run.variant == "same"]:
        (run.experiment.run / "eval" / "test-speech-offline" / "scores.json").unlink()
    page = page_of(ablation, runs)
    assert ["same", "0, 1, 2, 3", "all"] in rows_of(page)
    assert verdicts_in(page)["the same is better"] == "not testable here (not evaluated)"
