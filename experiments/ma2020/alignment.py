"""The expected alignment: the exact recurrence against the field's closed form.

    simuljax speak TEXT --to data/multi30k-speech       TEXT holds train.en, train.de, val.en ...
    simuljax ablate experiments/ma2020/alignment.py --workers 4 --together 12

Hardware: one H200. Results: ablation-multi30k/alignment. Same model, losses, schedule and seeds:
the variant `dar` has the exact alignment, `closed_form` the float32 closed form, which loses
probability at the length of speech (`closed_form_mass.py`). Decoding takes hard decisions and is
the same.
"""

from dataclasses import replace

from experiments.zaidi2022.multi30k import EXPERIMENTS, RECIPE
from experiments.zaidi2022.recipe import phases
from simuljax.ablate.grid import Grid
from simuljax.config.experiment import RUNS

EXACT = EXPERIMENTS["dar"]
MONOTONIC = replace(EXACT.model.monotonic, method="closed_form")
CLOSED = replace(EXACT, run=RUNS / "closed_form", model=replace(EXACT.model, monotonic=MONOTONIC))
FIRST = {"closed_form": CLOSED, "dar": EXACT}

GRID = Grid(
    title="The expected alignment: exact, and in closed form",
    runs=RUNS / "ablation-multi30k",
    name="alignment",
    baseline="closed_form",
    seeds=(0, 1, 2),
    **phases(FIRST, RECIPE.second, dict.fromkeys(FIRST, (0.1,)), EXPERIMENTS),
)
