"""Pictures: that they are drawn, say what they should, and refuse what they cannot show."""

import sys

import numpy as np
import pytest

from simuljax.eval import Record, RecordError, pictures
from simuljax.eval.curves import Point
from simuljax.eval.records import as_records
from tests.eval.logs import made_up

POINTS = [
    Point(latency_ms=800, quality=9.5, label="k=1"),
    Point(latency_ms=1500, quality=15.0, label="k=3"),
    Point(latency_ms=2500, quality=18.0, label="k=5"),
]


@pytest.fixture
def figures(monkeypatch):
    """The figures as they are saved, to be looked into."""
    kept, save = [], pictures._save
    monkeypatch.setattr(
        pictures, "_save", lambda figure, path: (kept.append(figure), save(figure, path))[1]
    )
    return kept


def size(path):
    """Width and height from the head of a PNG file."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_curves(tmp_path, figures):
    slower = [Point(latency_ms=p.latency_ms + 100, quality=p.quality) for p in POINTS]
    path = pictures.draw_curves({"a": POINTS, "b": slower}, tmp_path / "new" / "curves.png")
    assert size(path) == (1040, 650)
    (axes,) = figures[0].axes
    assert {"k=1", "k=3", "low latency", "medium latency", "high latency"} <= set(texts(axes))
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), [800, 1500, 2500])
    left, right = axes.get_xlim()
    assert left < 800 and right > 2600
    with pytest.raises(ValueError, match="no points"):
        pictures.draw_curves({"a": []}, tmp_path / "none.png")


def test_one_point_is_a_curve(tmp_path):
    assert pictures.draw_curves({"a": POINTS[:1]}, tmp_path / "one.png").exists()


@pytest.mark.parametrize("with_samples", [False, True])
def test_staircase(tmp_path, figures, with_samples):
    record = as_records(made_up(4, 1))[0]
    sine = np.sin(np.arange(int(16 * record.source_length)) / 9).astype(np.float32)
    samples = sine if with_samples else None
    path = pictures.draw_staircase(record, tmp_path / "stairs.png", samples=samples)
    assert size(path)[0] == 1170
    steps, *rest = figures[0].axes
    assert texts(steps) == record.prediction.split()
    assert len(rest) == with_samples
    stairs = steps.lines[0]
    assert stairs.get_ydata()[-1] == len(record.delays)
    at = stairs.get_xdata()[1:-1:2]
    np.testing.assert_allclose(at, np.array(record.delays) / 1000)


def test_staircases_of_characters_and_of_talks(tmp_path, figures):
    chinese = Record(prediction="你好", delays=(300.0, 600.0), source_length=900.0)
    pictures._draw_steps(pictures._figure(3, 3).subplots(), chinese, ["x", "y"])  # has no font
    talk = Record(prediction="so " * 900, delays=(5.0,) * 900, source_length=900.0)
    assert size(pictures.draw_staircase(talk, tmp_path / "talk.png"))[1] < 2200
    assert texts(figures[0].axes[0]) == []


def test_staircases_that_cannot_be_drawn(tmp_path):
    silent = Record(prediction="", delays=(), source_length=900.0)
    odd = Record(prediction="ja nein", delays=(1.0, 2.0, 3.0), source_length=900.0)
    for record in (silent, odd):
        with pytest.raises(RecordError, match="a delay for each"):
            pictures.draw_staircase(record, tmp_path / "x.png")
    fine = Record(prediction="ja", delays=(1.0,), source_length=900.0)
    with pytest.raises(ValueError, match="samples must be mono"):
        pictures.draw_staircase(fine, tmp_path / "x.png", samples=np.zeros((2, 100)))


def test_alignments(tmp_path, figures):
    alignment = np.random.default_rng(0).dirichlet(np.ones(9), (2, 3, 4))
    tokens = ["▁Ich", "▁geh", "e", "</s>"]
    path = pictures.draw_alignment(alignment, tokens, tmp_path / "a.png", state_ms=40.0)
    assert path.exists()
    *maps, bar = figures[0].axes
    assert len(maps) == 6
    assert maps[5].get_title() == "layer 2, head 3"
    assert [label.get_text() for label in maps[0].get_yticklabels()] == tokens
    np.testing.assert_allclose(maps[0].get_xlim(), (0, 0.36))
    np.testing.assert_allclose(maps[4].images[0].get_array(), alignment[1, 1], rtol=1e-6)
    for each in maps:
        assert each.images[0].get_clim() == pytest.approx((0, alignment.max()))
    assert bar.get_ylabel() == "probability"
    words = [f"w{i}" for i in range(9)]
    pictures.draw_alignment(alignment, tokens, tmp_path / "b.png", positions=words)
    below = figures[1].axes[3].get_xticklabels()
    assert [label.get_text() for label in below] == words
    with pytest.raises(ValueError, match="alignment must be"):
        pictures.draw_alignment(alignment[0], tokens, tmp_path / "c.png")


def test_the_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(OSError, match=r"pip install 'simuljax\[plots\]'"):
        pictures.draw_curves({"a": POINTS}, tmp_path / "x.png")
