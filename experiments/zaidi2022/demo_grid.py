"""A small grid on the little phrasebook: MMA, online distillation and DAR.

    simuljax demo                                      builds demo_out/corpus, among other things
    simuljax ablate experiments/zaidi2022/demo_grid.py --together 2

Hardware: 2 CPU cores, 12.5 minutes. The runs are too short to settle the question; they show the
way from a question to a table. `table_3.py` is the real one.
"""

from dataclasses import replace
from pathlib import Path

from experiments.shared import ALONE, ANY, OFFLINE, with_objective
from experiments.zaidi2022.recipe import DAR, KD
from simuljax.ablate.grid import Grid
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import RUNS
from simuljax.demo.experiment import demo_experiment

PLACE = RUNS / "ablation-demo"
BASE = demo_experiment(PLACE / "base", Path("demo_out") / "corpus", updates=150)
VARIANTS = {
    name: replace(
        BASE,
        run=PLACE / name,
        training=with_objective(BASE.training, replace(joint, ctc=0.5, latency=0.05)),
    )
    for name, joint in {"mma": ALONE, "kd": KD, "dar": DAR}.items()
}

GRID = Grid(
    title="MMA, online distillation and DAR on the little phrasebook",
    runs=PLACE,
    variants=VARIANTS,
    table=tuple(VARIANTS),
    baseline="mma",
    seeds=(0, 1),
    evaluations=(
        OFFLINE,
        *(Evaluation(run=ANY, threshold=threshold) for threshold in (0.5, 0.2, 0.8)),
    ),
)
