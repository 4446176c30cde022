"""Variants against a baseline: what is better is found better, what is noise is not."""

import dataclasses
import math
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from simuljax.eval import Record, RecordError, score
from simuljax.report.collect import Evaluated
from simuljax.report.grid_page import judge_claims, tables_of, write_grid_page
from simuljax.report.page import Table
from simuljax.report.results import Claim, GridInfo, PublishedRun, Results
from simuljax.report.variants import (
    Measured,
    Spread,
    Variant,
    at_equal_latency,
    check_same_test,
    compare,
    share_of_text,
)

WORDS = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn"]


def evaluated(right: float, delay: float, seed: int, mode: str = "streamed") -> Evaluated:
    """60 utterances of which each word is `right` with this probability, `delay` ms late."""
    random, records = np.random.default_rng(seed), []
    delays = tuple(min(4000.0, 500.0 * i + delay) for i in range(8))
    given = {"delays": delays, "source": "x.wav", "source_length": 4000.0}
    for index, numbers in enumerate(np.random.default_rng(99).integers(0, 10, (60, 8))):
        reference = [WORDS[n] for n in numbers]
        guess = [w if random.random() < right else "nichts" for w in reference]
        texts = {"prediction": " ".join(guess), "reference": " ".join(reference)}
        records.append(Record(index=index, **texts, **given))
    facts = {"system": "s", "setting": f"{delay:g}", "name": "test", "run": None}
    scores, config = score(records), {"mode": mode}
    return Evaluated(records=tuple(records), scores=scores, config=config, **facts)


def variant(name: str, right: float, delays=(600.0, 1200.0), seeds=(0, 1)) -> Variant:
    """Later is better, and `right` better still."""
    salt = sum(map(ord, name))
    settings = {
        f"at {delay:g}": Measured(
            name=f"at {delay:g}",
            by_seed={s: evaluated(right + delay / 1e4, delay, salt + s) for s in seeds},
        )
        for delay in delays
    }
    return Variant(name=name, evaluations=settings)


@pytest.fixture(scope="module")
def variants() -> list[Variant]:
    return [variant("base", 0.6), variant("same", 0.6), variant("better", 0.75)]


def test_a_spread_is_of_seeds():
    spread = Spread.of([20.0, 22.0])
    assert spread.mean == 21.0
    assert spread.deviation == pytest.approx(math.sqrt(2))
    assert str(spread) == "21.00 ± 1.41"
    assert str(Spread.of([1234.5])) == "1234"
    assert str(Spread.of([math.nan, 1.0])) == "-"
    assert str(Spread.of([3183.0, 320.0, 300.0])) == "300 / 320 / 3183"
    assert str(Spread.of([11.2, 28.5])) == "11.20 / 28.50"
    assert str(Spread.of([32.5, 33.1])) == "32.80 ± 0.42"


def test_what_is_better_is_found_better_and_what_is_not_is_not(variants):
    base, same, better = variants
    assert compare(base, base, "at 600") is None and compare(better, base, "other") is None
    for name in better.evaluations:
        found = compare(better, base, name)
        assert found is not None and found.difference.value > 5 and found.p_value < 0.05
        assert found.n == 60, "an utterance counts once, whatever the seeds"
        noise = compare(same, base, name)
        assert noise is not None and noise.p_value > 0.05
    one = compare(variant("one seed", 0.6, seeds=(1,)), base, "at 600")
    assert one is not None and len(one.by_seed) == 1, "seeds that both have"


def test_curves_are_compared_at_equal_latency(variants):
    base, _, better = variants
    found = at_equal_latency(better, base, "AL")
    assert found is not None
    assert [late for late, _ in found.no_later] == [p.latency_ms for p in base.curve("AL")]
    assert all(gain > 0 for _, gain in found.no_later)
    assert len(found.between) == 5 and all(gain > 0 for _, gain in found.between)
    assert found.seeds == [0, 1]
    late = at_equal_latency(variant("late", 0.9, delays=(3000.0,)), base, "AL")
    assert late is not None and late.between == []
    assert late.no_later == [], "nothing of it is early enough"
    fewer = at_equal_latency(variant("better", 0.75, seeds=(1,)), base, "AL")
    assert fewer is not None and fewer.seeds == [1]
    one = at_equal_latency(better.of_seeds([1]), base.of_seeds([1]), "AL")
    assert fewer == one, "means are of the same seeds"


