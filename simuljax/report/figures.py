"""Pictures of what a system does, with matplotlib (the extra `plots`). Each returns its path.

draw_curves       quality against latency, a line a system
draw_staircase    one utterance: what had been heard when each word was committed
draw_alignment    one utterance: the attention of every layer and head
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from simuljax.errors import import_extra
from simuljax.eval.curves import Point
from simuljax.eval.logs import Record, RecordError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

Through = Callable[[Sequence[Point]], Sequence[Point]]

# Distinct for the colour-blind too, and by their markers in print (Okabe & Ito; the last, Tol).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
COLOURS += ("#882255", "#999933", "#bbbbbb")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
FEW = 5  # systems whose names fit into the figure
BLUE, ORANGE, GREY = COLOURS[0], COLOURS[1], "#8a8a8a"
NAMED = 60  # more words than this could not be read
REGIMES = ((0.0, 1000.0, "low"), (1000.0, 2000.0, "medium"), (2000.0, np.inf, "high"))


@dataclass(frozen=True, kw_only=True)
class Spoken:
    """A word of the source, and when it is said."""

    text: str
    start_ms: float
    end_ms: float


def draw_curves(
    systems: Mapping[str, Sequence[Point]],
    path: Path | str,
    *,
    latency: str = "AL",
    quality: str = "BLEU",
    title: str = "",
    unit: Literal["ms", "words"] = "ms",
    aware: Mapping[str, Sequence[Point]] | None = None,
    offline: Mapping[str, float] | None = None,
    through: Through | None = None,
) -> Path:
    """Quality against latency, with the regimes; settings are written beside few points.

    From a point that is a mean over seeds a thin line goes to each of them.

    Args:
        systems: The points of every line.
        path: The picture to write.
        latency: What the points' latency is.
        quality: What their quality is.
        title: Above all.
        unit: Of latency: words read, for sources that are text; they have no regimes.
        aware: The same with computation, for systems that have a clock: a dashed line each.
        offline: The quality with the whole source, for systems that were asked: a level each.
        through: Which points of a system its line goes through; the others stay as dots.
    """
    systems, aware = (
        {name: [p for p in line if math.isfinite(p.latency_ms + p.quality)] for name, line in lines}
        for lines in (systems.items(), (aware or {}).items())
    )
    systems, offline = {name: systems.get(name, []) for name in [*systems, *aware]}, offline or {}
    points = [p for lines in (systems, aware) for curve in lines.values() for p in curve]
    if not points:
        raise ValueError("there are no points to draw")
    figure = new_figure(8 if len(systems) <= FEW else 12, 5)
    axes = figure.subplots()
    labelled = sum(map(len, systems.values())) <= 8  # more would lie on each other
    for i, (name, curve) in enumerate(systems.items()):
        _draw_curve(axes, name, curve, i, labelled=labelled, through=through)
        _draw_aware(axes, aware.get(name, ()), i, through)
    x = [at for p in points for at in (p.latency_ms, *(seed[0] for seed in p.seeds))]
    margin = 0.08 * (max(x) - min(x)) or 0.1 * max(abs(x[0]), 1)
    axes.set_xlim(min(x) - margin, max(x) + margin)
    for i, name in enumerate(systems):
        _draw_level(axes, offline.get(name), _look(i)[0])
    axes.margins(y=0.12)
    if unit == "ms":
        _draw_regimes(axes)
    axes.set(xlabel=f"{latency} ({unit}), lower is sooner", ylabel=quality, title=title)
    _draw_legend(axes, len(systems), clock=any(aware.values()))
    return save_figure(figure, path)


def draw_staircase(
    record: Record,
    path: Path | str,
    *,
    samples: np.ndarray | None = None,
    rate: int = 16000,
    title: str = "",
) -> Path:
    """Words committed against speech heard: right is READ, up is WRITE; the waveform below.

    The dotted line is the ideal that AL measures from. With a clock in the record, dots show when
    each word was really there.
    """
    words = record.prediction.split()
    if len(words) != len(record.delays):
        words = [*"".join(words)]
    if not words or len(words) != len(record.delays):
        raise RecordError(
            f"record {record.index}: {len(words)} words and {len(record.delays)} delays: "
            "a staircase needs a delay for each, and at least one"
        )
    height = min(14.0, max(2.0, 0.22 * len(words)))
    figure = new_figure(9, height + (2.2 if samples is not None else 1.2))
    if samples is None:
        panels = [figure.subplots()]
    else:
        panels = [*figure.subplots(2, 1, sharex=True, height_ratios=[height, 0.9])]
        _draw_waveform(panels[1], np.asarray(samples), rate)
    _draw_steps(panels[0], record, words)
    panels[0].set_title(title or "READ to the right, WRITE upwards")
    clock = "; dots: time on the clock" if any(record.elapsed) else ""
    panels[-1].set_xlabel(f"speech heard (s){clock}")
    return save_figure(figure, path)


def draw_alignment(
    alignment: np.ndarray,
    tokens: Sequence[str],
    path: Path | str,
    *,
    positions: Sequence[str] | None = None,
    state_ms: float | None = None,
    edges_ms: Sequence[float] | np.ndarray | None = None,
    spoken: Sequence[Spoken] = (),
    hard: np.ndarray | None = None,
    title: str = "",
    meaning: str = "probability",
) -> Path:
    """Every head of every layer as a map of tokens (down) over source positions (right).

    Args:
        alignment: [layers, heads, T, W], probabilities.
        tokens: T target tokens.
        path: The picture to write.
        positions: W words or tokens of the source, if it has them;
        state_ms: or how much speech an encoder state stands for, for an axis in seconds;
        edges_ms: or the W + 1 times between which each position listens.
        spoken: Words of the source, written above the times at which they are said.
        hard: [layers, heads, T], the position where each head decided to write; below 0 for none.
        title: Above all.
        meaning: Of the values.
    """
    alignment = np.asarray(alignment, np.float32)
    if alignment.ndim != 4 or alignment.shape[2] != len(tokens):
        raise ValueError(
            f"alignment must be [layers, heads, {len(tokens)} tokens, W], not {alignment.shape}"
        )
    edges, below = _edges(alignment.shape[3], positions, state_ms, edges_ms)
    if hard is not None and np.shape(hard) != alignment.shape[:3]:
        raise ValueError(f"hard must be {alignment.shape[:3]}, not {np.shape(hard)}")
    if spoken and below != "speech (s)":
        raise ValueError("spoken words have times: give state_ms or edges_ms for an axis of time")
    figure, panels = _panels(alignment.shape, above=bool(spoken))
    image = _draw_maps(panels, alignment, edges, hard)
    for axes in panels.flat if spoken else ():
        _draw_spoken(axes, spoken, float(edges[-1]))
    _name_tokens(panels, tokens, positions)
    marks = "; marks: where the head writes" if hard is not None else ""
    figure.supxlabel(below + ", the words as they are said" * bool(spoken) + marks, fontsize=10)
    figure.suptitle(title or "Where each token attends")
    figure.colorbar(image, ax=panels, label=meaning, pad=0.01, aspect=30)
    return save_figure(figure, path)


def _look(place: int) -> tuple[str, str]:
    """Colour and mark of a line; when all colours have been used, they come with other marks."""
    colours = len(COLOURS)
    return COLOURS[place % colours], MARKERS[(place + place // colours) % len(MARKERS)]


def _draw_curve(
    axes: "Axes",
    name: str,
    curve: Sequence[Point],
    place: int,
    *,
    labelled: bool,
    through: Through | None,
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
    for point in curve if labelled else []:
        axes.annotate(
            point.label,
            (point.latency_ms, point.quality),
            xytext=(0, 8 if place % 2 == 0 else -15),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color=colour,
        )


def _draw_aware(axes: "Axes", curve: Sequence[Point], place: int, through: Through | None) -> None:
    """The twin of a curve with computation: dashed, its marks hollow."""
    colour, marker = _look(place)
    if curve:
        line = axes.plot(*_coordinates(curve if through is None else through(curve)), "--")
        marks = axes.plot(*_coordinates(curve), marker, markerfacecolor="white")
        for each in (*line, *marks):
            each.set_color(colour)


def _draw_level(axes: "Axes", quality: float | None, colour: str) -> None:
    if quality is None:
        return
    axes.axhline(quality, color=colour, linewidth=1, linestyle=(0, (1, 2)), zorder=1)
    style = {"ha": "left", "va": "bottom", "fontsize": 8, "color": colour}
    axes.text(0.005, quality, "offline", transform=axes.get_yaxis_transform(), **style)


def _draw_legend(axes: "Axes", systems: int, *, clock: bool) -> None:
    """Who is who, if there is one to tell apart; dashes are explained once.

    Many names stand beside the lines, since they would cover some of them.
    """
    handles, names = axes.get_legend_handles_labels()
    if clock:
        handles += axes.plot([], [], "--o", color=GREY, linewidth=1.3, markerfacecolor="white")
        names.append("with computation")
    if systems > 1 or clock:
        if systems <= FEW:
            axes.legend(handles, names, frameon=False, loc="lower right")
        else:
            axes.legend(handles, names, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1))


def _coordinates(curve: Sequence[Point]) -> tuple[list[float], list[float]]:
    curve = sorted(curve)
    return [p.latency_ms for p in curve], [p.quality for p in curve]


def _draw_regimes(axes: "Axes") -> None:
    """Thin lines at 1 s and 2 s where they are in view, and the names of what is between."""
    left, right = axes.get_xlim()
    for begin, end, name in REGIMES:
        low, high = max(begin, left), min(end, right)
        if begin > left and begin < right:
            axes.axvline(begin, color=GREY, linewidth=0.8, linestyle=":", zorder=0)
        if high - low > 0.12 * (right - left):
            place = ((low + high) / 2, 0.985)
            axes.text(
                *place,
                f"{name} latency",
                transform=axes.get_xaxis_transform(),
                ha="center",
                va="top",
                fontsize=8,
                color=GREY,
            )


def _draw_steps(axes: "Axes", record: Record, words: Sequence[str]) -> None:
    seconds = np.array(record.delays) / 1000
    source, count = record.source_length / 1000, len(words)
    x = np.concatenate([[0.0], np.repeat(seconds, 2), [max(source, seconds[-1])]])
    y = np.concatenate([np.repeat(np.arange(count), 2), [count, count]])
    axes.plot(x, y, color=BLUE, linewidth=1.6, zorder=3, clip_on=False)
    ideal = record.reference_length("word" if " " in record.prediction else "char")
    # A word is drawn half a step above the words before it; the ideal writes word 1 at 0 s.
    axes.plot([0, source], [0.5, ideal + 0.5], color=GREY, linestyle=":", label="ideal of AL")
    if any(record.elapsed):
        clock, middle = np.array(record.elapsed) / 1000, np.arange(count) + 0.5
        axes.plot(clock, middle, ".", color=ORANGE, markersize=5, label="with computation")
    for i, (word, at) in enumerate(zip(words, seconds, strict=True)):
        if count > NAMED:
            break
        place = {"xytext": (-5, 0), "textcoords": "offset points", "ha": "right", "va": "center"}
        axes.annotate(word, (at, i + 0.5), fontsize=8, **place)
    axes.axvline(source, color=GREY, linewidth=0.8, label="the source ends")
    axes.set(ylabel="words committed", ylim=(0, max(count, ideal) + 0.8))
    axes.legend(frameon=False, loc="upper left", fontsize=8)


def _draw_waveform(axes: "Axes", samples: np.ndarray, rate: int) -> None:
    """The extremes of every short stretch: what the eye sees, at a size that can be drawn."""
    if samples.ndim != 1 or not len(samples):
        raise ValueError(f"samples must be mono and not empty, not of shape {samples.shape}")
    stretch = max(1, len(samples) // 2000)
    whole = samples[: len(samples) // stretch * stretch].reshape(-1, stretch)
    at = (np.arange(len(whole)) + 0.5) * stretch / rate
    axes.fill_between(at, whole.min(1), whole.max(1), color=GREY, linewidth=0)
    axes.set(yticks=[], ylabel="speech")


def _edges(
    width: int,
    positions: Sequence[str] | None,
    state_ms: float | None,
    edges_ms: Sequence[float] | np.ndarray | None,
) -> tuple[np.ndarray, str]:
    """Where columns begin and end, and what the axis is."""
    if edges_ms is not None:
        if len(edges_ms) != width + 1:
            raise ValueError(f"edges_ms must be {width + 1} times, not {len(edges_ms)}")
        return np.asarray(edges_ms, float) / 1000, "speech (s)"
    if positions is None and state_ms is not None:
        return np.arange(width + 1) * state_ms / 1000, "speech (s)"
    return np.arange(width + 1) - 0.5, "encoder state" if positions is None else "source"


def _panels(shape: Sequence[int], *, above: bool) -> tuple["Figure", np.ndarray]:
    """A row a layer; the heads of one layer alone stand two by two."""
    layers, heads, targets, _ = shape
    rows, columns = (layers, heads) if layers > 1 or heads <= 2 else (-(-heads // 2), 2)
    size = 0.55 + min(3.2, 0.17 * targets + 0.5) + 0.35 * above
    wide = 5.6 if layers == 1 else 2.6
    figure = new_figure(min(16.0, 1.6 + wide * columns), 1.1 + size * rows)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes in panels.flat[layers * heads :]:
        axes.set_visible(False)
    return figure, panels


def _draw_maps(
    panels: np.ndarray, alignment: np.ndarray, edges: np.ndarray, hard: np.ndarray | None
) -> "QuadMesh":
    """One scale for all of them, up to the largest value there is."""
    layers, heads, targets, _ = alignment.shape
    highest = max(float(alignment.max()), 1e-6)
    rows, middles = np.arange(targets + 1) - 0.5, (edges[1:] + edges[:-1]) / 2
    images = []
    for (layer, head), axes in zip(np.ndindex(layers, heads), panels.flat, strict=False):
        values = alignment[layer, head]
        images.append(axes.pcolormesh(edges, rows, values, cmap="Blues", vmin=0, vmax=highest))
        if hard is not None:
            (written,) = np.nonzero(hard[layer, head] >= 0)
            at = middles[hard[layer, head, written]]
            axes.plot(at, written, "D", color=ORANGE, markersize=4, markeredgecolor="white")
        name = f"layer {layer + 1}, head {head + 1}" if layers > 1 else f"head {head + 1}"
        axes.set_title(name, fontsize=9, loc="left" if layers == 1 else "center")
        axes.tick_params(labelsize=8)
        axes.set_ylim(targets - 0.5, -0.5)
    return images[-1]


def _draw_spoken(axes: "Axes", spoken: Sequence[Spoken], end: float) -> None:
    """The words at the top, each above its time, and thin lines where one ends."""
    axes.set(xlim=(0, end), ylim=(axes.get_ylim()[0], -1.7))
    for word in spoken:
        middle = (word.start_ms + word.end_ms) / 2000
        axes.axvline(word.end_ms / 1000, color=GREY, linewidth=0.6, alpha=0.7)
        axes.text(middle, -1.1, word.text, ha="center", va="center", fontsize=8, color="#333333")


def _name_tokens(
    panels: np.ndarray, tokens: Sequence[str], positions: Sequence[str] | None
) -> None:
    for axes in panels[:, 0]:
        axes.set_yticks(range(len(tokens)), tokens)
    for axes in panels[-1] if positions is not None else []:
        axes.set_xticks(range(len(positions or ())), positions or (), rotation=90)


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure, in inches; no global state of pyplot."""
    Figure = import_extra("matplotlib.figure", "plots").Figure
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: "Figure", path: Path | str) -> Path:
    """Writes the picture, without the frames' upper and right lines."""
    path = Path(path)
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path
