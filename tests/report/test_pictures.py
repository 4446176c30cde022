"""Pictures: that they are drawn, say what they should, and refuse what they cannot show."""

import sys

import numpy as np
import pytest

from simuljax.eval import Record, RecordError
from simuljax.eval.curves import Point, best_per_bucket, frontier
from simuljax.eval.logs import as_records
from simuljax.report import figures as pictures
from tests.eval.logs import made_up

POINTS = [
    Point(latency_ms=800, quality=9.5, label="k=1"),
    Point(latency_ms=1500, quality=15.0, label="k=3"),
    Point(latency_ms=2500, quality=18.0, label="k=5"),
]


@pytest.fixture
def figures(monkeypatch):
    """The figures as they are saved, to be looked into."""
    kept, save = [], pictures.save_figure
    monkeypatch.setattr(
        pictures, "save_figure", lambda figure, path: (kept.append(figure), save(figure, path))[1]
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


def test_when_colours_come_again_lines_are_others(tmp_path, figures):
    many = {f"row {i}": POINTS for i in range(len(pictures.COLOURS) + 1)}
    pictures.draw_curves(many, tmp_path / "curves.png")
    lines = {line.get_label(): line for line in figures[0].axes[0].lines}
    first, again = lines["row 0"], lines[f"row {len(pictures.COLOURS)}"]
    assert first.get_color() == again.get_color()
    assert first.get_linestyle() == lines["row 1"].get_linestyle() != again.get_linestyle()
    assert first.get_marker() != again.get_marker()


def test_the_seeds_of_a_mean_are_shown(tmp_path, figures):
    mean = Point(latency_ms=1000, quality=20, seeds=((400, 15), (1600, 25)))
    pictures.draw_curves({"a": [mean]}, tmp_path / "curves.png")
    (axes,) = figures[0].axes
    thin = [line.get_xydata().tolist() for line in axes.lines if line.get_label() == "_seed"]
    assert thin == [[[1000, 20], [400, 15]], [[1000, 20], [1600, 25]]]
    left, right = axes.get_xlim()
    assert left < 400 and right > 1600


def test_curves_with_computation_and_offline(tmp_path, figures):
    aware = [Point(latency_ms=p.latency_ms + 900, quality=p.quality) for p in POINTS]
    path = tmp_path / "curves.png"
    pictures.draw_curves(
        {"a": POINTS, "b": POINTS[:1]}, path, aware={"a": aware}, offline={"b": 21}
    )
    (axes,) = figures[0].axes
    dashed = [line for line in axes.lines if line.get_linestyle() == "--" and len(line.get_xdata())]
    np.testing.assert_array_equal(dashed[0].get_xdata(), [1700, 2400, 3400])
    assert axes.get_xlim()[1] > 3400 and axes.get_ylim()[1] > 21
    assert dashed[0].get_color() == axes.lines[0].get_color()
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["a", "b", "with computation"]
    assert "offline" in texts(axes)


def test_curves_of_buckets_keep_the_other_points(tmp_path, figures):
    points = [*POINTS, Point(latency_ms=1600, quality=12.0), Point(latency_ms=900, quality=3.0)]
    pictures.draw_curves({"a": points}, tmp_path / "curves.png", through=best_per_bucket)
    every, line = figures[0].axes[0].lines[:2]
    np.testing.assert_array_equal(every.get_xdata(), [800, 900, 1500, 1600, 2500])
    np.testing.assert_array_equal(line.get_xdata(), [800, 1500, 2500])


def test_what_was_only_played_is_drawn_and_what_is_unknown_is_not(tmp_path, figures):
    unknown = Point(latency_ms=float("nan"), quality=1.0)
    later = [Point(latency_ms=1100, quality=30.0), Point(latency_ms=1600, quality=29.0)]
    given = {"a": [*POINTS, unknown]}, tmp_path / "curves.png"
    pictures.draw_curves(*given, aware={"b": later}, through=frontier)
    lines = [list(line.get_xdata()) for line in figures[0].axes[0].lines]
    assert [1100] in lines, "the dashed line goes through what no sooner point beats"
    assert [1100, 1600] in lines, "and all have their marks"
    with pytest.raises(ValueError, match="no points"):
        pictures.draw_curves({"a": [unknown]}, tmp_path / "curves.png")


def test_curves_of_text_have_no_regimes(tmp_path, figures):
    points = [Point(latency_ms=3, quality=9.0), Point(latency_ms=1200, quality=9.0)]
    pictures.draw_curves({"a": points}, tmp_path / "curves.png", unit="words")
    assert texts(figures[0].axes[0]) == ["", ""]
    assert figures[0].axes[0].get_xlabel() == "AL (words), lower is sooner"


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
    pictures._draw_steps(pictures.new_figure(3, 3).subplots(), chinese, ["x", "y"])  # has no font
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
    np.testing.assert_allclose(maps[4].collections[0].get_array(), alignment[1, 1], rtol=1e-6)
    for each in maps:
        assert each.collections[0].get_clim() == pytest.approx((0, alignment.max()))
    assert bar.get_ylabel() == "probability"
    words = [f"w{i}" for i in range(9)]
    pictures.draw_alignment(alignment, tokens, tmp_path / "b.png", positions=words)
    below = figures[1].axes[3].get_xticklabels()
    assert [label.get_text() for label in below] == words
    with pytest.raises(ValueError, match="alignment must be"):
        pictures.draw_alignment(alignment[0], tokens, tmp_path / "c.png")


def test_alignments_under_the_words_that_are_said(tmp_path, figures):
    alignment = np.random.default_rng(0).dirichlet(np.ones(3), (1, 3, 2))
    spoken = [
        pictures.Spoken(text="the", start_ms=0, end_ms=300),
        pictures.Spoken(text="house", start_ms=300, end_ms=900),
    ]
    hard = np.array([[[0, 2], [1, 1], [-1, 0]]])
    edges = [0.0, 200.0, 500.0, 1000.0]
    keys = {"edges_ms": edges, "spoken": spoken, "hard": hard}
    pictures.draw_alignment(alignment, ["das", "Haus"], tmp_path / "a.png", **keys)
    first, second, third, unused, _ = figures[0].axes
    assert texts(first) == ["the", "house"]
    assert [text.get_position()[0] for text in first.texts] == [0.15, 0.6]
    np.testing.assert_allclose(first.lines[0].get_xdata(), [0.1, 0.75])
    np.testing.assert_allclose(second.lines[0].get_xdata(), [0.35, 0.35])
    np.testing.assert_allclose(third.lines[0].get_ydata(), [1])
    np.testing.assert_allclose(first.get_xlim(), (0, 1))
    assert first.get_title(loc="left") == "head 1" and not unused.get_visible()


def test_alignments_that_cannot_be_drawn(tmp_path):
    alignment, tokens, path = np.ones((1, 2, 1, 3)), ["ja"], tmp_path / "x.png"
    with pytest.raises(ValueError, match="edges_ms must be 4 times, not 3"):
        pictures.draw_alignment(alignment, tokens, path, edges_ms=[0, 1, 2])
    with pytest.raises(ValueError, match=r"hard must be \(1, 2, 1\), not \(2, 1\)"):
        pictures.draw_alignment(alignment, tokens, path, hard=np.zeros((2, 1), int))
    spoken = [pictures.Spoken(text="yes", start_ms=0, end_ms=9)]
    with pytest.raises(ValueError, match="give state_ms or edges_ms"):
        pictures.draw_alignment(alignment, tokens, path, spoken=spoken)


def test_the_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(OSError, match=r"pip install 'simuljax\[plots\]'"):
        pictures.draw_curves({"a": POINTS}, tmp_path / "x.png")
