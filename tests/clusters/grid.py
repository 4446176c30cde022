"""A small translator of text to train on clusters, and a grid of two of them."""

from dataclasses import replace

from simuljax.ablate.grid import Grid
from simuljax.config.experiment import DATA, RUNS
from tests.helpers.experiments import experiment, text_alone
from tests.helpers.grids import text_grid

SMALL = text_alone(experiment(DATA / "phrasebook", RUNS / "small"))
EXPERIMENT = replace(
    SMALL,
    data=replace(SMALL.data, budget=replace(SMALL.data.budget, tokens=500)),
    training=replace(SMALL.training, updates=200, log_every=10, validate_every=50),
)
OTHER = replace(EXPERIMENT, training=replace(EXPERIMENT.training, accumulate=2))
GRID = Grid(
    runs=RUNS,
    variants={"one": EXPERIMENT, "other": OTHER},
    table=("one", "other"),
    baseline="one",
    evaluations=text_grid(SMALL.data.directory, RUNS).evaluations,
)
