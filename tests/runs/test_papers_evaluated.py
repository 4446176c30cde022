"""Every kind of system of the papers, small and untrained, evaluated as its grids ask for."""

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest

from data_pipelines.corpora import Manifest
from experiments.nguyen2021 import multi30k as nguyen_multi30k
from experiments.nguyen2021 import recipe as nguyen
from experiments.papi2022 import multi30k as papi_multi30k
from experiments.papi2022 import recipe as papi
from simuljax.ablate.grid import Grid
from simuljax.config.experiment import Experiment
from simuljax.config.model import ModelConfig
from simuljax.eval import Record, read_records
from simuljax.models.joint import JointModel
from simuljax.models.parameters import initialise
from simuljax.runs.evaluate import evaluate
from tests.helpers.corpora import build, write_hums
from tests.written_runs import PIECES, experiment_of, write_files

pytestmark = pytest.mark.slow


def shrunk(model: ModelConfig) -> ModelConfig:
    """The same kinds of layers, one or two of each, and narrow."""
    width = replace(model.width, model=16, hidden=24, heads=1, dropout=0.0, dtype="float32")
    changes: dict[str, Any] = {"decoder_layers": 1, "joiner_layers": 1, "decoder_width": None}
    if model.speech is not None:
        ctc = 1 if model.speech.ctc_after else None
        changes["speech"] = replace(model.speech, layers=2, channels=8, ctc_after=ctc)
    if model.text is not None:
        changes["text"] = replace(model.text, layers=1)
    sizes = {"source_vocabulary": PIECES.size, "target_vocabulary": PIECES.size}
    return replace(model, width=width, features=80, **sizes, **changes)


def write_variant(directory: Path, variant: Experiment, corpus: Path) -> Path:
    model = shrunk(variant.model)
    params, statistics = initialise(JointModel(model), jax.random.key(0, impl="rbg"))
    loud = jax.tree.map(lambda leaf: leaf * 3 if leaf.ndim > 1 else leaf, params)
    config = experiment_of(directory, model, corpus, variant.data.task)
    return write_files(config, loud, statistics)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("papers")
    root = write_hums(place / "hums", {"train": 4, "test": 3})
    build(Manifest(), root, place / "prepared")
    return place


def evaluated(place: Path, grid: Grid, variant: str, index: int) -> list[Record]:
    """The records of one of the ways in which a grid evaluates a variant."""
    way = grid.ways(variant)[index]
    for name in filter(None, (variant, way.then and way.then.name)):
        if not (place / name).exists():
            write_variant(place / name, grid.variants[name], place / "prepared")
    then = place / way.then.name if way.then else None
    way = dataclasses.replace(way, run=place / variant, then=then, repeats=1, frames=2_000)
    assert evaluate(way)["n"] == (way.first or 3)
    return read_records(way.folder)


def is_early(records: list[Record]) -> bool:
    return any(delay < record.source_length for record in records for delay in record.delays)


PAPI = [
    ("figure_1", "transformer", 1),  # beam 5
    ("figure_1", "transformer", 2),
    ("figure_1", "transformer_fixed_k3", 0),
    ("figure_2", "transformer_adaptive_k3", 0),
    ("figure_4", "conformer_adaptive_k5_kd", 0),
    ("figure_5", "conformer_kd", 0),
    ("figure_5", "conformer_kd", 5),  # with the clock
    ("figure_5", "caat_16_kd", 0),
    ("figure_5", "caat_16_kd", 1),
]


@pytest.mark.parametrize(("grid", "variant", "index"), PAPI)
def test_systems_of_papi(place, grid, variant, index):
    recipe = replace(papi_multi30k.RECIPE, distilled=place / "prepared", live=2)
    records = evaluated(place, papi.grids(recipe)[grid], variant, index)
    if "caat" not in variant and index != 1:
        assert is_early(records)


NGUYEN = [
    ("table", "characters", 1),  # beam 10
    ("table", "characters", 2),
    ("figure_3", "asr", 1),  # multi-path wait-3
    ("figure_3", "asr", 6),  # trained on whole texts
]


@pytest.mark.parametrize(("grid", "variant", "index"), NGUYEN)
def test_systems_of_nguyen(place, grid, variant, index):
    records = evaluated(place, nguyen.grids(nguyen_multi30k.RECIPE)[grid], variant, index)
    assert is_early(records) == (index != 1 or variant == "asr")
