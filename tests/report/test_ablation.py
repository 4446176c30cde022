"""Rows against a baseline: what is better is found better, what is noise is not."""

import dataclasses
import math
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from simuljax.eval import Record, RecordError, score
from simuljax.report.ablation import (
    Row,
    Setting,
    Spread,
    at_equal_latency,
    compare,
    same_test,
    share_of_text,
)
from simuljax.report.ablation_page import markdown, page, tables
from simuljax.report.collect import Evaluated

WORDS = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn"]


def evaluated(right: float, delay: float, seed: int, mode: str = "streamed") -> Evaluated:
    """60 utterances of which each word is `right` with this probability, `delay` ms late."""
    random, records = np.random.default_rng(seed), []
    said = np.random.default_rng(99).integers(0, 10, (60, 8))
    for index, numbers in enumerate(said):
        reference = [WORDS[n] for n in numbers]
        guess = [w if random.random() < right else "nichts" for w in reference]
        delays = tuple(min(4000.0, 500.0 * i + delay) for i in range(8))
        records.append(
            Record(
                index=index,
                prediction=" ".join(guess),
                delays=delays,
                reference=" ".join(reference),
                source="x.wav",
                source_length=4000.0,
            )
        )
    return Evaluated(
        system="s",
        setting=f"{delay:g}",
        name="test",
        records=tuple(records),
        scores=score(records),
        told={"mode": mode},
        run=None,
        pictures=(),
    )


def row(name: str, right: float, delays=(600.0, 1200.0), seeds=(0, 1)) -> Row:
    """Later is better, and `right` better still."""
    salt = sum(map(ord, name))
    settings = {
        f"at {delay:g}": Setting(
            name=f"at {delay:g}",
            by_seed={s: evaluated(right + delay / 1e4, delay, salt + s) for s in seeds},
        )
        for delay in delays
    }
    return Row(name=name, settings=settings, minutes=Spread.of([3.0, 5.0]))


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return [row("base", 0.6), row("same", 0.6), row("better", 0.75)]


def test_a_spread_is_of_seeds():
    spread = Spread.of([20.0, 22.0])
    assert (spread.mean, spread.seeds) == (21.0, 2)
    assert spread.deviation == pytest.approx(math.sqrt(2))
    assert str(spread) == "21.00 ± 1.41"
    assert str(Spread.of([1234.5])) == "1234"
    assert str(Spread.of([math.nan, 1.0])) == "-"


def test_what_is_better_is_found_better_and_what_is_not_is_not(rows):
    base, same, better = rows
    assert compare(base, base) == []
    for each in compare(better, base):
        assert each.bootstrap.difference.value > 5
        assert each.bootstrap.p_value < 0.01 and each.t_test.p_value < 0.01
        assert each.bootstrap.n == 60, "an utterance counts once, whatever the seeds"
    for each in compare(same, base):
        assert each.bootstrap.p_value > 0.05 or abs(each.bootstrap.difference.value) < 3


def test_only_seeds_that_both_have_are_compared(rows):
    alone = row("one seed", 0.6, seeds=(1,))
    assert [each.bootstrap.n for each in compare(alone, rows[0])] == [60, 60]


def test_curves_are_compared_at_equal_latency(rows):
    base, _, better = rows
    found = at_equal_latency(better, base, "AL")
    assert found is not None
    assert len(found.no_later) == 2
    for old, new in found.no_later:
        assert new is not None and new.latency_ms <= old.latency_ms + 1e-9
        assert new.quality > old.quality
    assert len(found.between) == 5 and all(gain > 0 for _, gain in found.between)
    assert found.area > 1.05
    late = at_equal_latency(row("late", 0.9, delays=(3000.0,)), base, "AL")
    assert late is not None and late.between == ()
    assert [new for _, new in late.no_later] == [None, None], "nothing of it is early enough"


