"""From the evaluations of a grid's runs to the answer, its claims, and what others are given."""

import dataclasses
import gzip
import json
from pathlib import Path

import pytest

from data_pipelines.dataset import SUMMARY
from simuljax.ablate.grid import Ablation, Claim, Planned, plan
from simuljax.ablate.publish import publish
from simuljax.ablate.summary import serving_table, write_answer
from simuljax.config.evaluation import Evaluation
from simuljax.config.json import write_json
from simuljax.eval import read_records, score, write_records
from simuljax.report.ablation import Row, Setting
from simuljax.train.member import ENDED
from tests.helpers.experiments import experiment
from tests.report.test_ablation import evaluated

GOOD = {"plain": 0.5, "better": 0.8, "same": 0.5}


@pytest.fixture
def grid(tmp_path) -> tuple[Ablation, list[Planned]]:
    """Three rows, one of them better, as if they had been trained and evaluated."""
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / SUMMARY).write_text("{}")
    runs = tmp_path / "runs" / "question"
    base = experiment(tmp_path / "corpus", runs / "plain")
    rows = {
        name: dataclasses.replace(
            base,
            run=runs / name,
            training=dataclasses.replace(base.training, accumulate=number + 1),
        )
        for number, name in enumerate(GOOD)
    }
    claims = [
        Claim(says="better is better", row="better", over="plain", published=1.5),
        Claim(says="worse is better", row="plain", over="better"),
        Claim(says="the same is better", row="same", over="plain"),
    ]
    ablation = Ablation(
        runs=runs,
        rows=rows,
        table=tuple(GOOD),
        baseline="plain",
        seeds=(0, 1),
        claims=tuple(claims),
        evaluations=(Evaluation(run=Path(), mode="offline"),),
    )
    planned = plan(ablation)
    for number, run in enumerate(planned):
        pretend(run, number)
    return ablation, planned


def pretend(run: Planned, number: int, branch: str = "speech", right: float = 0.0) -> None:
    """The files of a run that was evaluated."""
    folder = run.experiment.run / "eval" / f"test-{branch}-offline"
    folder.mkdir(parents=True)
    records = evaluated(right or GOOD[run.row], 600.0, number, mode="offline").records
    write_records(folder / "instances.log", records)
    write_json(folder / "scores.json", score(records))
    write_json(folder / "config.json", {"mode": "offline", "split": "test", "branch": branch})
    write_json(run.experiment.run / "config.json", run.experiment)
    (run.experiment.run / "metrics.jsonl").write_text('{"step": 1}\n')
    (run.experiment.run / "checkpoints").mkdir(exist_ok=True)


def answer_to(ablation: Ablation, runs: list[Planned]) -> str:
    """The Markdown of it."""
    write_answer(ablation, runs, "simuljax ablate question.py")
    return (ablation.runs / "answer" / "README.md").read_text()


def verdicts_in(told: str) -> dict[str, str]:
    """By claim."""
    return {
        line.split(" | ")[0].removeprefix("| "): line.split(" | ")[-1].removesuffix(" |")
        for line in told.splitlines()
        if "is better" in line
    }


def test_claims_are_judged(grid, tmp_path):
    told = answer_to(*grid)
    assert verdicts_in(told) == {
        "better is better": "held",
        "worse is better": "the opposite",
        "the same is better": "open",
    }
    assert "| +1.50 |" in told
    assert str(tmp_path) not in told, "directories of this machine say nothing to others"


@pytest.mark.parametrize(("from_text", "founded"), [(0.55, True), (1.0, False)])
def test_a_baseline_far_behind_its_text_is_no_base_for_a_verdict(grid, from_text, founded):
    ablation, runs = grid
    read = Evaluation(run=Path(), branch="text", mode="offline")
    ablation = dataclasses.replace(ablation, evaluations=(*ablation.evaluations, read))
    for number, run in enumerate(runs):
        pretend(run, number, "text", from_text)
    verdicts = set(verdicts_in(answer_to(ablation, runs)).values())
    assert verdicts == ({"held", "the opposite", "open"} if founded else {"no base"})


def test_what_is_published_can_be_scored_and_holds_no_weights(grid, tmp_path):
    ablation, runs = grid
    write_answer(ablation, runs, "simuljax ablate question.py")
    publish(ablation, runs, tmp_path / "results", tmp_path / "docs")
    to = publish(ablation, runs, tmp_path / "results", tmp_path / "docs")  # in its place
    assert to == tmp_path / "results" / "question"
    assert not list(to.rglob("checkpoints"))
    for run in runs:
        kept = to / run.name / "eval" / "test-speech-offline"
        log = read_records(kept / "instances.log.gz")
        assert score(log)["BLEU"] == json.loads((kept / "scores.json").read_text())["BLEU"]
        assert json.loads((to / run.name / "config.json").read_text())["run"]
        metrics = (to / run.name / "metrics.jsonl.gz").read_bytes()
        assert gzip.decompress(metrics) == b'{"step": 1}\n'
        assert run.name in (tmp_path / "docs" / "question.md").read_text()


def test_rows_that_were_not_run_leave_claims_open(grid, tmp_path):
    ablation, runs = grid
    some = [run for run in runs if run.row != "same"]
    write_answer(ablation, some, "simuljax ablate question.py")
    told = (tmp_path / "runs" / "question" / "answer" / "README.md").read_text()
    assert "| the same is better | - | - | - | not run |" in told


def test_what_was_not_run_is_listed(grid):
    ablation, runs = grid
    last = runs[-1]
    for run in runs:
        (run.experiment.run / ENDED).touch()
    assert "Not run" not in answer_to(ablation, runs)
    (last.experiment.run / "eval" / "test-speech-offline" / "scores.json").unlink()
    heads = "### Not run\n\n| row | seeds | evaluations |\n| --- | --- | --- |\n"
    assert f"{heads}| {last.row} | {last.seed} | all |" in answer_to(ablation, runs)


def test_what_was_evaluated_in_part_is_a_mean_of_fewer_seeds(grid):
    ablation, runs = grid
    last = runs[-1]
    read = Evaluation(run=Path(), branch="text", mode="offline")
    ablation = dataclasses.replace(ablation, evaluations=(*ablation.evaluations, read))
    for number, run in enumerate(runs):
        pretend(run, number, "text")
        (run.experiment.run / ENDED).touch()
    (last.experiment.run / "eval" / "test-text-offline" / "scores.json").unlink()
    told = answer_to(ablation, runs)
    assert f"| {last.row} | {last.seed} | test-text-offline |" in told
    assert f"| {last.row} | test-speech-offline | 2 | " in told
    assert f"| {last.row} | test-text-offline | 1 | " in told


def test_a_curve_of_one_training_serves_many_latencies():
    settings = {
        name: Setting(name=name, by_seed={0: evaluated(0.5, 600.0, 0)})
        for name in ("a", "b", "c", "lambda_0.1/a")
    }
    (table,) = serving_table([Row(name="offline", settings=settings)])
    assert table.rows == (("offline", "4", "2", "2.0"),)
    assert serving_table([Row(name="one", settings={"a": settings["a"]})]) == []
