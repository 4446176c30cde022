"""Timelines: that they are well-formed, that words stand at their times and over no other."""

from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest

from simuljax.eval import Record
from simuljax.eval.logs import as_records, units_in
from simuljax.report.timeline import (
    MARGIN,
    ROWS,
    TAIL,
    WIDTH,
    _width,
    bursts_of,
    draw_timeline,
    rows_of,
)
from tests.eval.logs import made_up
from tests.report.runs import attribute

CHINESE = Record(prediction="你好 吗", delays=(300.0, 300.0, 900.0), source_length=900.0)


def parsed(drawn):
    """The drawing as XML."""
    return ElementTree.fromstring(f"<div>{drawn}</div>")


def named(tree, kind):
    return [each for each in tree.iter() if each.get("class") == kind]


def words_of(tree):
    """(x, text) of every text outside the scale."""
    svgs = list(tree.iter("svg"))
    found = [(float(attribute(t, "x")), t) for svg in svgs for t in svg.findall("text")]
    return [(x, "".join(child.tail or "" for child in text)) for x, text in found]


def test_words_stand_at_their_delays():
    record = Record(
        prediction="Ja das ist gut", delays=(500.0, 1000.0, 1000.0, 2000.0), source_length=2000.0
    )
    tree = parsed(draw_timeline(record))
    room = WIDTH - MARGIN - TAIL
    at = [MARGIN + room * d / 2000 + 4 for d in (500, 1000, 2000)]
    assert [text for _, text in words_of(tree)] == ["Ja", "das ist", "gut"]
    np.testing.assert_allclose([x for x, _ in words_of(tree)], at, atol=0.06)
    (source,) = named(tree, "source")
    assert float(attribute(source, "width")) == pytest.approx(room)
    assert named(tree, "clock") == [] and named(tree, "wave") == []


def test_no_word_stands_on_another():
    for record in as_records(made_up(0, 40)):
        (row,) = rows_of(record)
        bursts = bursts_of(row, record, units_in(record.prediction, "word"))
        assert [word for burst in bursts for word in burst.words] == record.prediction.split()
        for a, b in combinations(bursts, 2):
            if a.lane == b.lane:
                assert a.x + _width(a.text) < b.x
            elif a.x + _width(a.text) > b.x:
                assert a.lane > b.lane, "what is written later stands lower"


def test_talks_are_cut_into_rows():
    count = 400
    delays = tuple(float(d) for d in np.linspace(1000, 300_000, count))
    words = [f"w{i}" for i in range(count)]
    talk = Record(prediction=" ".join(words), delays=delays, source_length=300_000.0)
    rows = rows_of(talk)
    assert len(rows) == 20 and rows[0].end == pytest.approx(15_000)
    every = [word for row in rows for burst in bursts_of(row, talk, words) for word in burst.words]
    assert every == words
    tree = parsed(draw_timeline(talk))
    assert len(list(tree.iter("svg"))) == ROWS
    assert [p.text for p in tree.iter("p")] == ["The first 120 of 300 seconds."]


def test_characters_and_words_of_a_text_source():
    assert units_in(CHINESE.prediction, "char") == ["你", "好", "吗"]
    assert [text for _, text in words_of(parsed(draw_timeline(CHINESE, "char")))] == ["你好", "吗"]
    korean = Record(prediction="한국 사람", delays=(300.0, 300.0), source_length=900.0)
    assert [text for _, text in words_of(parsed(draw_timeline(korean)))] == ["한국 사람"]
    text = Record(prediction="das Haus", delays=(2, 3), source_length=3, source="the house stands")
    tree = parsed(draw_timeline(text))
    scale = {t.text for group in named(tree, "scale") for t in group.iter("text")}
    assert scale == {"the", "house", "stands"}
    assert next(tree.iter("title")).text == "after 2 words: das"


def test_nothing_to_draw():
    silent = Record(prediction="", delays=(), source_length=900.0)
    assert "Nothing was written." in draw_timeline(silent)
    odd = Record(prediction="ja nein", delays=(1.0, 2.0, 3.0), source_length=900.0)
    assert "2 words and 3 delays" in draw_timeline(odd)


def test_everything_is_escaped():
    nasty = '<script>alert(1)</script> & "it\'s" \x00\x1b \ud800 ]]>'
    delays = tuple(100.0 * i for i in range(len(nasty.split())))
    record = Record(prediction=nasty, delays=delays, source_length=900.0)
    drawn = draw_timeline(record)
    drawn.encode("utf-8")
    text = " ".join(text for _, text in words_of(parsed(drawn)))
    assert "<script>alert(1)</script> &" in text
    assert "\x00" not in drawn and "<script" not in drawn
