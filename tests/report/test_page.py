"""`simuljax report`: one well-formed file with the scores, its figures, and how it is called."""

import base64
import io
import json
import math
import os
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import soundfile

from simuljax.cli.main import main
from simuljax.cli.report import changed_fields
from simuljax.config.experiment import DataConfig, Experiment
from simuljax.config.fields import write_json
from simuljax.config.training import Objective, Training
from simuljax.eval import Record
from simuljax.eval.logs import as_records, write_records
from simuljax.losses import Term
from simuljax.models import presets
from simuljax.report import figures as pictures
from simuljax.report.collect import gather
from simuljax.report.run_page import Knowledge, ReportOptions, distinct_settings, write_report
from simuljax.report.systems import (
    compare_systems,
    comparison_table,
    group,
    representative,
    verdict_of,
)
from simuljax.report.utterances import Utterance, UtteranceAudio, choose, marked, utterances_of
from tests.eval.logs import made_up
from tests.report.runs import attribute, evaluation, slower, text_entries, without_clock, worse

NASTY = '<script>alert("x")</script> & </svg>]]> \x07'
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)


def page_of(*runs, utterances=12, out=None, **known):
    options = ReportOptions(runs=tuple(map(str, runs)), utterances=utterances, out=out)
    return write_report(options, Knowledge(**known)).read_text("utf-8")


def parsed(page):
    assert page.startswith("<!DOCTYPE html>\n")
    return ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))


def said(page):
    return " ".join("".join(parsed(page).itertext()).split())