def tables(variants: list[Variant], baseline: Variant) -> list[Table]:
    """All tables of the page."""
    grid = GridInfo(title="T", command="c", baseline=baseline.name, variants=())
    return tables_of(grid, variants, baseline, (), {})


def test_seeds_are_compared_each_with_its_own():
    early, late = (
        variant("a", 0.5, seeds=(0,)),
        variant("a", 0.5, delays=(800.0, 1400.0), seeds=(1,)),
    )
    both = {**early.evaluations, **late.evaluations}  # no setting has both seeds
    base, better = Variant(name="a", evaluations=both), variant("b", 0.8)
    (table,) = [each for each in tables([base, better], base) if each.title.endswith("by seed")]
    assert [cells[:2] for cells in table.rows] == [("b", "0"), ("b", "1")]
    for seed, (_, _, between) in enumerate(table.rows):
        alone = at_equal_latency(better.of_seeds([seed]), base.of_seeds([seed]), "AL")
        assert alone is not None
        shown = [f"{points:+.1f} at {place:.0f} ms" for place, points in alone.between]
        assert between == "; ".join(shown) and len(shown) == 5
    assert base.of_seeds([0]).evaluations.keys() == early.evaluations.keys()
    one = tables([base.of_seeds([0]), better.of_seeds([0])], base.of_seeds([0]))
    assert not [each for each in one if each.title.endswith("by seed")]


def test_rows_of_other_tests_are_refused(variants):
    base = variants[0]
    check_same_test(variants)
    each = base.evaluations["at 600"].by_seed[0]
    other = dataclasses.replace(each, records=each.records[:-1])
    settings = {"at 600": Measured(name="at 600", by_seed={0: other})}
    with pytest.raises(RecordError, match="other utterances"):
        check_same_test([base, dataclasses.replace(base, name="x", evaluations=settings)])


def page_of(grid: GridInfo, variants: list[Variant], out, runs=()) -> ElementTree.Element:
    """The page, parsed."""
    results = Results(grid=grid, runs=tuple(runs), evaluations=())
    html = write_grid_page(out, results, variants).read_text("utf-8")
    return ElementTree.fromstring(html.removeprefix("<!DOCTYPE html>\n"))


def test_the_page_has_verdicts_fields_and_figures(variants, tmp_path):
    named = [dataclasses.replace(variants[0], name="a <b>"), *variants[1:]]
    claims = (
        Claim(says="better is better", variant="better", over="a <b>", evaluation="at 600"),
        Claim(says="never run", variant="nowhere", over="a <b>", published=1.5),
    )
    names = {"baseline": "a <b>", "variants": ("a <b>", "same", "better")}
    grid = GridInfo(title="T", command="simuljax ablate x.py", claims=claims, **names)
    curve = {"train": {"step": [1, 2], "loss": [3.0, 2.0]}}
    runs = []
    trained = (("a <b>", 0.0, 0), ("better", 0.2, 0), ("better", 0.2, 1), ("better_later", 0.2, 0))
    for name, weight, seed in trained:
        config = {"run": name, "training": {"seed": seed, "objective": {"kd": weight}}}
        spent = {"training": {"seconds": 60.0 * len(runs) + 60.0, "joules": None}}
        known = {"variant": name, "seed": seed, "curves": curve, "config": config, "spent": spent}
        runs.append(PublishedRun(run=f"{name}-seed{seed}-x", **known))
    by_seed = named[2].evaluations["at 600"].by_seed.items()
    places = {
        s: dataclasses.replace(each, run=tmp_path / f"better-seed{s}-x") for s, each in by_seed
    }
    later = {0: dataclasses.replace(places[0], run=tmp_path / "better_later-seed0-x")}
    settings = {"at 600": places, "later/at 600": later}
    measured = {name: Measured(name=name, by_seed=each) for name, each in settings.items()}
    named[2] = dataclasses.replace(named[2], evaluations=measured)
    tree = page_of(grid, named, tmp_path, runs)
    cells = ["".join(cell.itertext()) for cell in tree.iter("td")]
    bleu = str(variants[2].evaluations["at 600"].spread("BLEU"))
    assert {"a <b>", bleu, "0.2", "not testable here (not evaluated)"} <= set(cells)
    assert {"2.50 ± 0.71 min", "4.00 min"} <= {*cells}, "the cost of the runs that were evaluated"
    heads = ["".join(cell.itertext()) for cell in tree.iter("th")]
    assert "kd" in heads and "training.seed" not in heads and "seed" in heads
    said = " ".join("".join(tree.itertext()).split())
    assert "Of 2 claims:" in said and "simuljax ablate x.py" in said
    images = [each.get("src") or "" for each in tree.iter("img")]
    assert len(images) == 3 and all(each.startswith("data:image/png") for each in images)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"claims.pdf", "curves.pdf", "losses.pdf", "index.html"} <= names


