"""Every grid of every file: what it asks of its rows can be asked, before a GPU is hired."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.ablation import Ablation
from experiments.asking import check, check_effects
from experiments.experiment import load_module

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FILES = [path for path in sorted(EXPERIMENTS.glob("*.py")) if "\nABLATION" in path.read_text()]


def grids(path: Path) -> Iterator[Ablation]:
    module = load_module(path)
    yield from getattr(module, "ABLATIONS", {}).values()
    if isinstance(one := getattr(module, "ABLATION", None), Ablation):
        yield one


def test_there_are_grids():
    assert {"ablation_zaidi.py", "ablation_policies.py", "papi_multi30k.py"} <= {
        path.name for path in FILES
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
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
