"""A small Whisper, the file of its weights, and a corpus to train on."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_pipelines.corpora import Phrasebook
from data_pipelines.prepare import Preparation, prepare
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


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "ggml-small.bin"
    path.write_bytes(ggml_bytes(tensors()))
    return path


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    pytest.importorskip("espeakng_loader", reason="needs `pip install 'simuljax[speech]'`")
    directory = tmp_path_factory.mktemp("corpus") / "phrasebook"
    prepare(Preparation(corpus=Phrasebook(train=8, valid=4, test=4)), None, directory, 1)
    return directory
