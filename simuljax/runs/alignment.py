"""Align the reference of one utterance with its speech, as the heads of a trained run do."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from data_pipelines.dataset import Split
from simuljax.audio import features_of, frame_count
from simuljax.config.model import STATE_MS, ModelConfig
from simuljax.models.joint import JointModel
from simuljax.nn.layers import STATISTICS
from simuljax.text import EOS
from simuljax.train.forward import shift
from simuljax.train.run import Run, Which, load_checkpoint


@dataclass(frozen=True, kw_only=True)
class UtteranceAlignment:
    """The expected alignment of one utterance with its reference."""

    alpha: np.ndarray  # [heads, T, W], of the last layer
    hard: np.ndarray  # [heads, T]: the decision point where the head writes, without chance
    edges: np.ndarray  # [W + 1]: seconds, between which a decision point listens
    pieces: Sequence[str]  # T
    words: Sequence[str]  # of what was said
    times: np.ndarray  # [words, 2]: seconds


def has_alignment(model: ModelConfig) -> bool:
    """Return True if the heads decide, at points that depend on the sound alone."""
    decides = model.decoder == "monotonic" and model.monotonic.policy == "learned"
    return decides and model.speech is not None and model.predecision.kind == "fixed"


def align_utterance(
    run: Run, split: Split, index: int, checkpoint: Which = "best"
) -> UtteranceAlignment:
    """Return the expected alignment of training, without its noise."""
    trained, front_end = load_checkpoint(run, checkpoint), run.front_end
    example = split.source[index]
    target = np.array([*run.target.encode(split.table.translation[index]), EOS])
    variables = {"params": trained.params, STATISTICS: trained.statistics}

    @jax.jit
    def align(variables, audio: jax.Array, target: jax.Array) -> tuple[jax.Array, ...]:
        model = JointModel(run.model).bind(variables)
        features = features_of(audio, front_end.features, front_end.statistics)
        frames = jnp.full(1, frame_count(audio.shape[1], front_end.features.filterbank))
        encoded = model.encode_speech(features, frames, train=False)
        points = model.speech_decisions(encoded)
        decoded = model.decode(shift(target), encoded, points, jnp.int32(1), train=False)
        alpha, energy = decoded.reading.alpha, decoded.reading.energy
        assert alpha is not None and energy is not None
        return alpha[-1, 0], energy[-1, 0], points.ends[0]

    alpha, energy, ends = jax.device_get(align(variables, example["audio"][None], target[None]))
    return UtteranceAlignment(
        alpha=alpha,
        hard=hard_decisions(energy),
        edges=np.concatenate([[0], (ends + 1) * STATE_MS / 1000]),
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
