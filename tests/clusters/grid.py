"""A grid of two small translators of text, to run as jobs of a cluster."""

from dataclasses import replace
from pathlib import Path

from simuljax.ablate.grid import Grid
from simuljax.config.decoding import LengthLimit
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import RUNS
from tests.clusters.experiment import EXPERIMENT

OTHER = replace(EXPERIMENT.training, accumulate=2)
GRID = Grid(
    runs=RUNS,
    variants={"one": EXPERIMENT, "other": replace(EXPERIMENT, training=OTHER)},
    table=("one", "other"),
    baseline="one",
    evaluations=(
        Evaluation(
            run=Path(),
            branch="text",
            mode="offline",
            limit=LengthLimit(ratio=0.1, constant=4),
        ),
    ),
)
