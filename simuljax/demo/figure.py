"""The figure of `simuljax demo`: every term of the loss."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simuljax.config.experiment import Experiment
from simuljax.report.figures import BLUE, GREY, ORANGE, new_figure, save_figure
from simuljax.train.metrics import read_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Per panel: title, unit, and the terms with their labels.
PANELS: Sequence[tuple[str, str, Mapping[str, str]]] = (
    ("translation (NLL)", "nats per token", {"st_nll": "of speech", "mt_nll": "of text"}),
    ("recognition (CTC)", "nats per piece", {"ctc": ""}),
    ("online distillation (KD)", "nats per token", {"kd": ""}),
    ("encoder states (CAR)", "per sentence", {"car": ""}),
    ("decisions (DAR)", "per sentence", {"dar": ""}),
    ("latency (DAL)", "states per token", {"st_latency": "of speech", "mt_latency": "of text"}),
)


def draw_losses(experiment: Experiment, path: Path) -> Path:
    """Draw every term over the updates, for training and held-out sentences."""
    lines = read_metrics(experiment.run)
    figure = new_figure(11, 5.6)
    latency = experiment.training.objective.term("st_latency")
    start = None if latency is None else latency.start
    for axes, (title, unit, terms) in zip(figure.subplots(2, 3).flat, PANELS, strict=True):
        for colour, (term, name) in zip((BLUE, ORANGE), terms.items(), strict=False):
            _draw_term(axes, lines, term, colour, name)
        if isinstance(start, int):
            axes.axvline(start, color=GREY, linestyle=":", linewidth=1)
        axes.set_title(title, fontsize=10)
        axes.set_ylabel(unit, fontsize=8)
        axes.set_ylim(bottom=0)
        axes.tick_params(labelsize=8)
        if len(terms) > 1:
            axes.legend(frameon=False, fontsize=8)
    below = "updates (dots: held-out sentences; dotted line: latency begins to count)"
    figure.supxlabel(below, fontsize=10)
    return save_figure(figure, path)


def _draw_term(axes: "Axes", lines: Sequence[Mapping], term: str, colour: str, name: str) -> None:
    """Draw a line for the training batches and dots for the held-out sentences."""
    for split, style in (("train", "-"), ("valid", "o")):
        found = [
            (line["step"], line["values"].get(term)) for line in lines if line["split"] == split
        ]
        points = [point for point in found if point[1] is not None]
        if points:
            label = name if name and split == "train" else None
            axes.plot(*zip(*points, strict=True), style, color=colour, label=label, markersize=4)
