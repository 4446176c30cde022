"""Draw the figures of a report with matplotlib (the extra `plots`). Each returns its path.

draw_curves    quality against latency, one line per system
draw_losses    the loss of every run over its updates
draw_forest    differences with their intervals, one row per claim
draw_alignment the attention of one utterance: a map of tokens over the source for every head

A PDF is written beside every PNG but those of alignments, for papers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from simuljax.errors import import_extra
from simuljax.eval.curves import Point
from simuljax.report.results import Curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Through = Callable[[Sequence[Point]], Sequence[Point]]

# Distinct for the colour-blind too, and by their markers in print (Okabe & Ito; the last, Tol).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
COLOURS += ("#882255", "#999933", "#bbbbbb")
DASHES = ("-", "--", ":", "-.")  # of losses, where colours come again
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LEAST_RANGE = 2.0  # of quality on the axis, so that a tenth of a point looks small
FEW = 5  # systems whose names fit into the figure
BESIDE: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1)}  # a legend
BLUE, ORANGE, GREY = COLOURS[0], COLOURS[1], "#8a8a8a"
REGIMES = ((0.0, 1000.0, "low"), (1000.0, 2000.0, "medium"), (2000.0, np.inf, "high"))
# Losses to draw, best first: the first that a split has.
LOSSES = {"train": ("loss",), "valid": ("loss", "st_nll", "nll", "mt_nll", "ctc")}


@dataclass(frozen=True, kw_only=True)
class Effect:
    """A row of a forest plot: a difference with its interval."""

    label: str
    value: float
    low: float
    high: float
    published: float | None = None
    detectable: float = math.nan  # smaller differences could not have been found


def draw_curves(
    systems: Mapping[str, Sequence[Point]],
    path: Path | str,
    *,
    latency: str = "AL",
    title: str = "",
    unit: Literal["ms", "words"] = "ms",
    aware: Mapping[str, Sequence[Point]] | None = None,
    offline: Mapping[str, float] | None = None,
    through: Through | None = None,
) -> Path:
    """Draw quality against latency, with the regimes and a label at every point that has one.

    A point that is a mean over seeds has a thin line to each of them.

    Args:
        systems: The points of every line.
        path: The picture to write.
        latency: Name of the points' latency.
        title: Title of the figure.
        unit: Unit of latency: words read, for sources that are text; they have no regimes.
        aware: The same with computation, for systems that have a clock: a dashed line each.
        offline: The quality with the whole source, for systems that have it: a level each.
        through: Chooses the points of a system that its line goes through.
    """
    systems, aware = (
        {name: [p for p in line if math.isfinite(p.latency_ms + p.quality)] for name, line in lines}
        for lines in (systems.items(), (aware or {}).items())
    )
    systems, offline = {name: systems.get(name, []) for name in [*systems, *aware]}, offline or {}
    points = [p for lines in (systems, aware) for curve in lines.values() for p in curve]
    if not points:
        raise ValueError("there are no points to draw")
    many = sum(map(len, systems.values())) > 20
    figure = new_figure(8 if len(systems) <= FEW else 12, 7.5 if many else 5)
    axes = figure.subplots()
    for i, (name, curve) in enumerate(systems.items()):
        _draw_curve(axes, name, curve, i, through)
        _draw_aware(axes, aware.get(name, ()), i, through)
    x = [at for p in points for at in (p.latency_ms, *(seed[0] for seed in p.seeds))]
    margin = 0.08 * (max(x) - min(x)) or 0.1 * max(abs(x[0]), 1)
    axes.set_xlim(min(x) - margin, max(x) + margin)
    for i, name in enumerate(systems):
        if name in offline:
            style: dict[str, Any] = {"color": _look(i)[0], "zorder": 1}
            axes.axhline(offline[name], linewidth=1, linestyle=(0, (1, 2)), **style)
            style |= {"ha": "left", "va": "bottom", "fontsize": 8}
            place = axes.get_yaxis_transform()
            axes.text(0.005, offline[name], "offline", transform=place, **style)
    axes.margins(y=0.12)
    low, high = axes.get_ylim()
    widen = max(0.0, LEAST_RANGE - (high - low)) / 2
    axes.set_ylim(low - widen, high + widen)
    if unit == "ms":
        _draw_regimes(axes)
    axes.set(xlabel=f"{latency} ({unit}), lower is better", ylabel="BLEU", title=title)
    _draw_legend(axes, len(systems), clock=any(aware.values()))
    _label_points(axes, systems)
    return save_figure(figure, path, pdf=True)


def draw_losses(runs: Mapping[str, Curves], path: Path | str) -> Path | None:
    """Draw the loss of every run in training and in validation; None if no run has curves.

    Runs called NAME-seedN share a colour.
    """
    found = {
        split: {run: curve for run, curves in runs.items() if (curve := _loss(curves, split))}
        for split in LOSSES
    }
    shown = [split for split, curves in found.items() if curves]
    if not shown:
        return None
    names = [*dict.fromkeys(run.split("-seed")[0] for run in runs)]
    high = max(3.8, 0.19 * len(names) + 0.6)  # a line of the legend each
    figure = new_figure(max(6, 5.5 * len(shown)) + (2.5 if len(names) > FEW else 0), high)
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    for axes, split in zip(panels, shown, strict=True):
        labels = {label for label, _, _ in found[split].values()}
        for run, (_, steps, values) in found[split].items():
            name = run.split("-seed")[0]
            colour, times = _look(names.index(name))[0], names.index(name) // len(COLOURS)
            seen = name in axes.get_legend_handles_labels()[1]
            look: dict[str, Any] = {"color": colour, "linewidth": 1.2, "alpha": 0.85}
            look["marker"] = "o" if len(values) == 1 else None  # there is no line
            label = "_seed" if seen else name
            axes.plot(steps, values, DASHES[times % len(DASHES)], label=label, **look)
        kind = "training" if split == "train" else "validation"
        axes.set(xlabel="updates", ylabel=" or ".join(sorted(labels)), title=kind)
        axes.locator_params(axis="x", integer=True)
        _fit_losses(axes, [values for _, _, values in found[split].values()])
    if len(names) > 1:
        known: dict[str, Any] = {}
        for axes in panels:
            handles, labels = axes.get_legend_handles_labels()
            known |= dict(zip(labels, handles, strict=True))
        place: dict[str, Any] = BESIDE if len(names) > FEW else {"loc": "upper right"}
        panels[-1].legend(known.values(), known, frameon=False, fontsize=7, **place)
    return save_figure(figure, path, pdf=True)


def draw_forest(effects: Sequence[Effect], path: Path | str) -> Path:
    """Draw one row per claim: the difference, its interval, the published value, what is too small.

    The grey bar of a row holds the differences that the experiment could not have found.
    """
    figure = new_figure(8, 1.2 + 0.42 * len(effects))
    axes = figure.subplots()
    for row, each in enumerate(effects):
        if math.isfinite(each.detectable):
            width = 2 * each.detectable
            axes.barh(row, width, 0.62, -each.detectable, color="#e6e6e6", zorder=0)
        axes.plot([each.low, each.high], [row, row], color=BLUE, linewidth=2)
        axes.plot(each.value, row, "o", color=BLUE)
        if each.published is not None:
            axes.plot(each.published, row, "D", color=ORANGE, fillstyle="none", markersize=8)
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_yticks(range(len(effects)), [each.label for each in effects])
    axes.set(ylim=(len(effects) - 0.4, -0.6), xlabel="difference in BLEU")
    axes.use_sticky_edges = False  # else a bar at the edge has no margin
    axes.margins(x=0.05)
    handles = [
        axes.plot([], [], "-o", color=BLUE)[0],
        axes.plot([], [], "D", color=ORANGE, fillstyle="none")[0],
        axes.barh(0, 0, color="#e6e6e6"),
    ]
    names = ("here, 95 % interval", "published", "too small to detect")
    axes.legend(handles, names, frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return save_figure(figure, path, pdf=True)


def _loss(curves: Curves, split: str) -> tuple[str, list[float], list[float]] | None:
    """Return (metric, updates, values) of the loss that a split has."""
    columns = curves.get(split, {})
    for metric in LOSSES[split]:
        pairs = zip(columns.get("step", ()), columns.get(metric, ()), strict=False)
        known = [(float(at), float(v)) for at, v in pairs if at is not None and v is not None]
        if known:
            return metric, [at for at, _ in known], [value for _, value in known]
    return None


def _fit_losses(axes: "Axes", lines: Sequence[Sequence[float]]) -> None:
    """Leave out of view the first values, which are often far above all others."""
    values = np.concatenate([np.asarray(line) for line in lines])
    high = max(np.nanpercentile(values, 98), max(line[-1] for line in lines))
    low = np.nanmin(values)
    axes.set_ylim(low - 0.05 * (high - low or 1), high + 0.08 * (high - low or 1))


def _look(place: int) -> tuple[str, str]:
    """Return the colour and marker of a line; colours that come again have other markers."""
    colours = len(COLOURS)
    return COLOURS[place % colours], MARKERS[(place + place // colours) % len(MARKERS)]


def _draw_curve(
    axes: "Axes", name: str, curve: Sequence[Point], place: int, through: Through | None
) -> None:
    colour, marker = _look(place)
    if through is not None:
        x, y = _coordinates(curve)
        axes.plot(x, y, marker, color=colour, markersize=4, alpha=0.35, label="_all")
        curve = through(curve)
    x, y = _coordinates(curve)
    line = "-" if place < len(COLOURS) else "-."
    axes.plot(x, y, line, color=colour, marker=marker, markersize=6, linewidth=1.8, label=name)
    for point in curve:
        for seed in point.seeds:
            ends = zip((point.latency_ms, point.quality), seed, strict=True)
            axes.plot(*ends, color=colour, linewidth=0.8, alpha=0.6, label="_seed")


def _draw_aware(axes: "Axes", curve: Sequence[Point], place: int, through: Through | None) -> None:
    """Draw the twin of a curve with computation: dashed, with hollow markers."""
    colour, marker = _look(place)
    if curve:
        line = _coordinates(curve if through is None else through(curve))
        axes.plot(*line, "--", color=colour)
        axes.plot(*_coordinates(curve), marker, color=colour, markerfacecolor="white")


def _draw_legend(axes: "Axes", systems: int, *, clock: bool) -> None:
    """Name the systems if there are several; many names stand beside the figure."""
    handles, names = axes.get_legend_handles_labels()
    if clock:
        handles += axes.plot([], [], "--o", color=GREY, linewidth=1.3, markerfacecolor="white")
        names.append("with computation")
    if systems > 1 or clock:
        place: dict[str, Any] = BESIDE if systems > FEW else {"loc": "best"}
        axes.legend(handles, names, frameon=False, **place)


def _label_points(axes: "Axes", systems: Mapping[str, Sequence[Point]]) -> None:
    """Write every point's label where it covers no other label and no point, if there is room."""
    figure: Any = axes.figure
    figure.draw_without_rendering()
    labelled = [(p, _look(i)[0]) for i, c in enumerate(systems.values()) for p in c if p.label]
    size = 8 if len(labelled) <= 20 else 6.5
    dots = [axes.transData.transform((p.latency_ms, p.quality)) for p, _ in labelled]
    scale = figure.dpi / 72
    taken = [_box(x, y, 5 * scale, 5 * scale) for x, y in dots]
    view = axes.get_window_extent()
    for (point, colour), (x, y) in zip(labelled, dots, strict=True):
        width, height = 0.56 * size * scale * len(point.label), 1.25 * size * scale
        best = min(
            _places(width, height, scale),
            key=lambda at: _covered(_box(x + at[0], y + at[1], width, height), taken, view),
        )
        taken.append(_box(x + best[0], y + best[1], width, height))
        far = math.hypot(*best) > 1.6 * height + width / 2
        axes.annotate(
            point.label,
            (point.latency_ms, point.quality),
            xytext=(best[0] / scale, best[1] / scale),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=size,
            color=colour,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.4} if far else None,
        )


