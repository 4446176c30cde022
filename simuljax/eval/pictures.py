"""Pictures of what a system does, with matplotlib (the extra `plots`). Each returns its path.

draw_curves       quality against latency, a line a system
draw_staircase    one utterance: what had been heard when each word was committed
draw_alignment    one utterance: the attention of every layer and head
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simuljax.eval.curves import Point
from simuljax.eval.records import Record, RecordError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

# Distinct for the colour-blind too, and by their markers in print (Okabe & Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
BLUE, ORANGE, GREY = COLOURS[0], COLOURS[1], "#8a8a8a"
NAMED = 60  # more words than this could not be read
REGIMES = ((0.0, 1000.0, "low"), (1000.0, 2000.0, "medium"), (2000.0, np.inf, "high"))


def draw_curves(
    systems: Mapping[str, Sequence[Point]],
    path: Path | str,
    *,
    latency: str = "AL",
    quality: str = "BLEU",
    title: str = "",
) -> Path:
    """Quality against latency, with the regimes; settings are written beside few points."""
    figure = _figure(8, 5)
    axes = figure.subplots()
    points = [point for curve in systems.values() for point in curve]
    if not points:
        raise ValueError("there are no points to draw")
    for i, (name, curve) in enumerate(systems.items()):
        _draw_curve(axes, name, curve, i, labelled=len(points) <= 16)
    x = [point.latency_ms for point in points]
    margin = 0.08 * (max(x) - min(x)) or 100
    axes.set_xlim(min(x) - margin, max(x) + margin)
    axes.margins(y=0.12)
    _draw_regimes(axes)
    axes.set(xlabel=f"{latency} (ms), lower is sooner", ylabel=quality, title=title)
    if len(systems) > 1:
        axes.legend(frameon=False, loc="lower right")
    return _save(figure, path)


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
    figure = _figure(9, height + (2.2 if samples is not None else 1.2))
    if samples is None:
        panels = [figure.subplots()]
    else:
        panels = [*figure.subplots(2, 1, sharex=True, height_ratios=[height, 0.9])]
        _draw_waveform(panels[1], np.asarray(samples), rate)
    _draw_steps(panels[0], record, words)
    panels[0].set_title(title or "READ to the right, WRITE upwards")
    clock = "; dots: time on the clock" if any(record.elapsed) else ""
    panels[-1].set_xlabel(f"speech heard (s){clock}")
    return _save(figure, path)


def draw_alignment(
    alignment: np.ndarray,
    tokens: Sequence[str],
    path: Path | str,
    *,
    positions: Sequence[str] | None = None,
    state_ms: float | None = None,
    title: str = "",
) -> Path:
    """Every head of every layer as a map of tokens (down) over source positions (right).

    Args:
        alignment: [layers, heads, T, W], probabilities.
        tokens: T target tokens.
        path: The picture to write.
        positions: W words or tokens of the source, if it has them;
        state_ms: or how much speech an encoder state stands for, for an axis in seconds.
        title: Above all.
    """
    alignment = np.asarray(alignment, np.float32)
    if alignment.ndim != 4 or alignment.shape[2] != len(tokens):
        raise ValueError(
            f"alignment must be [layers, heads, {len(tokens)} tokens, W], not {alignment.shape}"
        )
    layers, heads, targets, width = alignment.shape
    size = 0.55 + min(3.2, 0.17 * targets + 0.5)
    figure = _figure(min(16.0, 1.6 + 2.6 * heads), 1.1 + size * layers)
    panels = figure.subplots(layers, heads, sharex=True, sharey=True, squeeze=False)
    in_seconds = positions is None and state_ms is not None
    scale = state_ms / 1000 if in_seconds and state_ms else 1.0
    left = 0.0 if in_seconds else -0.5
    extent = (left, left + width * scale, targets - 0.5, -0.5)
    image = _draw_maps(panels, alignment, extent)
    _name_tokens(panels, tokens, positions)
    below = "source" if positions else "speech (s)" if in_seconds else "encoder state"
    figure.supxlabel(below, fontsize=10)
    figure.suptitle(title or "Where each token attends")
    figure.colorbar(image, ax=panels, label="probability", pad=0.01, aspect=30)
    return _save(figure, path)


def _draw_curve(
    axes: "Axes", name: str, curve: Sequence[Point], place: int, *, labelled: bool
) -> None:
    curve = sorted(curve)
    colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
    x, y = [p.latency_ms for p in curve], [p.quality for p in curve]
    axes.plot(x, y, color=colour, marker=marker, markersize=6, linewidth=1.8, label=name)
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


def _draw_maps(
    panels: np.ndarray, alignment: np.ndarray, extent: tuple[float, float, float, float]
) -> "AxesImage":
    """One scale for all of them, up to the largest value there is."""
    highest = max(float(alignment.max()), 1e-6)
    images = []
    for (layer, head), axes in np.ndenumerate(panels):
        values = alignment[layer, head]
        style = {"cmap": "Blues", "aspect": "auto", "interpolation": "nearest"}
        images.append(axes.imshow(values, vmin=0, vmax=highest, extent=extent, **style))
        axes.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=9)
        axes.tick_params(labelsize=8)
    return images[-1]


def _name_tokens(
    panels: np.ndarray, tokens: Sequence[str], positions: Sequence[str] | None
) -> None:
    for axes in panels[:, 0]:
        axes.set_yticks(range(len(tokens)), tokens)
    for axes in panels[-1] if positions is not None else []:
        axes.set_xticks(range(len(positions or ())), positions or (), rotation=90)


def _figure(width: float, height: float) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise OSError("pictures need matplotlib: pip install 'simuljax[plots]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: "Figure", path: Path | str) -> Path:
    path = Path(path)
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path
