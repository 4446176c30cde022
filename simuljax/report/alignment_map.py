"""Draw the attention of one utterance: every layer and head as a map of tokens over the source."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simuljax.report.figures import GREY, ORANGE, new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class SpokenWord:
    """A word of the source with the times of its speech."""

    text: str
    start_ms: float
    end_ms: float


def draw_alignment(
    alignment: np.ndarray,
    tokens: Sequence[str],
    path: Path | str,
    *,
    positions: Sequence[str] | None = None,
    state_ms: float | None = None,
    edges_ms: Sequence[float] | np.ndarray | None = None,
    spoken: Sequence[SpokenWord] = (),
    hard: np.ndarray | None = None,
    title: str = "",
    meaning: str = "probability",
) -> Path:
    """Draw every head of every layer as a map of tokens (down) over source positions (right).

    Args:
        alignment: [layers, heads, T, W], probabilities.
        tokens: T target tokens.
        path: The picture to write.
        positions: W words or tokens of the source, if it has them;
        state_ms: or how much speech an encoder state stands for, for an axis in seconds;
        edges_ms: or the W + 1 times that bound the positions.
        spoken: Words of the source, written above their times.
        hard: [layers, heads, T], the position where each head decided to write; -1 for none.
        title: Title of the figure.
        meaning: Name of the values.
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


def _edges(
    width: int,
    positions: Sequence[str] | None,
    state_ms: float | None,
    edges_ms: Sequence[float] | np.ndarray | None,
) -> tuple[np.ndarray, str]:
    """Return the edges of the columns and the label of the axis."""
    if edges_ms is not None:
        if len(edges_ms) != width + 1:
            raise ValueError(f"edges_ms must be {width + 1} times, not {len(edges_ms)}")
        return np.asarray(edges_ms, float) / 1000, "speech (s)"
    if positions is None and state_ms is not None:
        return np.arange(width + 1) * state_ms / 1000, "speech (s)"
    return np.arange(width + 1) - 0.5, "encoder state" if positions is None else "source"


def _panels(shape: Sequence[int], *, above: bool) -> tuple["Figure", np.ndarray]:
    """Return one row of panels per layer; the heads of a single layer stand two by two."""
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
    """Draw all maps on one scale, up to the largest value."""
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


def _draw_spoken(axes: "Axes", spoken: Sequence[SpokenWord], end: float) -> None:
    """Write the words at the top, each above its time, with thin lines where one ends."""
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
