"""Zaidi et al. 2022, tables 3 and 4 and figures 2 to 4, on Multi30k-speech: what does DAR buy?

    simuljax speak TEXT --to data/multi30k-speech       TEXT holds train.en, train.de, val.en ...
    simuljax ablate experiments/ablation_zaidi.py --list
    simuljax ablate experiments/ablation_zaidi.py

One H200; not run yet. The rows of `experiments/zaidi_multi30k.py` with equal schedules, each
trained on with three latency weights, and evaluated at steps of 120 to 520 ms. The rows with
augmented speech join when data/multi30k-speech-augmented is there.
"""

from pathlib import Path

from experiments.ablation import Ablation
from experiments.evaluation import Evaluation
from experiments.experiment import RUNS
from experiments.zaidi import LAMBDAS
from experiments.zaidi_multi30k import EXPERIMENTS, RECIPE

AUGMENTED = ("mma_aug", "mma_aug_mt", "mma_dar")
TABLE = ("mma", "multitask", "kd", "mma_mt", "dar")
TABLE += AUGMENTED if (RECIPE.augmented / "summary.json").exists() else ()
STEPS_MS = (120, 200, 280, 360, 440, 520)
ANY = Path()

ABLATION = Ablation(
    title="Zaidi et al. 2022 on Multi30k-speech",
    runs=RUNS / "ablation-zaidi",
    rows=EXPERIMENTS,
    table=TABLE,
    baseline="mma",
    seeds=(0, 1, 2),
    curves={row: tuple(f"{row}_lambda_{weight:g}" for weight in LAMBDAS) for row in TABLE},
    evaluations=(
        Evaluation(run=ANY, mode="offline"),
        *(Evaluation(run=ANY, predecision_ms=step) for step in STEPS_MS),
    ),
)
