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
from simuljax.eval import pictures
from simuljax.eval.pictures import BLUE, GREY, ORANGE, Spoken, new_figure, save_figure
from simuljax.models.translator import Translator
from simuljax.nn.batch_norm import STATISTICS
from simuljax.nn.subsampling import STRIDE
from simuljax.run import Run, learnt
from simuljax.text import EOS
from simuljax.train.metrics import read_metrics
from simuljax.train.objective import shift

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    hard: np.ndarray  # [heads, T]: the decision point where the head writes, without chance
    edges: np.ndarray  # [W + 1]: seconds, between which a decision point listens
    pieces: Sequence[str]  # T
    words: Sequence[str]  # of what was said
    times: np.ndarray  # [words, 2]: seconds


def draw_losses(experiment: Experiment, path: Path) -> Path:
    """Every term over the updates, in training and on held-out sentences."""
    lines = read_metrics(experiment.run)
    figure = new_figure(11, 5.6)
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
    return save_figure(figure, path)


def draw_alignment(looked: Looked, path: Path) -> Path:
    """What each head looks at while it writes the reference, below the words that are said."""
    pairs = zip(looked.words, looked.times * 1000, strict=False)
    return pictures.draw_alignment(
        looked.alpha[None],
        looked.pieces,
        path,
        edges_ms=looked.edges * 1000,
        spoken=[Spoken(text=word, start_ms=start, end_ms=end) for word, (start, end) in pairs],
        hard=looked.hard[None],
        title="Where each head writes",
        meaning="probability of writing here",
    )


def look(run: Run, split: Split, index: int) -> Looked:
    """The expected alignment that training sees, without its noise."""
    trained, heard = learnt(run), run.heard
    example = split.source[index]
    target = np.array([*run.target.encode(split.table.translation[index]), EOS])
    variables = {"params": trained.params, STATISTICS: trained.statistics}

    @jax.jit
    def align(variables, audio: jax.Array, target: jax.Array) -> tuple[jax.Array, ...]:
        model = Translator(run.model).bind(variables)
        features = features_of(audio, heard.features, heard.statistics)
        frames = jnp.full(1, frame_count(audio.shape[1], heard.features.filterbank))
        encoded = model.encode_speech(features, frames, train=False)
        points = model.speech_decisions(encoded)
        decoded = model.decode(shift(target), encoded, points, jnp.int32(1), train=False)
        alpha, energy = decoded.reading.alpha, decoded.reading.energy
        assert alpha is not None and energy is not None
        return alpha[-1, 0], energy[-1, 0], points.ends[0]

    alpha, energy, ends = jax.device_get(align(variables, example["audio"][None], target[None]))
    return Looked(
        alpha=alpha,
        hard=hard_decisions(energy),
        edges=np.concatenate([[0], (ends + 1) * STATE_S]),
        pieces=[*map(legible, run.target.spell(target)), "(end)"],
        words=split.table.transcript[index].split(),
        times=example["word_ms"].reshape(-1, 2) / 1000,
    )


def hard_decisions(energy: np.ndarray) -> np.ndarray:
    """The point [heads, T] where each head writes: the first from where it stood with energy >= 0.

    A head that rejects all there are writes at the last, as training lets it.
    """
    heads, targets, width = energy.shape
    stands, written = np.zeros(heads, int), np.zeros((heads, targets), int)
    for target in range(targets):
        accepted = (energy[:, target] >= 0) & (np.arange(width) >= stands[:, None])
        stands = np.where(accepted.any(-1), accepted.argmax(-1), width - 1)
        written[:, target] = stands
    return written


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
