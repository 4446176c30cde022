"""Every kind of system of the papers, small and untrained, evaluated as its grids ask for."""

import dataclasses
from dataclasses import replace
from pathlib import Path

import pytest

from data_pipelines.corpora import Manifest
from experiments.nguyen2021 import multi30k as nguyen_multi30k
from experiments.nguyen2021 import recipe as nguyen
from experiments.papi2022 import multi30k as papi_multi30k
from experiments.papi2022 import recipe as papi
from simuljax.ablate.grid import Grid
from simuljax.eval import Record, read_records
from simuljax.runs.evaluate import evaluate
from tests.helpers.corpora import build, write_hums
from tests.helpers.grids import trained, write_untrained

pytestmark = pytest.mark.slow


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
            write_untrained(place / name, trained(grid)[name], place / "prepared")
    then = place / way.then.name if way.then else None
    way = dataclasses.replace(way, run=place / variant, then=then, repeats=1, frames=2_000)
    assert evaluate(way)["n"] == (way.first or 3)
    return read_records(way.folder)


def is_early(records: list[Record]) -> bool:
    return any(delay < record.source_length for record in records for delay in record.delays)


PAPI = [
    ("figure_1", "transformer", 1),  # beam 5
    ("figure_1", "transformer_fixed_k3", 0),
    ("figure_2", "transformer_adaptive_k3", 0),
    ("figure_4", "conformer_adaptive_k5_kd", 0),
    ("figure_5", "conformer_kd", 5),  # with the clock
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
