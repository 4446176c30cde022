"""Gathering evaluations of runs and logs of other tools, and grouping those to compare."""

import gzip
import json
import math
from pathlib import Path

import pytest

from simuljax.config.fields import ConfigError
from simuljax.eval import RecordError, score
from simuljax.eval.logs import ARCHIVE, as_records, write_archive, write_records
from simuljax.report.collect import AWARE, gather
from simuljax.report.results import PublishedEvaluation, Results, write_results
from simuljax.report.systems import group
from tests.eval.logs import made_up
from tests.report.runs import evaluation, slower, text_entries, without_clock


def test_the_evaluations_of_a_run(tmp_path):
    run = tmp_path / "runs" / "dar"
    evaluation(run, "test-speech-streamed")
    evaluation(run, "fast", threshold=0.2, predecision_ms=320)
    evaluation(run, "whole", mode="offline", checkpoint="averaged")
    fast, streamed, whole = sorted(gather([run]), key=lambda each: each.name)[:3]
    assert (streamed.name, streamed.system, streamed.setting) == ("test-speech-streamed", "dar", "")
    assert (fast.system, fast.setting) == ("dar", "320 ms, p=0.2")
    assert whole.is_offline and whole.system == "dar (averaged checkpoint)"
    assert streamed.scores["AL"] == score(as_records(made_up(0)))["AL"]
    assert streamed.run == run and streamed.unit == "ms" and len(streamed.records) == 20
    assert AWARE not in streamed.scores


def test_the_stored_scores_are_believed(tmp_path):
    folder = evaluation(tmp_path / "run", "a")
    scores = json.loads((folder / "scores.json").read_text())
    (folder / "scores.json").write_text(json.dumps(scores | {"BLEU": 12.5, "YAAL": None}))
    (each,) = gather([tmp_path / "run"])
    assert each.scores["BLEU"] == 12.5
    assert math.isnan(each.latency("YAAL")) and each.point("YAAL") is None
    point = each.point("AL")
    assert point is not None and point.quality == 12.5
    (folder / "scores.json").unlink()
    (each,) = gather([tmp_path / "run"])
    assert each.scores["BLEU"] == pytest.approx(scores["BLEU"])


def test_the_clock_is_scored_where_the_scores_leave_it_out(tmp_path):
    evaluation(tmp_path / "run", "a", made_up(0))
    (each,) = gather([tmp_path / "run"])
    expected = score(made_up(0), computation_aware=True)
    assert each.latency("AL", clock=True) == expected["AL"] > each.latency("AL")
    point = each.point("LAAL", clock=True)
    assert point is not None and point.latency_ms == expected["LAAL"]
    evaluation(tmp_path / "run", "clocked", made_up(0), mode="live", repeats=3)
    (one,) = group(gather([tmp_path / "run"]))
    assert {s: len(each) for s, each in one.systems(offline=False).items()} == {"run": 2}


def test_scores_of_another_log_are_refused(tmp_path):
    folder = evaluation(tmp_path / "run", "a")
    write_records(folder / "instances.log", as_records(made_up(0, 7)))
    stored = (folder / "scores.json").read_text()
    for text, problem in (
        (stored, r"is of 20 utterances, but .* has 7: evaluate again"),
        ("{", r"scores\.json is damaged"),
        ("[]", "must hold an object"),
    ):
        (folder / "scores.json").write_text(text)
        with pytest.raises((ConfigError, RecordError), match=problem):
            gather([tmp_path / "run"])