def rows(page, place=0):
    """The cells of a table, the head first."""
    table = list(parsed(page).iter("table"))[place]
    return [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two runs: one quick and good, with a clock, swept; one slower and worse."""
    root = tmp_path_factory.mktemp("runs")
    evaluation(root / "good", "quick", made_up(0, 30))
    evaluation(root / "good", "slow", slower(made_up(0, 30), 300), predecision_ms=640)
    evaluation(root / "good", "wrong", worse(made_up(0, 30), 1), audio="other")
    evaluation(root / "bad", "e", without_clock(worse(slower(made_up(0, 30), 100))))
    return root / "good", root / "bad"


@pytest.fixture(scope="module")
def page(two, tmp_path_factory):
    return page_of(*two, utterances=8, out=tmp_path_factory.mktemp("page"))


def test_it_is_one_file_that_runs_nothing(page):
    tree = parsed(page)
    kinds = {element.tag for element in tree.iter()}
    assert not kinds & {"script", "link", "iframe", "object", "form"}
    addresses = [v for e in tree.iter() for k, v in e.attrib.items() if k in ("src", "href")]
    assert all(address.startswith("data:") for address in addresses)
    assert not re.search(r"https?://|url\(|@import|\bon\w+=", page)


def test_the_table_has_every_evaluation(page, two):
    head, *body = rows(page)
    assert head[:5] == ["system", "setting", "evaluation", "BLEU", "AL"]
    assert [row[:3] for row in body] == [
        ["bad", "", "e"],
        ["good", "", "quick"],
        ["good", "640 ms", "slow"],
        ["good (other audio)", "", "wrong"],
    ]
    expected = {e.name: e for e in gather(two)}
    for row in body:
        scores = expected[row[2]].scores
        cells = dict(zip(head, row, strict=True))
        assert cells["BLEU"] == f"{scores['BLEU']:.2f}"
        assert cells["AP"] == f"{scores['AP']:.3f}"
        for name in ("AL", "LAAL", "DAL", "ATD", "YAAL"):
            assert cells[name] == f"{scores[name]:.0f}"
        aware = scores.get("computation_aware")
        assert cells["LAAL_CA"] == (f"{aware['LAAL']:.0f}" if aware else "–")
        assert (cells["n"], cells["skipped"]) == ("30", "0")
    text = said(page)
    assert "profile simuleval-1.1; BLEU nrefs:1|case:mixed|eff:no|tok:13a" in text
    assert "Grey: a control" in text


def test_a_control_is_grey_whatever_its_policy(tmp_path):
    for name, settings in (("a", {}), ("b", {"policy": "alignatt", "last_frames": 4})):
        evaluation(tmp_path / "run", name, **settings)
        evaluation(tmp_path / "run", f"other-{name}", audio="other", **settings)
    controls = [row for row in rows(page_of(tmp_path / "run")) if "other audio" in row[0]]
    assert len(controls) == 2
    assert page_of(tmp_path / "run").count('<tr class="control">') == 2


def test_ways_of_scoring_and_text_sources_are_told_apart(tmp_path):
    folder = evaluation(tmp_path / "run", "a")
    text = (folder / "scores.json").read_text()
    (folder / "scores.json").write_text(text.replace("simuleval-1.1", "simuleval-1.0"))
    evaluation(tmp_path / "run", "b")
    page = page_of(tmp_path / "run", utterances=0)
    assert {row[-1] for row in rows(page)} == {"scored", "(1)", "(2)"}
    assert "(1) profile simuleval-1" in said(page) and "(2) profile simuleval-1" in said(page)
    evaluation(tmp_path / "text", "e", text_entries(), branch="text")
    page = said(page_of(tmp_path / "text"))
    assert "Latencies are in words" in page and re.search(r"AL \d\.\d\d words", page)


def test_two_systems_are_tested(page):
    head, *body = rows(page, 1)
    cells = [dict(zip(head, row, strict=True)) for row in body]
    assert [(c["where"], c["metric"]) for c in cells] == [
        ("low latency", "BLEU"),
        ("low latency", "AL"),
    ]
    assert (cells[0]["system"], cells[0]["less"]) == ("good", "bad")
    assert float(cells[0]["difference"]) > 0 and float(cells[0]["p (Holm)"]) < 0.05
    low, high = map(float, cells[0]["95 % interval"].split(" to "))
    assert 0 < low < float(cells[0]["difference"]) < high
    assert "good has higher BLEU than bad" in said(page)


def test_systems_without_a_common_regime_or_test_set_are_not_tested(tmp_path):
    evaluation(tmp_path / "one", "e")
    evaluation(tmp_path / "late", "e", without_clock(slower(made_up(0), 950)))
    evaluation(tmp_path / "two", "e", without_clock(made_up(7)))
    text = said(page_of(tmp_path / "one", tmp_path / "late"))
    assert "Tests between systems" not in text
    assert "one reaches" in text and "late reaches" in text
    page = page_of(tmp_path / "one", tmp_path / "two")
    assert len(list(parsed(page).iter("section"))) == 2
    assert "references or utterances differ" in said(page)
    assert "Tests between systems" not in said(page)


def test_utterances_are_drawn_for_every_system(page):
    articles = list(parsed(page).iter("article"))
    assert len(articles) == 8
    heads = ["".join(next(article.iter("h4")).itertext()) for article in articles]
    reasons = [head.split(", ")[1] for head in heads]
    assert reasons == ["best"] * 2 + ["worst"] * 2 + ["latest"] * 2 + ["middle"] * 2
    records = {entry["index"]: entry for entry in made_up(0, 30)}
    for head, article in zip(heads, articles, strict=True):
        assert len(list(article.iter("svg"))) == 2
        number = int(head.split()[1].strip(","))
        text = "".join(article.itertext())
        assert f"Reference {records[number]['reference']}" in " ".join(text.split())
        assert re.search(r"AL -?\d+ ms · .*chrF \d", text)
    assert "of highest and of lowest chrF" in said(page)
    assert "Orange lines" in said(page)


def test_nothing_of_a_log_is_markup(tmp_path):
    entries = without_clock(made_up(0))
    for entry in entries:
        words = NASTY.split()
        entry |= {"prediction": " ".join(words), "delays": [100.0] * len(words)}
        entry |= {"reference": NASTY, "source": NASTY}
    evaluation(tmp_path / "<b>&run", '<i>"e', entries)
    page = page_of(tmp_path / "<b>&run", utterances=2)
    assert "<script" not in page and "<b>&run" not in page
    assert '<script>alert("x")</script> & </svg>]]>' in said(page)
    assert "<b>&run" in said(page)


def test_the_speech_is_drawn_and_played(two, tmp_path):
    asked = []

    def audio_of(evaluated, index):
        asked.append((evaluated.system, index))
        sound = np.sin(np.arange(16_000)) / 2
        return (
            UtteranceAudio(samples=sound, transcript="two <b> words")
            if asked[-1][0] == "good"
            else None
        )

    page = page_of(*two, utterances=4, out=tmp_path, audio_of=audio_of)
    waves = [e for e in parsed(page).iter("polygon") if e.get("class") == "wave"]
    assert len(waves) == 8 and len(asked) == 8
    assert {system for system, _ in asked} == {"good", "bad"}
    players = [attribute(each, "src") for each in parsed(page).iter("audio")]
    assert len(players) == 4 and "Source two <b> words" in said(page)
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(players[0].split(",")[1])))
    assert rate == 16_000 and np.abs(samples - np.sin(np.arange(16_000)) / 2).max() < 1e-3
    at = [float(attribute(each, "data-at")) for each in parsed(page).iter("li")]
    assert at and max(at) < 10, "seconds, for the script that follows the player"


def test_only_plain_pngs_of_a_run_are_embedded(tmp_path):
    folder = evaluation(tmp_path / "run", "e")
    (tmp_path / "secret").write_bytes(PIXEL)
    (folder / "link.png").symlink_to(tmp_path / "secret")
    (folder / "text.png").write_text("not a picture")
    os.mkfifo(folder / "pipe.png")
    (folder / "alignment <3>.png").write_bytes(PIXEL)
    _, image = parsed(page_of(tmp_path / "run")).iter("img")
    assert base64.b64decode(attribute(image, "src").split(",")[1]) == PIXEL
    assert image.get("alt") == "alignment <3>"


def test_a_system_without_a_word_or_a_reference(tmp_path):
    silent = [entry | {"prediction": "", "delays": [], "elapsed": []} for entry in made_up(0)]
    evaluation(tmp_path / "silent", "e", silent)
    assert "Nothing was written." in said(page_of(tmp_path / "silent"))
    bare = [entry | {"reference": None} for entry in without_clock(made_up(0))]
    evaluation(tmp_path / "bare", "e", bare)
    page = page_of(tmp_path / "bare")
    assert rows(page)[1][3] == "–" and "both a latency and a quality" in page
    left = [path.name for path in (tmp_path / "bare" / "report").iterdir()]
    assert left == ["index.html"], "no point, no figure"


def test_every_test_set_has_its_figure(tmp_path, monkeypatch):
    run, log, drawn = tmp_path / "run", tmp_path / "theirs.log", {}
    for name, by in (("a", 0), ("b", 500)):
        evaluation(run, name, slower(made_up(0), by), predecision_ms=by or None)
    evaluation(run, "offline", without_clock(made_up(0)), mode="offline")
    evaluation(run, "control", audio="other")
    evaluation(run, "t", text_entries(), branch="text")
    write_records(log, as_records(made_up(0)))
    save = pictures.save_figure
    monkeypatch.setattr(
        pictures,
        "save_figure",
        lambda figure, p, **keys: save(figure, drawn.setdefault(p.name, figure) and p, **keys),
    )
    page = write_report(ReportOptions(runs=(str(log), str(run)), out=tmp_path / "new" / "out"))
    figures = [f"latency-quality-{i}.{kind}" for i in (1, 2) for kind in ("pdf", "png")]
    assert sorted(path.name for path in page.parent.iterdir()) == ["index.html", *figures]
    first = (page.parent / "latency-quality-1.png").read_bytes()
    assert base64.b64encode(first).decode() in page.read_text("utf-8")
    speech, text = (drawn[f"latency-quality-{i}.png"].axes[0] for i in (1, 2))
    assert speech.get_xlabel().startswith("AL (ms)")
    assert text.get_xlabel().startswith("AL (words)")
    legend = [each.get_text() for each in speech.get_legend().get_texts()]
    assert legend == ["run", "theirs.log", "with computation"]
    assert {"500 ms", "offline"} <= {each.get_text() for each in speech.texts}


def test_labels_leave_out_what_all_settings_share(tmp_path):
    run = tmp_path / "run"
    evaluation(run, "a", predecision_ms=320, k=1)
    assert [each.setting for each in distinct_settings(gather([run]))] == ["k=1, 320 ms"]
    evaluation(run, "b", predecision_ms=320, k=3)
    assert [each.setting for each in distinct_settings(gather([run]))] == ["k=1", "k=3"]


def test_a_run_shows_its_losses_and_its_header(tmp_path):
    run = tmp_path / "run"
    evaluation(run, "e", made_up(0))
    (run / "config.json").write_text(json.dumps({"run": "run", "training": {"seed": 7}}))
    lines = [
        {"step": s, "time": 1.8e9, "split": "train", "values": {"loss": 1 / s}} for s in (1, 2)
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    known = Knowledge(parameters_of=lambda _: 12_300_000, changed_fields=lambda _: {"lr": "0.1"})
    page = write_report(ReportOptions(runs=(str(run),), latency="LAAL"), known)
    assert page == run / "report" / "index.html" and (page.parent / "losses.pdf").exists()
    text = page.read_text("utf-8")
    facts = ("12.3 M", "<dd>7</dd>", "2027-01-15", "simuljax report", "lr", "reaches")
    for fact in (*facts, "highest LAAL"):
        assert fact in text, fact


def test_terms_are_shown_by_what_differs(tmp_path):
    usual = {term.name: term for term in Objective().terms} | {
        "again": Term(name="again", function="quantity", weight=0.1)
    }
    usual["kd"] = replace(usual["kd"], weight=1.0)  # the default of a term, not of this one
    objective = Objective(terms=tuple(t for name, t in usual.items() if name != "dar"))
    training = Training(updates=5, objective=objective)
    write_json(
        tmp_path / "config.json",
        Experiment(
            run=tmp_path,
            data=DataConfig(directory=tmp_path),
            model=presets.tiny(),
            training=training,
        ),
    )
    changed = {k: v for k, v in changed_fields(tmp_path).items() if k.startswith("training.")}
    again = "training.objective.terms.again"
    assert changed == {
        "training.updates": "5",
        f"{again}.name": "again",
        f"{again}.function": "quantity",
        f"{again}.weight": "0.1",
        "training.objective.terms.kd.weight": "1",
        "training.objective.terms.dar": "left out",
    }


def test_named_logs_are_a_line_and_tested(tmp_path):
    for k in (1, 3):
        write_records(tmp_path / f"k{k}.log", as_records(slower(made_up(0), 100 * k)))
    write_records(tmp_path / "x.log", as_records(made_up(0)))
    given = [f"theirs={tmp_path}/k1.log", f"theirs={tmp_path}/k3.log", f"ours={tmp_path}/x.log"]
    main(["report", *given, "--utterances", "2"])
    text = (tmp_path / "report" / "index.html").read_text("utf-8")  # beside the first
    assert "Report: ours, theirs" in text and "k3.log" in text and "p (Holm)" in text


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


def comparable_of(tmp_path, first, second, **config):
    evaluation(tmp_path / "one", "e", first, **config)
    evaluation(tmp_path / "two", "e", second, **config)
    (comparable,) = group(gather([tmp_path / "one", tmp_path / "two"]))
    return comparable


def test_regimes_and_offline_are_apart(tmp_path):
    quick = without_clock(made_up(0))
    late = without_clock(slower(made_up(0), 900))
    comparable = comparable_of(tmp_path, quick, late)
    assert compare_systems(comparable, "AL") == []
    evaluation(tmp_path / "one", "offline", late, mode="offline")
    evaluation(tmp_path / "two", "offline", late, mode="offline")
    (comparable,) = group(gather([tmp_path / "one", tmp_path / "two"]))
    (tested,) = compare_systems(comparable, "AL")
    assert (tested.where, tested.comparison.metric) == ("offline", "BLEU")
    text = comparable_of(tmp_path / "text", text_entries(), text_entries(), branch="text")
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