def test_a_claim_may_be_about_a_variant_that_continues_another(variants):
    base, _, better = variants
    later = {f"later/{name}": each for name, each in better.evaluations.items()}
    whole = dataclasses.replace(base, evaluations={**base.evaluations, **later})
    claim = Claim(says="later", variant="base_later", over="base", evaluation="at 600")
    grid = GridInfo(title="", command="", baseline="base", variants=("base",), claims=(claim,))
    (judged,) = judge_claims(grid, [whole], whole, {})
    expected = compare(better, base, "at 600")
    assert judged.comparison and expected
    assert judged.comparison.difference == expected.difference and judged.verdict == "supported"


def test_every_test_set_has_a_figure_of_its_own(tmp_path):
    def on(corpus: str | None, delay: float) -> Measured:
        one = evaluated(0.7, delay, 0)
        config = {"mode": "streamed", "split": "test"} | ({"corpus": corpus} if corpus else {})
        return Measured(name=f"{corpus}", by_seed={0: dataclasses.replace(one, config=config)})

    measured = [on("data/rooms", 300), on("data/talks", 900)]
    both = Variant(name="mma", evaluations={each.name: each for each in measured})
    assert [len(both.on(where).curve("AL")) for where in ("rooms, test", "talks, test")] == [1, 1]
    grid = GridInfo(title="T", command="c", baseline="mma", variants=("mma",))
    tree = page_of(grid, [both], tmp_path)
    said = [each.get("alt") or "" for each in tree.iter("img")]
    assert [each.partition(".")[0] for each in said] == [
        "Test set: rooms, test",
        "Test set: talks, test",
    ]
    assert {"curves.pdf", "curves-1.pdf"} <= {path.name for path in tmp_path.iterdir()}


def test_a_figure_has_a_line_for_every_policy_and_the_clock_apart():
    def way(delay: float, **config: str | int) -> Measured:
        one = evaluated(0.7, delay, 0)
        aware = {"AL": delay + 100.0} if config.get("mode") == "live" else {}
        scores = dict(one.scores) | ({"computation_aware": aware} if aware else {})
        one = dataclasses.replace(one, config={"mode": "streamed"} | config, scores=scores)
        return Measured(name=f"{delay:g}{config}", by_seed={0: one})

    given = [way(300, policy="align-att"), way(900, policy="align-att")]
    given += [way(600, policy="wait-k", units="ctc")]
    given += [way(500, policy="align-att", last_frames=4, mode="live")]  # played alone
    several = Variant(name="conformer", evaluations={each.name: each for each in given})
    free, counted = (several.lines("AL", clock=clock) for clock in (False, True))
    assert {name: len(line) for name, line in free.items()} == {
        "conformer, align-att": 2,
        "conformer, wait-k ctc": 1,
    }
    assert [p.latency_ms for p in counted["conformer, align-att"]] == [600.0]
    assert len(several.curve("AL")) == 3
    one = Variant(name="mma", evaluations={"a": way(300), "b": way(600)})
    assert list(one.lines("AL")) == ["mma"]
    played = Variant(name="mma", evaluations={"a": way(300, mode="live")})
    assert len(played.curve("AL")) == 1  # there is nothing else

    whole = way(900, policy="align-att", last_frames=6)
    part = way(500, policy="align-att", last_frames=6, mode="live", first=50)
    other = way(300, policy="align-att", last_frames=2)
    both = Variant(name="conformer", evaluations={each.name: each for each in (other, whole, part)})
    ((point,),) = both.lines("AL", clock=True).values()
    took = 600.0 - part.point("AL").latency_ms
    expected = dataclasses.replace(
        whole.point("AL"), latency_ms=whole.point("AL").latency_ms + took
    )
    assert point == expected
    seeds = {0: evaluated(0.2, 300, 1), 1: whole.by_seed[0]}  # the clock knows seed 1 alone
    seeds = {s: dataclasses.replace(e, config=whole.by_seed[0].config) for s, e in seeds.items()}
    several = Measured(name="whole", by_seed=seeds)
    played = Measured(name="part", by_seed={1: part.by_seed[0]})
    both = Variant(name="conformer", evaluations={"whole": several, "part": played})
    assert both.lines("AL", clock=True) == {"conformer": [expected]}