def _places(width: float, height: float, scale: float) -> list[tuple[float, float]]:
    """Return offsets of a label's middle from its point, the nearest first."""
    up, side = height / 2 + 5 * scale, width / 2 + 6 * scale
    near = [(0.0, up), (0.0, -up), (side, 0.0), (-side, 0.0)]
    near += [(a * side, b * up) for a in (1, -1) for b in (1, -1)]
    far = [
        (a * side, b * (up + n * height)) for n in (1, 2, 3) for a in (0, 1, -1) for b in (1, -1)
    ]
    return near + far


def _box(x: float, y: float, width: float, height: float) -> tuple[float, float, float, float]:
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _covered(box: tuple[float, ...], taken: Sequence[tuple[float, ...]], view: Any) -> float:
    """Return the area of a box that lies on others, or outside of the axes (which is worse)."""
    a, b, c, d = box
    total = sum(
        max(0.0, min(c, r) - max(a, p)) * max(0.0, min(d, s) - max(b, q)) for p, q, r, s in taken
    )
    outside = max(0.0, view.x0 - a) + max(0.0, c - view.x1) + max(0.0, d - view.y1)
    return total + 50 * (outside + max(0.0, view.y0 - b))


def _coordinates(curve: Sequence[Point]) -> tuple[list[float], list[float]]:
    curve = sorted(curve)
    return [p.latency_ms for p in curve], [p.quality for p in curve]


