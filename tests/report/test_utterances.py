"""The utterances that a report shows, and the tests between systems."""

import math

import pytest

from simuljax.eval import Record
from simuljax.report.collect import gather, group
from simuljax.report.run_page import Utterance, choose, marked, utterances_of
from simuljax.report.variants import compare_systems, comparison_table, representative, verdict_of
from tests.eval.logs import made_up
from tests.report.runs import evaluation, slower, text_entries, without_clock, worse


def utterance(index, chrf, late, length=1000.0):
    record = Record(index=index, prediction="x", delays=(late,), source_length=length)
    known = not math.isnan(late)
    return Utterance(record=record, chrf=chrf, latencies={"AL": late} if known else {})


def test_best_worst_latest_and_middle():
    many = {i: utterance(i, chrf=10.0 * i, late=500.0) for i in range(9)}
    many[5] = utterance(5, chrf=50.0, late=2000.0)
    chosen = choose(many, 4, "AL")
    assert chosen == {8: "best", 0: "worst", 5: "latest", 4: "middle"}
    assert len(choose(many, 100, "AL")) == 9
    assert [*choose(many, 1, "AL").values()] == ["middle"]
    assert choose(many, 0, "AL") == {}
    equal = {i: utterance(i, chrf=100.0, late=500.0, length=100.0 * i) for i in range(1, 9)}
    chosen = choose(equal, 8, "AL")
    assert [*chosen][:2] == [8, 7] and len(chosen) == 8, "the longest, none twice"
    bare = {i: utterance(i, chrf=math.nan, late=math.nan if i else 700.0) for i in range(5)}
    reasons = choose(bare, 4, "AL")
    assert reasons[0] == "latest" and set(reasons.values()) == {"latest", "middle"}
    assert len(reasons) == 4


def test_an_utterance_has_scores_of_its_own(tmp_path):
    entries = without_clock(made_up(0))
    right = str(entries[3]["reference"])
    entries[3] |= {"prediction": right, "delays": [100.0] * len(right.split())}
    entries[4] |= {"prediction": "", "delays": []}
    evaluation(tmp_path / "run", "e", entries)
    (each,) = gather([tmp_path / "run"])
    found = utterances_of(each)
    assert found[3].chrf == pytest.approx(100) and found[3].latencies["AL"] < 100
    assert found[4].chrf == 0 and found[4].latencies == {}
    evaluation(tmp_path / "run", "worse", worse(entries))
    assert representative(gather([tmp_path / "run"])).name == "e", "the best setting"
    mean = sum(u.latencies["AL"] for u in found.values() if u.latencies) / 19
    assert mean == pytest.approx(each.scores["AL"])


def two(tmp_path, first, second, **config):
    evaluation(tmp_path / "one", "e", first, **config)
    evaluation(tmp_path / "two", "e", second, **config)
    (comparable,) = group(gather([tmp_path / "one", tmp_path / "two"]))
    return comparable


def test_two_systems_are_tested_in_the_regimes_that_both_have(tmp_path):
    good = without_clock(made_up(0, 40))
    quality, latency = compare_systems(two(tmp_path, good, worse(good)), "AL")
    assert (quality.first.system, quality.second.system) == ("one", "two")
    assert quality.where == latency.where == "low latency"
    assert quality.comparison.difference.high < 0 and quality.comparison.p_value < 0.05
    assert latency.comparison.difference.value == 0 and latency.comparison.p_value == 1
    assert latency.comparison.metric == "AL"
    assert quality.comparison.first == pytest.approx(quality.first.scores["BLEU"])


def test_regimes_and_offline_are_apart(tmp_path):
    quick = without_clock(made_up(0))
    late = without_clock(slower(made_up(0), 900))
    comparable = two(tmp_path, quick, late)
    assert compare_systems(comparable, "AL") == []
    evaluation(tmp_path / "one", "offline", late, mode="offline")
    evaluation(tmp_path / "two", "offline", late, mode="offline")
    (comparable,) = group(gather([tmp_path / "one", tmp_path / "two"]))
    (tested,) = compare_systems(comparable, "AL")
    assert (tested.where, tested.comparison.metric) == ("offline", "BLEU")
    text = two(tmp_path / "text", text_entries(), text_entries(), branch="text")
    assert {each.where for each in compare_systems(text, "AL")} == {"streamed"}


@pytest.mark.parametrize(("systems", "pairs"), [(3, 3), (5, 4)])
def test_any_number_of_systems_with_a_correction(tmp_path, systems, pairs):
    good = without_clock(made_up(0, 40))
    for number in range(systems):
        entries = worse(good, number + 1) if number else good
        evaluation(tmp_path / f"s{number}", "e", entries)
    (comparable,) = group(gather([tmp_path / f"s{number}" for number in range(systems)]))
    found = [t for t in compare_systems(comparable, "AL") if t.comparison.metric == "BLEU"]
    assert len(found) == pairs
    assert all(t.comparison.adjusted >= t.comparison.p_value for t in found)
    assert len(comparison_table(found).rows) == pairs
    sentences = verdict_of(comparable, found, "AL")
    assert any("s0 has higher BLEU than" in each for each in sentences)


def test_differences_to_the_reference_are_marked():
    text, reference = "das Haus ist gross", "das Haus war sehr gross"
    assert marked(text, reference) == [("das Haus", False), ("ist", True), ("gross", False)]
    assert marked(reference, text) == [("das Haus", False), ("war sehr", True), ("gross", False)]
    assert marked("", reference) == [] and marked("a b", "a b") == [("a b", False)]
