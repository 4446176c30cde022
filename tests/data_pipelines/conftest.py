"""Three small corpora, each prepared once: hums with times, text alone, and synthesised speech."""

import importlib.util
from pathlib import Path

import pytest

from data_pipelines.corpora import Manifest, ParallelText, Phrasebook
from data_pipelines.dataset import PreparedCorpus
from tests.helpers.corpora import build, write_hums, write_lines


@pytest.fixture(scope="session")
def hums_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hums(tmp_path_factory.mktemp("hums"))


@pytest.fixture(scope="session")
def hums(hums_root: Path, tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    return build(Manifest(), hums_root, tmp_path_factory.mktemp("prepared") / "hums")


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    root = write_lines(tmp_path_factory.mktemp("lines"), {"train": 50, "valid": 10, "test": 10})
    return build(ParallelText(), root, tmp_path_factory.mktemp("prepared") / "text")


@pytest.fixture(scope="session")
def espeak() -> None:
    if importlib.util.find_spec("espeakng_loader") is None:
        pytest.skip("eSpeak NG is not installed: pip install 'simuljax[speech]'")


@pytest.fixture(scope="session")
def spoken_corpus(espeak: None) -> Phrasebook:
    return Phrasebook(train=20, valid=5, test=5)


@pytest.fixture(scope="session")
def spoken(spoken_corpus: Phrasebook, tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    return build(spoken_corpus, None, tmp_path_factory.mktemp("prepared") / "spoken")
