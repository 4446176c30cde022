"""A small grid on the little phrasebook: what do the text branch, KD and DAR buy?

    simuljax demo                                      builds demo_out/corpus, among other things
    simuljax ablate experiments/zaidi2022/demo_grid.py --together 2

12.5 minutes on 2 CPU cores. The rows are far too short to settle the question; they show the way
from a question to a table. `experiments/zaidi2022/table_3.py` is the real one.
"""

from dataclasses import replace
from pathlib import Path

from experiments.zaidi2022.phrasebook import demo
from experiments.zaidi2022.recipe import ALONE, DAR, KD, with_objective
from simuljax.ablate.grid import Ablation
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import RUNS

CORPUS = Path("demo_out") / "corpus"
BASE = demo(RUNS / "ablation-demo" / "base", CORPUS, updates=150)
OBJECTIVES = {"mma": ALONE, "kd": KD, "dar": DAR}
ROWS = {
    name: replace(
        BASE,
        run=RUNS / "ablation-demo" / name,
        training=with_objective(BASE.training, replace(joint, ctc=0.5, latency=0.05)),
    )
    for name, joint in OBJECTIVES.items()
}
ANY = Path()

ABLATION = Ablation(
    title="MMA, online distillation and DAR on the little phrasebook",
    runs=RUNS / "ablation-demo",
    rows=ROWS,
    table=("mma", "kd", "dar"),
    baseline="mma",
    seeds=(0, 1),
    evaluations=(
        Evaluation(run=ANY, mode="offline"),
        Evaluation(run=ANY),
        Evaluation(run=ANY, threshold=0.2),
        Evaluation(run=ANY, threshold=0.8),
    ),
)
