"""Zaidi et al. 2022, table 3, on Mboshi-French: does what DAR buys hold for human speech?

    experiments/zaidi_mboshi.py                         has the commands that prepare data/mboshi-fr
    simuljax ablate experiments/ablation_mboshi.py --workers 4 --together 6

One H200; not run yet (experiments/BUDGET.md). 32 runs: the rows of `experiments/zaidi_mboshi.py`
with equal schedules and three seeds, each trained on with a latency weight. The text branch is
evaluated too: speech that reaches less than 60 % of its BLEU is no base for conclusions.
"""

from pathlib import Path

from experiments.ablation import Ablation
from experiments.ablation_zaidi import CLAIMS, STEPS
from experiments.evaluation import Evaluation
from experiments.experiment import RUNS
from experiments.zaidi_mboshi import EXPERIMENTS

ANY = Path()
TABLE = ("mma", "multitask", "kd", "mma_mt", "dar")
LATER = {row: f"{row}_lambda_0.1" for row in TABLE}
HEARD = (Evaluation(run=ANY, mode="offline"), Evaluation(run=ANY))
READ = Evaluation(run=ANY, branch="text", mode="offline")

ABLATION = Ablation(
    title="Zaidi et al. 2022 on Mboshi-French",
    runs=RUNS / "ablation-mboshi",
    answer="zaidi-mboshi",
    rows=EXPERIMENTS,
    table=TABLE,
    baseline="mma",
    seeds=(0, 1, 2),
    claims=CLAIMS,
    curves={row: (later,) for row, later in LATER.items()},
    evaluations=(*HEARD, READ),
    own={"mma": HEARD, **dict.fromkeys(LATER.values(), STEPS)},  # mma learns nothing from text
)