@pytest.mark.parametrize("where", ["instances.log", "instances.log.gz", "hyp.log"])
def test_logs_of_other_systems(tmp_path, where):
    """Whatever lies beside them is none of ours."""
    path = tmp_path / "theirs" / where
    path.parent.mkdir()
    (path.parent / "config.json").write_text("not json")
    (path.parent / "scores.json").write_text(json.dumps({"BLEU": 99.0}))
    write_records(path, as_records(made_up(0)))
    if where.endswith("gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    named = path if where == "hyp.log" else path.parent
    (each,) = gather([named])
    assert each.system == ("hyp.log" if where == "hyp.log" else "theirs")
    assert each.run is None and each.config == {}
    assert each.scores["BLEU"] == score(made_up(0))["BLEU"]
    assert each.scores[AWARE]["AL"] == score(made_up(0), computation_aware=True)["AL"]


def test_one_evaluation_can_be_named_and_nothing_counts_twice(tmp_path):
    run = tmp_path / "dar"
    first, _ = evaluation(run, "a"), evaluation(run, "b")
    (alone,) = gather([first])
    assert (alone.system, alone.run, alone.name) == ("dar", run, "a")
    assert len(gather([run, first, run])) == 2


def test_splits(tmp_path):
    run, log = tmp_path / "run", tmp_path / "their.log"
    evaluation(run, "a")
    evaluation(run, "b", split="valid")
    write_records(log, as_records(made_up(0)))
    assert [each.name for each in gather([run, log], split="valid")] == ["b", "their.log"]
    with pytest.raises(RecordError, match="no evaluation is of split 'train'; there are test, val"):
        gather([run], split="train")


def test_nothing_to_report(tmp_path):
    (tmp_path / "eval" / "unfinished").mkdir(parents=True)
    for given, problem in (
        ([tmp_path], rf"`simuljax evaluate {tmp_path}` makes one"),
        (["theirs="], "NAME=LOG"),
    ):
        with pytest.raises(RecordError, match=problem):
            gather(given)


def test_every_policy_of_a_run_is_a_system(tmp_path):
    run, careful = tmp_path / "conformer", {"force_finish": True}
    evaluation(run, "own")
    evaluation(run, "waits", policy="wait-k", units="ctc", k=3, **careful)
    evaluation(run, "steps", policy="fixed-steps", first_ms=900, step_ms=200, tokens=2)
    evaluation(run, "attends", policy="ed-att", last_frames=4, alpha=0.25)
    evaluation(run, "patient", policy="/home/my/own_policy.py:Patient", share=0.3)
    evaluation(run, "cascade", policy="align-att", last_frames=6, then="runs/mt", then_k=5)
    assert {(each.system, each.setting) for each in gather([run])} == {
        ("conformer", ""),
        ("conformer (wait-k ctc, force finish)", "k=3"),
        ("conformer (fixed-steps)", "after 900 ms, steps of 200 ms, N=2"),
        ("conformer (ed-att)", "f=4, alpha=0.25"),
        ("conformer (my/own_policy.py:Patient)", "share 0.3"),
        ("conformer (align-att, then mt)", "k=5, f=6"),
    }
    other = tmp_path / "other"
    for layer in (1, 4):
        evaluation(other, f"layer{layer}", policy="alignatt", layer=layer)
        evaluation(other, f"agree{layer}", policy="local-agreement", agree=layer + 2)
    labels = [(each.system, each.setting) for each in gather([other])]
    assert len(set(labels)) == 4 and ("other (alignatt)", "layer4") in labels


def test_runs_that_differ_in_lambda_are_one_system(tmp_path):
    for name in ("dar", "dar_lambda_0.05", "dar_lambda_0.1", "mma"):
        evaluation(tmp_path / name, "e", k=3 if name == "dar" else None)
    (one,) = group(
        gather([tmp_path / n for n in ("dar", "dar_lambda_0.05", "dar_lambda_0.1", "mma")])
    )
    settings = {(each.system, each.setting) for each in one.evaluated}
    assert settings == {("dar", "λ=0, k=3"), ("dar", "λ=0.05"), ("dar", "λ=0.1"), ("mma", "")}
    (alone,) = group(gather([tmp_path / "dar"]))
    assert alone.evaluated[0].setting == "k=3"


def test_only_equal_references_are_compared(tmp_path):
    run, other = tmp_path / "one", tmp_path / "two"
    evaluation(run, "a")
    evaluation(tmp_path / "there" / "one", "a")
    both = gather([run, tmp_path / "there" / "one"])
    assert [each.system for each in both] == [f"{tmp_path.name}/one", "there/one"]
    evaluation(run, "v", without_clock(made_up(1)), split="valid")
    evaluation(run, "text", text_entries(), branch="text")
    evaluation(other, "a", without_clock(slower(made_up(0), 300)))
    groups = {g.name: g for g in group(gather([run, other]))}
    assert set(groups) == {"test", "valid", "test, from text"}
    assert [e.system for e in groups["test"].evaluated] == ["one", "two"]
    assert groups["test, from text"].unit == "words"
    assert groups["test, from text"].evaluated[0].system == "one (text)"


def test_rows_are_by_system_then_latency_and_controls_are_on_no_line(tmp_path):
    run = tmp_path / "b"
    for name, by in (("slow", 600), ("quick", 0), ("middling", 300)):
        evaluation(run, name, without_clock(slower(made_up(0), by)))
    evaluation(run, "offline", without_clock(slower(made_up(0), 9999)), mode="offline")
    evaluation(run, "control", audio="other")
    evaluation(tmp_path / "a", "z", without_clock(slower(made_up(0), 900)))
    (one,) = group(gather([run, tmp_path / "a"]))
    order = [each.name for each in one.evaluated]
    assert order == ["z", "quick", "middling", "slow", "offline", "control"]
    assert {s: [e.name for e in each] for s, each in one.systems(offline=False).items()} == {
        "a": ["z"],
        "b": ["quick", "middling", "slow"],
    }
    assert [*one.systems(offline=True)] == ["b"]


def test_logs_are_named_and_those_of_one_name_are_a_line(tmp_path):
    for k in (1, 3):
        folder = tmp_path / "sweep" / f"k{k}"
        folder.mkdir(parents=True)
        write_records(folder / "instances.log", as_records(slower(made_up(0), 100 * k)))
    write_records(tmp_path / "other.log", as_records(made_up(0)))
    given = [f"theirs={tmp_path}/sweep", f"ours={tmp_path}/other.log"]
    (one,) = group(gather(given))
    assert {s: [e.setting for e in each] for s, each in one.systems(offline=False).items()} == {
        "ours": [""],
        "theirs": ["k1", "k3"],
    }
    apart = [f"theirs={tmp_path}/sweep/k{k}/instances.log" for k in (1, 3)]
    assert [e.setting for e in gather(apart)] == ["k1", "k3"]


LOGGED = {"x/e/instances.log": "\n".join(map(json.dumps, made_up(0))).encode()}
RUN = {"kind": "run", "run": "x", "variant": "a"}
GRID = {"kind": "grid", "title": "", "command": "", "baseline": "a", "variants": ["a"]}


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([[]], "must hold an object"),
        ([{**RUN, "kind": None}], "kind is None"),
        ([{**RUN, "kind": ["run"]}], r"kind is \['run'\]"),
        ([RUN, {**RUN, "config": None}], "config is None"),
        ([RUN, {**RUN, "novel": 1}], "no 'novel'"),
        ([RUN, {**GRID, "claims": [5]}], "damaged"),
        ([RUN, {**GRID, "rule": {"alpha": 2}}], "rule: alpha"),
    ],
)
def test_damaged_or_newer_published_results_are_refused(tmp_path, lines, problem):
    published = PublishedEvaluation(run="x", evaluation="e", scores=score(made_up(0)))
    write_results(tmp_path, Results(grid=None, runs=(), evaluations=(published,)), LOGGED)
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(RecordError, match=rf"runs\.jsonl, line {len(lines)} .*{problem}"):
        gather([tmp_path])


