"""The page: one well-formed file that says what the scores say and runs nothing."""

import base64
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from simuljax.report.collect import gather, group
from simuljax.report.page import Section, build_page
from tests.eval.logs import made_up
from tests.report.runs import attribute, evaluation, slower, text_entries, without_clock, worse

NASTY = '<script>alert("x")</script> & </svg>]]> \x07'
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)


def page_of(*runs, **how):
    comparables = group(gather(runs))
    return build_page([Section(comparable=c, figure=None) for c in comparables], **how)


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
    assert float(cells[0]["difference"]) > 0 and float(cells[0]["p"]) < 0.05
    low, high = map(float, cells[0]["95 % interval"].split(" to "))
    assert 0 < low < float(cells[0]["difference"]) < high
    assert "First: bad; second: good" in said(page)


def test_what_cannot_be_tested_says_why(tmp_path):
    for name in ("one", "two", "three"):
        evaluation(tmp_path / name, "e")
    runs = [tmp_path / name for name in ("one", "two", "three")]
    assert "Not tested: two systems can be compared here, not 3" in said(page_of(*runs))
    assert "Do they differ" not in said(page_of(runs[0]))
    evaluation(tmp_path / "late", "e", without_clock(slower(made_up(0), 950)))
    assert "no regime of latency in common" in said(page_of(runs[0], tmp_path / "late"))


def test_different_references_have_sections_of_their_own(tmp_path):
    evaluation(tmp_path / "one", "e")
    evaluation(tmp_path / "two", "e", without_clock(made_up(7)))
    page = page_of(tmp_path / "one", tmp_path / "two")
    assert len(list(parsed(page).iter("section"))) == 2
    assert "references or utterances differ" in said(page)
    assert "Do they differ" not in said(page)


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
        assert f"Reference {records[number]['reference']}" in text
        assert re.search(r"AL -?\d+ ms · .*chrF \d", text)
    assert "highest and of the lowest chrF" in said(page)
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


def test_the_sound_is_asked_for_and_drawn(two):
    asked = []

    def samples_of(evaluated, index):
        asked.append((evaluated.system, index))
        return np.sin(np.arange(16_000)) if evaluated.system == "good" else None

    page = page_of(*two, utterances=4, samples_of=samples_of)
    waves = [e for e in parsed(page).iter("polygon") if e.get("class") == "wave"]
    assert len(waves) == 8 and len(asked) == 8
    assert {system for system, _ in asked} == {"good", "bad"}


def test_pictures_beside_the_log_are_in_it(tmp_path):
    folder = evaluation(tmp_path / "run", "e")
    (folder / "alignment <3>.png").write_bytes(PIXEL)
    page = page_of(tmp_path / "run")
    (image,) = parsed(page).iter("img")
    assert base64.b64decode(attribute(image, "src").split(",")[1]) == PIXEL
    assert image.get("alt") == "alignment <3>"


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
