"""Compute and draw the expected alignment of an utterance, and the hard decisions of its heads."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from data_pipelines.dataset import Split
from simuljax.audio import features_of, frame_count
from simuljax.config.model import ModelConfig
from simuljax.models.translator import Translator
from simuljax.nn.batch_norm import STATISTICS
from simuljax.nn.subsampling import STRIDE
from simuljax.report import alignment_map
from simuljax.report.alignment_map import SpokenWord
from simuljax.serve.run import Run, learnt
from simuljax.text import EOS
from simuljax.train.average import Which
from simuljax.train.objective import shift

STATE_S = STRIDE / 100  # seconds that an encoder state stands for


@dataclass(frozen=True, kw_only=True)
class Looked:
    """The expected alignment of one utterance with its reference."""

    alpha: np.ndarray  # [heads, T, W], of the last layer
    hard: np.ndarray  # [heads, T]: the decision point where the head writes, without chance
    edges: np.ndarray  # [W + 1]: seconds, between which a decision point listens
    pieces: Sequence[str]  # T
    words: Sequence[str]  # of what was said
    times: np.ndarray  # [words, 2]: seconds


def draw_alignment(looked: Looked, path: Path) -> Path:
    """Draw where each head writes the reference, below the words that are spoken."""
    pairs = zip(looked.words, looked.times * 1000, strict=False)
    return alignment_map.draw_alignment(
        looked.alpha[None],
        looked.pieces,
        path,
        edges_ms=looked.edges * 1000,
        spoken=[SpokenWord(text=word, start_ms=start, end_ms=end) for word, (start, end) in pairs],
        hard=looked.hard[None],
        title="Where each head writes",
        meaning="probability of writing here",
    )


def has_alignment(model: ModelConfig) -> bool:
    """Return True if the heads decide, at points that depend on the sound alone."""
    decides = model.decoder == "monotonic" and model.monotonic.policy == "learnt"
    return decides and model.speech is not None and model.predecision.kind == "fixed"


def look(run: Run, split: Split, index: int, checkpoint: Which = "best") -> Looked:
    """Return the expected alignment of training, without its noise."""
    trained, heard = learnt(run, checkpoint), run.heard
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
    """Return the point [heads, T] where each head writes: the next one with energy >= 0.

    A head that rejects every point writes at the last, as in training.
    """
    heads, targets, width = energy.shape
    stands, written = np.zeros(heads, int), np.zeros((heads, targets), int)
    for target in range(targets):
        accepted = (energy[:, target] >= 0) & (np.arange(width) >= stands[:, None])
        stands = np.where(accepted.any(-1), accepted.argmax(-1), width - 1)
        written[:, target] = stands
    return written


def legible(piece: str) -> str:
    """Format a piece: SentencePiece's mark is removed, a continuation gets a hyphen."""
    if piece.startswith("▁"):
        return piece[1:] or "_"
    return f"-{piece}" if piece[0].isalpha() else piece
