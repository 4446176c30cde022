"""Systems of the papers with encoders or decoders of their own, untrained, evaluated by a grid."""

import dataclasses
from pathlib import Path

import pytest

from data_pipelines.corpora import Manifest
from experiments.nguyen2021 import multi30k as nguyen_multi30k
from experiments.nguyen2021 import recipe as nguyen
from experiments.papi2022 import multi30k as papi_multi30k
from experiments.papi2022 import recipe as papi
from simuljax.eval import read_records
from simuljax.runs.evaluate import evaluate
from tests.helpers.corpora import build, write_hums
from tests.helpers.grids import trained, write_untrained

pytestmark = pytest.mark.slow

GRIDS = {
    "papi": papi.grids(dataclasses.replace(papi_multi30k.RECIPE, distilled=Path("distilled"))),
    "nguyen": nguyen.grids(nguyen_multi30k.RECIPE),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("papers")
    root = write_hums(place / "hums", {"train": 4, "test": 3})
    build(Manifest(), root, place / "prepared")
    return place


@pytest.mark.parametrize(
    ("paper", "grid", "variant", "index", "is_early"),
    [
        ("papi", "figure_4", "conformer_adaptive_k5_kd", 0, True),
        ("nguyen", "table", "characters", 1, False),  # BLSTM and LSTM, beam 10
        ("nguyen", "table", "characters", 2, True),
    ],
)
def test_systems_of_papers(place, paper, grid, variant, index, is_early):
    grid = GRIDS[paper][grid]
    if not (place / variant).exists():
        write_untrained(place / variant, trained(grid)[variant], place / "prepared")
    way = dataclasses.replace(grid.ways(variant)[index], run=place / variant, frames=2_000)
    assert evaluate(way)["n"] == 3
    records = read_records(way.folder)
    assert is_early == any(delay < r.source_length for r in records for delay in r.delays)