def test_seeds_are_compared_each_with_its_own():
    early, late = row("a", 0.5, seeds=(0,)), row("a", 0.5, delays=(800.0, 1400.0), seeds=(1,))
    both = {**early.settings, **late.settings}  # no setting has both seeds
    base, better = Row(name="a", settings=both), row("b", 0.8)
    (table,) = [each for each in tables([base, better], base) if each.title.endswith("by seed")]
    assert [cells[:2] for cells in table.rows] == [("b", "0"), ("b", "1")]
    for seed, (_, _, between) in enumerate(table.rows):
        alone = at_equal_latency(better.of_seed(seed), base.of_seed(seed), "AL")
        assert alone is not None
        told = [f"{points:+.1f} at {place:.0f} ms" for place, points in alone.between]
        assert between == "; ".join(told) and len(told) == 5
    assert base.of_seed(0).settings.keys() == early.settings.keys()
    one = tables([base.of_seed(0), better.of_seed(0)], base.of_seed(0))
    assert not [each for each in one if each.title.endswith("by seed")]


def test_rows_of_other_tests_are_refused(rows):
    base = rows[0]
    same_test(rows)
    each = base.settings["at 600"].by_seed[0]
    other = dataclasses.replace(each, records=each.records[:-1])
    settings = {"at 600": Setting(name="at 600", by_seed={0: other})}
    with pytest.raises(RecordError, match="other utterances"):
        same_test([base, dataclasses.replace(base, name="x", settings=settings)])


def test_the_page_and_the_table_say_the_same(rows):
    renamed = [dataclasses.replace(rows[0], name="a <b> | c"), *rows[1:]]
    made = tables(renamed, renamed[0])
    text, html = (f("T", made, "simuljax ablate x.py", None) for f in (markdown, page))
    tree = ElementTree.fromstring(html.removeprefix("<!DOCTYPE html>\n"))
    cells = {"".join(cell.itertext()) for cell in tree.iter("td")}
    assert "a <b> | c" in cells
    assert "a <b> \\| c" in text
    bleu = str(rows[2].settings["at 600"].spread("BLEU"))
    assert bleu in cells and bleu in text
    assert "4.00 ± 1.41 min" in text


def test_a_figure_has_a_line_for_every_policy_and_the_clock_apart():
    def way(delay: float, **told: str | int) -> Setting:
        one = evaluated(0.7, delay, 0)
        aware = {"AL": delay + 100.0} if told.get("mode") == "live" else {}
        scores = dict(one.scores) | ({"computation_aware": aware} if aware else {})
        one = dataclasses.replace(one, told={"mode": "streamed"} | told, scores=scores)
        return Setting(name=f"{delay:g}{told}", by_seed={0: one})

    given = [way(300, policy="align-att"), way(900, policy="align-att")]
    given += [way(600, policy="wait-k", units="ctc")]
    given += [way(500, policy="align-att", last_frames=4, mode="live")]  # played alone
    several = Row(name="conformer", settings={each.name: each for each in given})
    free, counted = (several.lines("AL", computation=c) for c in ("free", "counted"))
    assert {name: len(line) for name, line in free.items()} == {
        "conformer, align-att": 2,
        "conformer, wait-k ctc": 1,
    }
    assert [p.latency_ms for p in counted["conformer, align-att"]] == [600.0]
    assert len(several.curve("AL")) == 3
    one = Row(name="mma", settings={"a": way(300), "b": way(600)})
    assert list(one.lines("AL")) == ["mma"]
    played = Row(name="mma", settings={"a": way(300, mode="live")})
    assert len(played.curve("AL")) == 1  # there is nothing else

    whole = way(900, policy="align-att", last_frames=6)
    part = way(500, policy="align-att", last_frames=6, mode="live", first=50)
    other = way(300, policy="align-att", last_frames=2)
    both = Row(name="conformer", settings={each.name: each for each in (other, whole, part)})
    ((point,),) = both.lines("AL", computation="counted").values()
    took = 600.0 - part.point("AL").latency_ms
    expected = dataclasses.replace(
        whole.point("AL"), latency_ms=whole.point("AL").latency_ms + took
    )
    assert point == expected
    seeds = {0: evaluated(0.2, 300, 1), 1: whole.by_seed[0]}  # the clock knows seed 1 alone
    seeds = {s: dataclasses.replace(e, told=whole.by_seed[0].told) for s, e in seeds.items()}
    several = Setting(name="whole", by_seed=seeds)
    played = Setting(name="part", by_seed={1: part.by_seed[0]})
    both = Row(name="conformer", settings={"whole": several, "part": played})
    assert both.lines("AL", computation="counted") == {"conformer": [expected]}


