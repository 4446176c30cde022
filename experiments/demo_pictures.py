"""The pictures of `simuljax demo`: every term of the loss, and what the heads look at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from data_pipelines.prepared import Split
from experiments.experiment import Experiment
from simuljax.audio import features_of, frame_count
from simuljax.models.translator import Translator
from simuljax.nn.batch_norm import STATISTICS
from simuljax.nn.subsampling import STRIDE
from simuljax.run import Run, learnt
from simuljax.text import EOS
from simuljax.train.metrics import read_metrics
from simuljax.train.objective import shift

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a8a8a"
STATE_S = STRIDE / 100  # seconds that an encoder state stands for
# A panel each: title, unit, and the terms with what they are called there.
PANELS: Sequence[tuple[str, str, Mapping[str, str]]] = (
    ("translation (NLL)", "nats per token", {"st_nll": "of speech", "mt_nll": "of text"}),
    ("recognition (CTC)", "nats per piece", {"ctc": ""}),
    ("online distillation (KD)", "nats per token", {"kd": ""}),
    ("encoder states (CAR)", "per sentence", {"car": ""}),
    ("decisions (DAR)", "per sentence", {"dar": ""}),
    ("latency (DAL)", "states per token", {"st_latency": "of speech", "mt_latency": "of text"}),
)


@dataclass(frozen=True, kw_only=True)
class Looked:
    """The expected alignment of one utterance with its reference."""

    alpha: np.ndarray  # [heads, T, W], of the last layer
    edges: np.ndarray  # [W + 1]: seconds, between which a decision point listens
    pieces: Sequence[str]  # T
    words: Sequence[str]  # of what was said
    times: np.ndarray  # [words, 2]: seconds


def draw_losses(experiment: Experiment, path: Path) -> Path:
    """Every term over the updates, in training and on held-out sentences."""
    lines = read_metrics(experiment.run)
    figure = _figure(11, 5.6)
    start = experiment.training.latency_after
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
    return _save(figure, path)


def draw_alignment(looked: Looked, path: Path) -> Path:
    """What each head looks at while it writes the reference, below the words that are said."""
    heads = len(looked.alpha)
    columns = min(2, heads)
    height = 0.9 + 0.24 * len(looked.pieces)
    figure = _figure(5.6 * columns, 0.6 + height * -(-heads // columns))
    panels = figure.subplots(-(-heads // columns), columns, sharex=True, sharey=True, squeeze=False)
    image = None
    for head, axes in enumerate(panels.flat[:heads]):
        image = axes.pcolormesh(
            looked.edges,
            np.arange(len(looked.pieces) + 1) - 0.5,
            looked.alpha[head],
            cmap="Blues",
            vmin=0,
            vmax=1,
        )
        axes.set_title(f"head {head + 1}", fontsize=10, loc="left")
        axes.set_yticks(range(len(looked.pieces)), looked.pieces, fontsize=9)
        axes.set_ylim(len(looked.pieces) - 0.5, -1.7)
        _mark_words(axes, looked)
    figure.supxlabel("speech heard (s); above, the words when they are said", fontsize=10)
    if image is not None:
        figure.colorbar(image, ax=panels, label="probability of writing here", aspect=30, pad=0.01)
    return _save(figure, path)


def look(run: Run, split: Split, index: int) -> Looked:
    """The expected alignment that training sees, without its noise."""
    trained, heard = learnt(run), run.heard
    example = split.source[index]
    target = np.array([*run.target.encode(split.table.translation[index]), EOS])
    variables = {"params": trained.params, STATISTICS: trained.statistics}

    @jax.jit
    def align(variables, audio: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
        model = Translator(run.model).bind(variables)
        features = features_of(audio, heard.features, heard.statistics)
        frames = jnp.full(1, frame_count(audio.shape[1], heard.features.filterbank))
        encoded = model.encode_speech(features, frames, train=False)
        points = model.speech_decisions(encoded)
        decoded = model.decode(shift(target), encoded, points, jnp.int32(1), train=False)
        alpha = decoded.reading.alpha
        assert alpha is not None
        return alpha[-1, 0], points.ends[0]

    alpha, ends = jax.device_get(align(variables, example["audio"][None], target[None]))
    return Looked(
        alpha=alpha,
        edges=np.concatenate([[0], (ends + 1) * STATE_S]),
        pieces=[*map(legible, run.target.spell(target)), "(end)"],
        words=split.table.transcript[index].split(),
        times=example["word_ms"].reshape(-1, 2) / 1000,
    )


def legible(piece: str) -> str:
    """A piece that begins a word without SentencePiece's mark, one that goes on with a hyphen."""
    if piece.startswith("▁"):
        return piece[1:] or "_"
    return f"-{piece}" if piece[0].isalpha() else piece


def _draw_term(axes: "Axes", lines: Sequence[Mapping], term: str, colour: str, name: str) -> None:
    """A line for the batches of training, dots for the held-out sentences."""
    for split, style in (("train", "-"), ("valid", "o")):
        found = [
            (line["step"], line["values"].get(term)) for line in lines if line["split"] == split
        ]
        points = [point for point in found if point[1] is not None]
        if points:
            label = name if name and split == "train" else None
            axes.plot(*zip(*points, strict=True), style, color=colour, label=label, markersize=4)


def _mark_words(axes: "Axes", looked: Looked) -> None:
    """The words at the top, each above its time, and thin lines where one ends."""
    for word, (start, end) in zip(looked.words, looked.times, strict=False):
        axes.axvline(end, color=GREY, linewidth=0.6, alpha=0.7)
        axes.text(
            (start + end) / 2, -1.1, word, ha="center", va="center", fontsize=8, color="#333333"
        )
    axes.set_xlim(0, looked.edges[-1])


def _figure(width: float, height: float) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise OSError("pictures need matplotlib: pip install 'simuljax[plots]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: "Figure", path: Path) -> Path:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path
