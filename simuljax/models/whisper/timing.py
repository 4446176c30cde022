"""Times of words: the path through the attention of the heads that follow the speech.

For tokens t of a window's text and encoder states s, with the energies e of each such head,

    a[t, s] = softmax_s e[t, s]                           over the states of real sound
    z[t, s] = (a[t, s] - mean_t a[:, s]) / std_t a[:, s]  so that what all look at counts little
    m[t, s] = mean over heads of median_{|k| <= 3} z[t, s + k]

a word begins where the cheapest monotonic path through -m reaches its first token, and ends where
the next one begins. States are 20 ms apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import ndimage

from simuljax.models.whisper.config import STATE_S
from simuljax.models.whisper.decoding import Context, width_for
from simuljax.models.whisper.model import Memory, Model, nothing_written
from simuljax.models.whisper.tokenizer import Tokenizer, Word

_BEFORE = "\"'“¿([{-"  # punctuation that belongs to the word after it
_AFTER = "\"'.。,，!！?？:：”)]}、"
_WIDTH = 7  # of the median


@dataclass(frozen=True, kw_only=True)
class TimedWord:
    """A word with the punctuation at it, in seconds; `text` has the space before it."""

    text: str
    tokens: tuple[int, ...]
    start: float
    end: float
    probability: float  # the mean of its tokens', among tokens of text


@partial(jax.jit, static_argnames="texts")
def attend_text(model: Model, memory: Memory, tokens: Array, *, texts: int) -> tuple[Array, Array]:
    """Return energies [B, n, T, S] of the alignment heads, and log P of each next token [B, T - 1].

    The tokens [B, T] are taken as written; probabilities are among the first `texts` ids.
    """
    written = nothing_written(model.config, tokens.shape[0], tokens.shape[1])
    states, _, energies = model.write(tokens, written, memory, model.config.alignment_heads)
    log_probs = jax.nn.log_softmax(model.logits(states[:, :-1])[..., :texts])
    following = jnp.minimum(tokens[:, 1:], texts - 1)[..., None]
    return energies, jnp.take_along_axis(log_probs, following, -1)[..., 0]


@dataclass(frozen=True, kw_only=True, eq=False)
class Alignment:
    """Where the heads look for each token of a text, and then for its end."""

    matrix: np.ndarray  # m [tokens + 1, states]; see above
    probabilities: np.ndarray  # [tokens], among tokens of text


def align_text(
    model: Model,
    tokenizer: Tokenizer,
    memory: Memory,
    texts: Sequence[Sequence[int]],
    contexts: Sequence[Context],
    frames: Sequence[int],
) -> list[Alignment]:
    """Attend each window's text ids in one pass; `frames` of 10 ms of a window are real."""
    openings = [tokenizer.opening(c.task, c.language, "none") for c in contexts]
    rows = [[*o, *text, tokenizer.end] for o, text in zip(openings, texts, strict=True)]
    width = width_for(max(map(len, rows)))
    tokens = np.full((len(memory[0].key), width), tokenizer.end, np.int32)
    for k, row in enumerate(rows):
        tokens[k, : len(row)] = row
    energies, log_probs = jax.device_get(attend_text(model, memory, tokens, texts=tokenizer.end))
    aligned = []
    for k, (opening, text) in enumerate(zip(openings, texts, strict=True)):
        first, last = len(opening) - 1, len(rows[k])
        # Row t of the attention is of the position that predicts the token after it.
        states = max(1, frames[k] // 2)
        matrix = alignment_matrix(energies[k, :, :last, :states])[first : last - 1]
        probabilities = np.exp(log_probs[k, first : first + len(text)])
        aligned.append(Alignment(matrix=matrix, probabilities=probabilities))
    return aligned


def time_words(
    model: Model,
    tokenizer: Tokenizer,
    memory: Memory,
    texts: Sequence[Sequence[int]],
    contexts: Sequence[Context],
    frames: Sequence[int],
) -> list[list[TimedWord]]:
    """Return the words of each window's text; `frames` of 10 ms of it are real sound."""
    texts = [[i for i in text if i < tokenizer.end] for text in texts]
    aligned = align_text(model, tokenizer, memory, texts, contexts, frames)
    return [
        _timed(tokenizer.words(text, "en" if c.task == "translate" else c.language), alignment)
        for text, c, alignment in zip(texts, contexts, aligned, strict=True)
    ]


def alignment_matrix(energies: np.ndarray) -> np.ndarray:
    """Return m [T, S] of the energies [n, T, S]."""
    weights = np.exp(energies - energies.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    spread = np.maximum(weights.std(-2, keepdims=True), 1e-30)  # where all agree, 0
    weights = (weights - weights.mean(-2, keepdims=True)) / spread
    return median_filter(weights).mean(0)


def median_filter(x: np.ndarray) -> np.ndarray:
    """Return medians of 7 neighbours on the last axis, which is mirrored at its ends."""
    if x.shape[-1] <= _WIDTH // 2:
        return x
    return ndimage.median_filter(x, size=(*[1] * (x.ndim - 1), _WIDTH), mode="mirror")


def cheapest_path(cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns of the cheapest way from corner to corner (time warping).

        D[i, j] = cost[i, j] + min(D[i-1, j-1], D[i-1, j], D[i, j-1])

    A step goes along both axes or down one row only if that is strictly cheaper than the others.
    Computed along antidiagonals, each at once.
    """
    rows, columns = cost.shape
    total = np.full((rows + 1, columns + 1), np.inf)
    step = np.zeros((rows + 1, columns + 1), np.int8)
    total[0, 0] = 0
    for diagonal in range(2, rows + columns + 1):
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        both, down, right = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        is_both = (both < down) & (both < right)
        is_down = ~is_both & (down < both) & (down < right)
        step[i, j] = np.where(is_both, 0, np.where(is_down, 1, 2))
        total[i, j] = cost[i - 1, j - 1] + np.where(is_both, both, np.where(is_down, down, right))
    return _walk_back(step)


def _walk_back(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    i, j = step.shape[0] - 1, step.shape[1] - 1
    path = []
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        kind = 2 if i == 0 else 1 if j == 0 else step[i, j]
        i, j = i - (kind != 2), j - (kind != 1)
    rows, columns = np.array(path[::-1]).T
    return rows, columns


def _timed(words: list[Word], alignment: Alignment) -> list[TimedWord]:
    """Time words by the path's arrival at their first tokens."""
    if not words or not alignment.matrix.size:
        return []
    rows, columns = cheapest_path(-alignment.matrix)
    arrives = np.diff(rows, prepend=-1) > 0
    times = columns[arrives] * STATE_S
    ends = np.cumsum([len(word.tokens) for word in words])
    starts = ends - [len(word.tokens) for word in words]
    timed = [
        TimedWord(
            text=word.text,
            tokens=word.tokens,
            start=float(times[a]),
            end=float(times[b]),
            probability=float(alignment.probabilities[a:b].mean()),
        )
        for word, a, b in zip(words, starts, ends, strict=True)
    ]
    return with_punctuation(timed)


def with_punctuation(words: Sequence[TimedWord]) -> list[TimedWord]:
    """Join punctuation to the words it belongs to, whose times and probability stay."""
    joined: list[TimedWord] = []
    for word in reversed(words):
        opens = word.text.startswith(" ") and word.text.strip() in _BEFORE
        if joined and opens:
            after = joined.pop()
            word = replace(after, text=word.text + after.text, tokens=word.tokens + after.tokens)
        joined.append(word)
    whole: list[TimedWord] = []
    for word in reversed(joined):
        if whole and word.text in _AFTER and not whole[-1].text.endswith(" "):
            before = whole.pop()
            word = replace(before, text=before.text + word.text, tokens=before.tokens + word.tokens)
        whole.append(word)
    return whole