def test_published_results_without_a_log_or_a_score_are_refused(tmp_path):
    scores = score(made_up(0))
    del scores["BLEU"]
    published = PublishedEvaluation(run="x", evaluation="e", scores=scores)
    write_results(tmp_path, Results(grid=None, runs=(), evaluations=(published,)), LOGGED)
    with pytest.raises(RecordError, match=r"x/e/instances\.log have no number for BLEU"):
        gather([tmp_path])
    write_archive(tmp_path / ARCHIVE, {"other": b""})
    with pytest.raises(RecordError, match=r"has no x/e/instances\.log"):
        gather([tmp_path])


def test_a_published_run_is_named_up_to_its_seed(tmp_path):
    runs = ("kd-seed0-1", "kd-seed1-2", "kd_long-seed0-3")
    each = [PublishedEvaluation(run=run, evaluation="e", scores=score(made_up(0))) for run in runs]
    (log,) = LOGGED.values()
    logs = {f"{run}/e/instances.log": log for run in runs}
    write_results(tmp_path, Results(grid=None, runs=(), evaluations=tuple(each)), logs)
    for named, count in (("", 3), (":kd", 2), (":kd-seed1-2/e", 1), (":kd_long", 1)):
        assert len(gather([Path(f"{tmp_path}{named}")])) == count
    with pytest.raises(RecordError, match="'k'"):
        gather([Path(f"{tmp_path}:k")])
