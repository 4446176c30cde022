"""A small Whisper and the file of its weights."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from simuljax.models.whisper.config import PUBLISHED, Dimensions, Published
from tests.models.whisper.small import TOKENIZER, ggml_bytes, random_tensors

SIZES = Dimensions(
    width=64, audio_layers=2, text_layers=1, vocabulary=TOKENIZER.size, audio_positions=20
)


def tensors(**changes):
    """Random weights, small enough for a network of them to stay finite."""
    kind: Any = np.float32
    made = random_tensors(dataclasses.replace(SIZES, **changes), kind)
    return {name: tensor * np.float32(0.1) for name, tensor in made.items()}


@pytest.fixture(scope="module")
def small_sizes():
    """Sizes that compile in a moment, under the name of Whisper's smallest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PUBLISHED, "tiny", Published(SIZES, ()))
        yield


@pytest.fixture(scope="module")
def quickly():
    """Compile with little effort what runs a few times."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "ggml-small.bin"
    path.write_bytes(ggml_bytes(tensors()))
    return path