def _draw_regimes(axes: "Axes") -> None:
    """Draw thin lines at 1 s and 2 s where they are in view, and name the regimes."""
    left, right = axes.get_xlim()
    for begin, end, name in REGIMES:
        low, high = max(begin, left), min(end, right)
        if left < begin < right:
            axes.axvline(begin, color=GREY, linewidth=0.8, linestyle=":", zorder=0)
        if high - low > 0.12 * (right - left):
            style: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": 8, "color": GREY}
            place = ((low + high) / 2, 0.985, f"{name} latency")
            axes.text(*place, transform=axes.get_xaxis_transform(), **style)


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure, in inches, without pyplot's global state."""
    Figure = import_extra("matplotlib.figure", "plots").Figure
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: "Figure", path: Path | str, *, pdf: bool = False) -> Path:
    """Write the figure without the upper and right lines of its frames; also as PDF if asked."""
    path = Path(path)
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    if pdf:
        figure.savefig(path.with_suffix(".pdf"))
    return path


def draw_alignment(
    path: Path | str,
    *,
    alpha: np.ndarray,
    hard: np.ndarray,
    edges: np.ndarray,
    pieces: Sequence[str],
    words: Sequence[str],
    times: np.ndarray,
) -> Path:
    """Draw every head as a map of tokens (down) over the speech (right), below the spoken words.

    Args:
        path: The picture to write.
        alpha: [heads, T, W], probabilities.
        hard: [heads, T], the position where each head decided to write; -1 for none.
        edges: The W + 1 times that bound the positions, in seconds.
        pieces: T target tokens.
        words: Words of the source.
        times: [words, 2], their beginnings and ends in seconds.
    """
    heads, targets, positions = alpha.shape
    if len(pieces) != targets or hard.shape != (heads, targets) or len(edges) != positions + 1:
        shapes = (alpha.shape, hard.shape, len(pieces), len(edges))
        raise ValueError(f"alpha, hard, pieces and edges do not fit together: {shapes}")
    rows, columns = (1, heads) if heads <= 2 else (-(-heads // 2), 2)
    size = 0.9 + min(3.2, 0.17 * targets + 0.5)
    figure = new_figure(min(16.0, 1.6 + 5.6 * columns), 1.1 + size * rows)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    middles, image = (edges[1:] + edges[:-1]) / 2, None
    grid: dict[str, Any] = {"cmap": "Blues", "vmin": 0, "vmax": max(float(alpha.max()), 1e-6)}
    for head, axes in enumerate(panels.flat):
        axes.set_visible(head < heads)
        if head >= heads:
            continue
        image = axes.pcolormesh(edges, np.arange(targets + 1) - 0.5, alpha[head], **grid)
        (written,) = np.nonzero(hard[head] >= 0)
        look: dict[str, Any] = {"color": ORANGE, "markersize": 4, "markeredgecolor": "white"}
        axes.plot(middles[hard[head, written]], written, "D", **look)
        axes.set_title(f"head {head + 1}", fontsize=9, loc="left")
        axes.tick_params(labelsize=8)
        axes.set(xlim=(0, edges[-1]), ylim=(targets - 0.5, -1.7))
        for word, (start, end) in zip(words, times, strict=False):
            axes.axvline(end, color=GREY, linewidth=0.6, alpha=0.7)
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}
            axes.text((start + end) / 2, -1.1, word, color="#333333", **style)
    for axes in panels[:, 0]:
        axes.set_yticks(range(targets), pieces)
    below = "speech (s), the words as they are said; marks: where the head writes"
    figure.supxlabel(below, fontsize=10)
    figure.suptitle("Where each head writes")
    assert image is not None
    figure.colorbar(image, ax=panels, label="probability of writing here", pad=0.01, aspect=30)
    return save_figure(figure, path)
