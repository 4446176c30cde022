"""Where the heads that follow the speech look for each token of a text.

For tokens t of a window's text and encoder states s, with the energies e of each such head,

    a[t, s] = softmax_s e[t, s]                           over the states of real sound
    z[t, s] = (a[t, s] - mean_t a[:, s]) / std_t a[:, s]  so that what all look at counts little
    m[t, s] = mean over heads of median_{|k| <= 3} z[t, s + k]

States are 20 ms apart.
"""

from collections.abc import Sequence

import jax
import numpy as np
from jax import Array

from simuljax.models.whisper.decoding import Context
from simuljax.models.whisper.model import Memory, Model, no_padding, nothing_written, rows_of
from simuljax.models.whisper.tokenizer import Tokenizer

_WIDTH = 7  # of the median


@jax.jit
def attend_text(model: Model, memory: Memory, tokens: Array) -> Array:
    """Return energies [B, n, T, S] of the alignment heads for tokens [B, T] as written."""
    written = nothing_written(model.config, no_padding(tokens.shape[0]), tokens.shape[1])
    return model.write(tokens, written, memory, model.config.alignment_heads)[2]


def align_text(
    model: Model,
    tokenizer: Tokenizer,
    memory: Memory,
    texts: Sequence[Sequence[int]],
    contexts: Sequence[Context],
    frames: Sequence[int],
) -> list[np.ndarray]:
    """Return m [tokens + 1, states] of each window's text ids, and then its end, in one pass.

    `frames` of 10 ms of a window are real.
    """
    openings = [tokenizer.opening(c.task, c.language, "none") for c in contexts]
    rows = [[*o, *text, tokenizer.end] for o, text in zip(openings, texts, strict=True)]
    tokens = np.full((rows_of(memory), _length(rows)), tokenizer.end, np.int32)
    for k, row in enumerate(rows):
        tokens[k, : len(row)] = row
    energies = jax.device_get(attend_text(model, memory, tokens))
    aligned = []
    for own, opening, row, count in zip(energies, openings, rows, frames, strict=False):
        # Row t of the attention is of the position that predicts the token after it.
        matrix = alignment_matrix(own[:, : len(row), : count // 2])
        aligned.append(matrix[len(opening) - 1 : len(row) - 1])
    return aligned


def _length(rows: Sequence[Sequence[int]]) -> int:
    """Return a power of two, so that few programs are compiled."""
    return max(16, 1 << (max(map(len, rows)) - 1).bit_length())


def alignment_matrix(energies: np.ndarray) -> np.ndarray:
    """Return m [T, S] of the energies [n, T, S]."""
    weights = np.exp(energies - energies.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    spread = np.maximum(weights.std(-2, keepdims=True), 1e-30)  # where all agree, 0
    weights = (weights - weights.mean(-2, keepdims=True)) / spread
    return median_filter(weights).mean(0)


def median_filter(x: np.ndarray) -> np.ndarray:
    """Return medians of 7 neighbours on the last axis, which is mirrored at its ends."""
    reach = _WIDTH // 2
    if x.shape[-1] <= reach:
        return x
    mirrored = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(reach, reach)], mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(mirrored, _WIDTH, axis=-1)
    return np.median(windows, axis=-1)
