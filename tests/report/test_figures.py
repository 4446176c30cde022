"""Pictures: that they are drawn, say what they should, and refuse what they cannot show."""

import sys

import numpy as np
import pytest

from simuljax.errors import MissingExtraError
from simuljax.eval.curves import Point, best_per_bucket, frontier
from simuljax.report import figures as pictures

POINTS = [
    Point(latency_ms=800, quality=9.5, label="k=1"),
    Point(latency_ms=1500, quality=15.0, label="k=3"),
    Point(latency_ms=2500, quality=18.0, label="k=5"),
]


@pytest.fixture
def figures(monkeypatch):
    """The figures as they are saved, to be looked into."""
    kept, save = [], pictures.save_figure

    def saved(figure, path, **keys):
        kept.append(figure)
        return save(figure, path, **keys)

    monkeypatch.setattr(pictures, "save_figure", saved)
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
    assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
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
    assert [1100] in lines, "the dashed line goes through the Pareto-optimal points"
    assert [1100, 1600] in lines, "all points have their markers"
    with pytest.raises(ValueError, match="no points"):
        pictures.draw_curves({"a": [unknown]}, tmp_path / "curves.png")


def test_curves_of_text_have_no_regimes(tmp_path, figures):
    points = [Point(latency_ms=3, quality=9.0), Point(latency_ms=1200, quality=9.0)]
    pictures.draw_curves({"a": points}, tmp_path / "curves.png", unit="words")
    assert texts(figures[0].axes[0]) == []
    assert figures[0].axes[0].get_xlabel().startswith("AL (words)")


def test_every_point_is_labelled_and_no_label_covers_another(tmp_path, figures):
    many = {
        name: [
            Point(latency_ms=300 + 90 * i, quality=20 + i + up, label=f"k={i}") for i in range(12)
        ]
        for name, up in (("a", 0.0), ("b", 2.5))
    }
    pictures.draw_curves(many, tmp_path / "curves.png")
    (axes,) = figures[0].axes
    labels = [text for text in axes.texts if text.get_text().startswith("k=")]
    assert len(labels) == 24
    figures[0].canvas.draw()
    boxes = [text.get_window_extent() for text in labels]
    covered = [a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i]]
    assert sum(covered) <= 1


def test_losses_of_every_run(tmp_path, figures):
    train = {"step": [10, 20, 30], "loss": [9.0, 5.0, None], "time": [1.0, 2.0, 3.0]}
    valid = {"step": [20, 30], "st_nll": [4.0, 3.5]}
    runs = {f"kd-seed{seed}-ab": {"train": train, "valid": valid} for seed in (0, 1)}
    path = pictures.draw_losses(runs | {"mma-seed0-cd": {"train": train}}, tmp_path / "l.png")
    assert path is not None and path.with_suffix(".pdf").exists()
    left, right = figures[0].axes
    assert [len(axes.lines) for axes in (left, right)] == [3, 2]
    np.testing.assert_array_equal(left.lines[0].get_xdata(), [10, 20])
    assert left.lines[0].get_color() == left.lines[1].get_color() != left.lines[2].get_color()
    assert (left.get_ylabel(), right.get_ylabel()) == ("loss", "st_nll")
    assert pictures.draw_losses({"none": {}}, tmp_path / "none.png") is None


def test_a_forest_has_a_row_for_every_claim(tmp_path, figures):
    effects = [
        pictures.Effect(label="a", value=1.0, low=0.5, high=1.5, published=3.4, detectable=0.9),
        pictures.Effect(label="b", value=-1.0, low=-3.0, high=1.0),
    ]
    assert pictures.draw_forest(effects, tmp_path / "f.png").with_suffix(".pdf").exists()
    (axes,) = figures[0].axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    spans = [list(line.get_xdata()) for line in axes.lines]
    assert [0.5, 1.5] in spans and [-3.0, 1.0] in spans and [3.4] in spans


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
        pictures.SpokenWord(text="the", start_ms=0, end_ms=300),
        pictures.SpokenWord(text="house", start_ms=300, end_ms=900),
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
    spoken = [pictures.SpokenWord(text="yes", start_ms=0, end_ms=9)]
    with pytest.raises(ValueError, match="give state_ms or edges_ms"):
        pictures.draw_alignment(alignment, tokens, path, spoken=spoken)


def test_the_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'simuljax\[plots\]'"):
        pictures.draw_curves({"a": POINTS}, tmp_path / "x.png")
