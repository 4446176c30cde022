"""Pictures: that they are drawn, say what they should, and refuse what they cannot show."""

import sys
from typing import Any

import numpy as np
import pytest

from simuljax.errors import MissingExtraError
from simuljax.eval.curves import Point, frontier
from simuljax.report import figures as pictures

POINTS = [
    Point(latency_ms=800, quality=9.5, label="k=1"),
    Point(latency_ms=1500, quality=15.0, label="k=3"),
    Point(latency_ms=2500, quality=18.0, label="k=5"),
]
UNKNOWN = Point(latency_ms=float("nan"), quality=1.0)


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Draw a picture; return its axes, and check that the file and its PDF are there."""
    kept, save = [], pictures.save_figure
    monkeypatch.setattr(
        pictures,
        "save_figure",
        lambda figure, path, **keys: save(kept.append(figure) or figure, path, **keys),
    )

    def draw(function, *args, pdf=True, **keys):
        path = function(*args, tmp_path / "new" / "x.png", **keys)
        assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        assert not pdf or path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
        return kept[-1].axes

    return draw


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_curves(drawn):
    slower = [Point(latency_ms=p.latency_ms + 100, quality=p.quality) for p in POINTS]
    (axes,) = drawn(pictures.draw_curves, {"a": POINTS, "b": slower})
    assert {"k=1", "k=3", "low latency", "medium latency", "high latency"} <= set(texts(axes))
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), [800, 1500, 2500])
    left, right = axes.get_xlim()
    assert left < 800 and right > 2600
    for nothing in ([], [UNKNOWN]):
        with pytest.raises(ValueError, match="no points"):
            drawn(pictures.draw_curves, {"a": nothing})


def test_curves_with_computation_and_offline(drawn):
    aware = [Point(latency_ms=p.latency_ms + 900, quality=p.quality) for p in POINTS]
    given = {"a": POINTS, "b": POINTS[:1]}
    (axes,) = drawn(pictures.draw_curves, given, aware={"a": aware}, offline={"b": 21})
    dashed = [line for line in axes.lines if line.get_linestyle() == "--" and len(line.get_xdata())]
    np.testing.assert_array_equal(dashed[0].get_xdata(), [1700, 2400, 3400])
    assert axes.get_xlim()[1] > 3400 and axes.get_ylim()[1] > 21
    assert dashed[0].get_color() == axes.lines[0].get_color()
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["a", "b", "with computation"]
    assert "offline" in texts(axes)


def test_a_line_goes_through_some_points_and_unknown_ones_are_left_out(drawn):
    points = [*POINTS, Point(latency_ms=1600, quality=12.0), UNKNOWN]
    played = [Point(latency_ms=1100, quality=30.0), Point(latency_ms=1600, quality=29.0)]
    (axes,) = drawn(pictures.draw_curves, {"a": points}, aware={"b": played}, through=frontier)
    lines = [list(line.get_xdata()) for line in axes.lines]
    assert lines[:2] == [[800, 1500, 1600, 2500], [800, 1500, 2500]]
    assert [1100] in lines and [1100, 1600] in lines, "the dashed line, and all markers"


def test_losses_of_every_run(drawn, tmp_path):
    train = {"step": [10, 20, 30], "loss": [9.0, 5.0, None], "time": [1.0, 2.0, 3.0]}
    valid = {"step": [20, 30], "st_nll": [4.0, 3.5]}
    runs = {f"kd-seed{seed}-ab": {"train": train, "valid": valid} for seed in (0, 1)}
    left, right = drawn(pictures.draw_losses, runs | {"mma-seed0-cd": {"train": train}})
    assert [len(axes.lines) for axes in (left, right)] == [3, 2]
    np.testing.assert_array_equal(left.lines[0].get_xdata(), [10, 20])
    assert left.lines[0].get_color() == left.lines[1].get_color() != left.lines[2].get_color()
    assert (left.get_ylabel(), right.get_ylabel()) == ("loss", "st_nll")
    assert pictures.draw_losses({"none": {}}, tmp_path / "none.png") is None
    (axes,) = drawn(pictures.draw_losses, {f"v{i}": {"train": train} for i in range(26)})
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 26


def test_a_forest_has_a_row_for_every_claim(drawn):
    effects = [
        pictures.Effect(label="a", value=1.0, low=0.5, high=1.5, published=3.4, detectable=0.9),
        pictures.Effect(label="b", value=-1.0, low=-3.0, high=1.0),
    ]
    (axes,) = drawn(pictures.draw_forest, effects)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    spans = [list(line.get_xdata()) for line in axes.lines]
    assert [0.5, 1.5] in spans and [-3.0, 1.0] in spans and [3.4] in spans


def test_alignments_under_the_words_that_are_said(drawn, tmp_path):
    alpha = np.random.default_rng(0).dirichlet(np.ones(3), (3, 2))
    keys: dict[str, Any] = {
        "alpha": alpha,
        "hard": np.array([[0, 2], [1, 1], [-1, 0]]),
        "edges": np.array([0.0, 0.2, 0.5, 1.0]),
        "pieces": ["das", "Haus"],
        "words": ["the", "house"],
        "times": np.array([[0, 0.3], [0.3, 0.9]]),
    }
    first, second, third, unused, bar = drawn(pictures.draw_alignment, pdf=False, **keys)
    assert texts(first) == ["the", "house"]
    assert [text.get_position()[0] for text in first.texts] == [0.15, 0.6]
    np.testing.assert_allclose(first.lines[0].get_xdata(), [0.1, 0.75])
    np.testing.assert_allclose(second.lines[0].get_xdata(), [0.35, 0.35])
    np.testing.assert_allclose(third.lines[0].get_ydata(), [1])
    np.testing.assert_allclose(second.collections[0].get_array(), alpha[1], rtol=1e-6)
    assert second.collections[0].get_clim() == pytest.approx((0, alpha.max()))
    assert [label.get_text() for label in first.get_yticklabels()] == ["das", "Haus"]
    np.testing.assert_allclose(first.get_xlim(), (0, 1))
    assert first.get_title(loc="left") == "head 1" and not unused.get_visible()
    assert "probability" in bar.get_ylabel()
    wrong: dict[str, Any] = {"edges": [0, 1], "hard": np.zeros((2, 1), int), "pieces": ["x"]}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match="do not fit together"):
            pictures.draw_alignment(tmp_path / "x.png", **keys | {name: value})


def test_the_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'simuljax\[plots\]'"):
        pictures.draw_curves({"a": POINTS}, tmp_path / "x.png")
