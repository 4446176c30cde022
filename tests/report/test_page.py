"""The page of a report: one well-formed file with the scores, and no script but its own."""

import base64
import io
import os
import re
from xml.etree import ElementTree

import numpy as np
import pytest
import soundfile

from simuljax.report.collect import gather, group
from simuljax.report.run_page import Knowledge, Report, SourceAudio, build_page, section_of
from tests.eval.logs import made_up
from tests.report.runs import attribute, evaluation, slower, text_entries, without_clock, worse

NASTY = '<script>alert("x")</script> & </svg>]]> \x07'
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)


def page_of(*runs, utterances=12, source_of=None):
    options = Report(runs=tuple(map(str, runs)), utterances=utterances)
    known = Knowledge(source_of=source_of) if source_of else Knowledge()
    sections = [section_of(each, None, options, known) for each in group(gather(runs))]
    return build_page(options, sections, {}, None, known)


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
def page(two):
    return page_of(*two, utterances=8)


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


def test_ways_of_scoring_are_told_apart(tmp_path):
    folder = evaluation(tmp_path / "run", "a")
    text = (folder / "scores.json").read_text()
    (folder / "scores.json").write_text(text.replace("simuleval-1.1", "simuleval-1.0"))
    evaluation(tmp_path / "run", "b")
    page = page_of(tmp_path / "run", utterances=0)
    assert {row[-1] for row in rows(page)} == {"scored", "(1)", "(2)"}
    assert "(1) profile simuleval-1" in said(page) and "(2) profile simuleval-1" in said(page)


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


def test_systems_without_a_common_regime_are_not_tested(tmp_path):
    evaluation(tmp_path / "one", "e")
    evaluation(tmp_path / "late", "e", without_clock(slower(made_up(0), 950)))
    text = page_of(tmp_path / "one", tmp_path / "late")
    assert "Tests between systems" not in said(text)
    assert "one reaches" in said(text) and "late reaches" in said(text)


def test_different_references_have_sections_of_their_own(tmp_path):
    evaluation(tmp_path / "one", "e")
    evaluation(tmp_path / "two", "e", without_clock(made_up(7)))
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


def test_the_speech_is_drawn_and_played(two):
    asked = []

    def source_of(evaluated, index):
        asked.append((evaluated.system, index))
        sound = np.sin(np.arange(16_000)) / 2
        return (
            SourceAudio(samples=sound, transcript="two <b> words")
            if asked[-1][0] == "good"
            else None
        )

    page = page_of(*two, utterances=4, source_of=source_of)
    waves = [e for e in parsed(page).iter("polygon") if e.get("class") == "wave"]
    assert len(waves) == 8 and len(asked) == 8
    assert {system for system, _ in asked} == {"good", "bad"}
    players = [attribute(each, "src") for each in parsed(page).iter("audio")]
    assert len(players) == 4 and "Source two <b> words" in said(page)
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(players[0].split(",")[1])))
    assert rate == 16_000 and np.abs(samples - np.sin(np.arange(16_000)) / 2).max() < 1e-3
    at = [float(attribute(each, "data-at")) for each in parsed(page).iter("li")]
    assert at and max(at) < 10, "seconds, for the script that follows the player"


def test_pictures_beside_the_log_are_in_it(tmp_path):
    folder = evaluation(tmp_path / "run", "e")
    (folder / "alignment <3>.png").write_bytes(PIXEL)
    page = page_of(tmp_path / "run")
    (image,) = parsed(page).iter("img")
    assert base64.b64decode(attribute(image, "src").split(",")[1]) == PIXEL
    assert image.get("alt") == "alignment <3>"


def test_only_plain_pngs_of_a_run_are_embedded(tmp_path):
    folder = evaluation(tmp_path / "run", "e")
    secret = tmp_path / "secret"
    secret.write_bytes(PIXEL)
    (folder / "link.png").symlink_to(secret)
    (folder / "text.png").write_text("not a picture")
    os.mkfifo(folder / "pipe.png")
    assert not [*parsed(page_of(tmp_path / "run")).iter("img")]


def test_text_sources_count_words(tmp_path):
    evaluation(tmp_path / "run", "e", text_entries(), branch="text")
    page = page_of(tmp_path / "run")
    assert "Latencies are in words" in said(page)
    assert re.search(r"AL \d\.\d\d words", said(page))


def test_a_system_without_a_word_or_a_reference(tmp_path):
    silent = [entry | {"prediction": "", "delays": [], "elapsed": []} for entry in made_up(0)]
    evaluation(tmp_path / "silent", "e", silent)
    assert "Nothing was written." in said(page_of(tmp_path / "silent"))
    bare = [entry | {"reference": None} for entry in without_clock(made_up(0))]
    evaluation(tmp_path / "bare", "e", bare)
    assert rows(page_of(tmp_path / "bare"))[1][3] == "–"