def test_what_was_given_a_part_of_the_test_is_no_point_of_the_curve():
    whole = row("part", 0.6, delays=(600.0, 1200.0, 1800.0))
    setting = whole.settings["at 1200"]
    fewer = {
        seed: dataclasses.replace(each, records=each.records[:20])
        for seed, each in setting.by_seed.items()
    }
    settings = {**whole.settings, setting.name: dataclasses.replace(setting, by_seed=fewer)}
    part = dataclasses.replace(whole, settings=settings)
    assert [point.label for point in whole.curve("AL")] == ["600", "1200", "1800"]
    assert [point.label for point in part.curve("AL")] == ["600", "1800"]
    (line,) = part.lines("AL").values()
    assert [point.label for point in line] == ["600", "1800"]


def whole(right: float, branch: str) -> Setting:
    """Both seeds of a branch that has all of the source."""
    given = {seed: evaluated(right, 600.0, seed, mode="offline") for seed in (0, 1)}
    told = {"mode": "offline", "branch": branch}
    by_seed = {seed: dataclasses.replace(each, told=told) for seed, each in given.items()}
    return Setting(name=f"test-{branch}-offline", by_seed=by_seed)


def test_speech_is_held_against_the_best_that_any_row_gives_from_text():
    def heard(name: str, speech: float, text: float | None) -> Row:
        ways = [whole(speech, "speech"), *([whole(text, "text")] if text else [])]
        return Row(name=name, settings={way.name: way for way in ways})

    base, joint, better = heard("mma", 0.6, None), heard("kd", 0.9, 0.8), heard("dar", 0.9, 1.0)
    assert math.isnan(share_of_text(base, [base])), "nobody asked the text"
    share = share_of_text(base, [base, joint, better])
    assert share == pytest.approx(base.settings["test-speech-offline"].spread("BLEU").mean / 100)
    assert share_of_text(base, [base, joint]) > share
    (table,) = [t for t in tables([base, joint, better], base) if t.title == "Speech and text"]
    assert [line[0] for line in table.rows] == ["mma", "kd", "dar"]
    assert table.rows[0][2:] == ("-", f"{share:.0%}")
    assert "Speech and text" not in [t.title for t in tables([base], base)]
    more = {"lambda_0.1/test-speech-offline": whole(1.0, "speech")}  # of a row that continues it
    few = whole(1.0, "speech").by_seed[0]
    few = dataclasses.replace(few, records=few.records[:5])
    more["part"] = Setting(name="part", by_seed={0: few})
    later = dataclasses.replace(base, settings={**base.settings, **more})
    assert later.whole("speech") == base.whole("speech")


def test_what_the_clock_adds_is_a_table_of_its_own(rows):
    assert "With the clock running" not in [table.title for table in tables(rows, rows[0])]
    each = evaluated(0.6, 600.0, 0)
    late = {name: each.latency(name) + added for name, added in (("AL", 84.0), ("LAAL", 82.0))}
    scores = {**each.scores, "computation_aware": late}
    live = dataclasses.replace(each, told={"mode": "live"}, scores=scores)
    played = Row(name="mma", settings={"live": Setting(name="live", by_seed={0: live})})
    (table,) = [t for t in tables([played], played) if t.title == "With the clock running"]
    assert [(line[2], line[-1]) for line in table.rows] == [("AL", "+84"), ("LAAL", "+82")]
    assert int(table.rows[0][4]) - int(table.rows[0][3]) == 84