def test_what_was_given_a_part_of_the_test_is_no_point_of_the_curve():
    whole = variant("part", 0.6, delays=(600.0, 1200.0, 1800.0))
    setting = whole.evaluations["at 1200"]
    fewer = {
        seed: dataclasses.replace(each, records=each.records[:20])
        for seed, each in setting.by_seed.items()
    }
    settings = {**whole.evaluations, setting.name: dataclasses.replace(setting, by_seed=fewer)}
    part = dataclasses.replace(whole, evaluations=settings)
    assert [point.label for point in whole.curve("AL")] == ["600", "1200", "1800"]
    assert [point.label for point in part.curve("AL")] == ["600", "1800"]
    (line,) = part.lines("AL").values()
    assert [point.label for point in line] == ["600", "1800"]


def whole(right: float, branch: str) -> Measured:
    """Both seeds of a branch that has all of the source."""
    config = {"mode": "offline", "branch": branch}
    by_seed = {s: dataclasses.replace(evaluated(right, 600.0, s), config=config) for s in (0, 1)}
    return Measured(name=f"test-{branch}-offline", by_seed=by_seed)


def test_speech_is_held_against_the_best_that_any_row_gives_from_text():
    def evaluated_whole(name: str, **branches: float) -> Variant:
        ways = [whole(right, branch) for branch, right in branches.items()]
        return Variant(name=name, evaluations={way.name: way for way in ways})

    base = evaluated_whole("mma", speech=0.6)
    joint, better = (evaluated_whole(n, speech=0.9, text=t) for n, t in (("kd", 0.8), ("dar", 1.0)))
    assert math.isnan(share_of_text(base, [base])), "nobody asked the text"
    share = share_of_text(base, [base, joint, better])
    assert share == pytest.approx(base.evaluations["test-speech-offline"].spread("BLEU").mean / 100)
    assert share_of_text(base, [base, joint]) > share
    (table,) = [t for t in tables([base, joint, better], base) if t.title == "Speech and text"]
    assert [line[0] for line in table.rows] == ["mma", "kd", "dar"]
    assert table.rows[0][2:] == ("-", f"{share:.0%}")
    assert "Speech and text" not in [t.title for t in tables([base], base)]
    more = {"lambda_0.1/test-speech-offline": whole(1.0, "speech")}  # of a row that continues it
    few = whole(1.0, "speech").by_seed[0]
    few = dataclasses.replace(few, records=few.records[:5])
    more["part"] = Measured(name="part", by_seed={0: few})
    later = dataclasses.replace(base, evaluations={**base.evaluations, **more})
    assert later.whole("speech") == base.whole("speech")


def test_what_the_clock_adds_is_a_table_of_its_own(variants):
    assert "In real time" not in [table.title for table in tables(variants, variants[0])]
    each = evaluated(0.6, 600.0, 0)
    late = {name: each.latency(name) + added for name, added in (("AL", 84.0), ("LAAL", 82.0))}
    scores = {**each.scores, "computation_aware": late}
    live = dataclasses.replace(each, config={"mode": "live"}, scores=scores)
    played = Variant(name="mma", evaluations={"live": Measured(name="live", by_seed={0: live})})
    (table,) = [t for t in tables([played], played) if t.title == "In real time"]
    assert [(line[2], line[-1]) for line in table.rows] == [("AL", "+84"), ("LAAL", "+82")]
    assert int(table.rows[0][4]) - int(table.rows[0][3]) == 84
