"""Write a Whisper that is small to give away: whole numbers for weights, fewer tokens.

    DIR/model.safetensors.gz      weights by the original's names (`simuljax.models.tensor_file`)
    DIR/vocabulary.tiktoken       the tokens of text
    DIR/generation_config.json    alignment_heads, is_multilingual

Every token of several bytes is the union of two earlier ones, so any set of tokens that has both
with each is a vocabulary of byte pairs too. A model that keeps their rows of its embedding, and
those of special tokens and timestamps, spells with shorter tokens what it had a longer one for.
`load(DIR)` reads it.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import jax.numpy as jnp
import numpy as np

from simuljax.config.fields import write_json
from simuljax.errors import SimuljaxError
from simuljax.models.tensor_file import LEVELS, quantise, write_tensors
from simuljax.models.whisper.config import Dimensions
from simuljax.models.whisper.tokenizer import common_tokens, write_tiktoken
from simuljax.models.whisper.weights import SINUSOIDS, load, read_checkpoint
from simuljax.nn.layers import sinusoids

VOCABULARY = "vocabulary.tiktoken"
EMBEDDING = "decoder.token_embedding.weight"
FEWEST = 256  # a token for each byte
ROUNDING = 1e-3  # of positions in float16


def export(
    weights: str | Path,
    to: Path,
    *,
    tokens: int | None = None,
    text: Iterable[str] = (),
    dtype: Literal["int8", "int7"],
) -> Path:
    """Write the directory of a Whisper with `tokens` tokens of text, by default all.

    They are those most common in these lines of text, then the first of the others.
    """
    whisper, tensors = load(weights), dict(read_checkpoint(weights).tensors)
    known = whisper.tokenizer
    count = known.end if tokens is None else tokens
    if not FEWEST <= count <= known.end:
        raise SimuljaxError(f"tokens is {count}; {weights} has {known.end}, of which {FEWEST} stay")
    kept, rows = common_tokens(known.tokens, text, count), tensors[EMBEDDING]
    tensors[EMBEDDING] = np.concatenate([rows[kept], rows[known.end :]])
    if SINUSOIDS in tensors and is_usual(tensors[SINUSOIDS]):
        del tensors[SINUSOIDS]
    to.mkdir(parents=True, exist_ok=True)
    write_tiktoken(to / VOCABULARY, [known.tokens[i] for i in kept])
    heads = [list(head) for head in whisper.config.alignment_heads]
    held = {"alignment_heads": heads, "is_multilingual": known.multilingual}
    write_json(to / "generation_config.json", held)
    stored = {}
    for name, tensor in tensors.items():
        wide = np.asarray(tensor, np.float32)
        is_matrix = wide.ndim > 1
        stored |= quantise(name, wide, 1, LEVELS[dtype]) if is_matrix else {name: wide}
    write_tensors(to / "model.safetensors.gz", stored, {"format": "simuljax"})
    return to


def is_usual(positions: np.ndarray) -> bool:
    """Return True for the positions that a model has if a file does not say."""
    usual = sinusoids(jnp.arange(Dimensions.audio_positions), positions.shape[1])
    return usual.shape == positions.shape and np.allclose(positions, usual, atol=ROUNDING)
