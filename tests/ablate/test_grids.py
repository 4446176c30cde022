"""Every grid of every file: what it asks of its rows can be asked, before a GPU is hired."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from simuljax.ablate.grid import Ablation
from simuljax.config.loading import load_module
from simuljax.runs.check import check, check_effects

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FILES = [path for path in sorted(EXPERIMENTS.glob("*/*.py")) if "\nABLATION" in path.read_text()]


def grids(path: Path) -> Iterator[Ablation]:
    module = load_module(path)
    yield from getattr(module, "ABLATIONS", {}).values()
    if isinstance(one := getattr(module, "ABLATION", None), Ablation):
        yield one


def test_there_are_grids():
    assert {"zaidi2022/table_3.py", "papi2022/policies.py", "papi2022/multi30k.py"} <= {
        path.relative_to(EXPERIMENTS).as_posix() for path in FILES
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_evaluation_can_be_asked_for(path):
    asked = 0
    for grid in grids(path):
        models = {str(row.run): row.model for row in grid.rows.values()}
        for row in grid.seeded:
            for way in grid.ways(row):
                check(way)
                follows = models[str(way.then)] if way.then else None
                check_effects(way, grid.rows[row].model, follows)
                asked += 1
    assert asked
