"""MMA, distillation alone and DAR for three times as many updates: what does DAR buy in the end?

    simuljax speak TEXT --to data/multi30k-speech       TEXT holds train.en, train.de, val.en ...
    simuljax ablate experiments/zaidi2022/longer.py --rows 'kd_long*' 'dar_long*' \\
        --workers 8 --together 9
    simuljax ablate experiments/zaidi2022/longer.py --rows 'mma_long*' --workers 4 --together 3

One H200, both beside each other (XLA_PYTHON_CLIENT_MEM_FRACTION=0.42 gives each process its share),
32 runs in 28 minutes: results/ablation-multi30k/longer. Rows of `experiments/zaidi2022/table_3.py`
still gain when their 8 epochs are over, those with a text branch most; here they have 24. Then each
is trained on with latency weights that lead to latencies which the rows have in common: with DAR,
heads wait longer for the same weight. Checkpoints of this second phase are chosen by loss and
latency, as both are trained.
"""

from dataclasses import replace
from pathlib import Path

from experiments.zaidi2022.multi30k import RECIPE
from experiments.zaidi2022.recipe import at_lambda, rows
from experiments.zaidi2022.table_3 import STEPS
from simuljax.ablate.grid import Ablation, Claim
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import RUNS

ANY = Path()
LONG = replace(
    RECIPE,
    first=replace(RECIPE.first, epochs=24),
    second=replace(RECIPE.second, best_by="loss_and_latency"),
)
LAMBDAS = {"mma": (0.1,), "kd": (0.01, 0.03, 0.1), "dar": (0.1, 0.2, 0.4)}
OF = rows(LONG)
FIRST = {row: replace(OF[row], run=OF[row].run.with_name(f"{row}_long")) for row in LAMBDAS}
LATER = {
    first.run.name: [at_lambda(first, LONG.second, weight) for weight in LAMBDAS[row]]
    for row, first in FIRST.items()
}

ABLATION = Ablation(
    title="Three times as many updates, on Multi30k-speech",
    runs=RUNS / "ablation-multi30k",
    answer="longer",
    rows={
        "asr": OF["asr"],
        "mt": OF["mt"],
        **{first.run.name: first for first in FIRST.values()},
        **{later.run.name: later for some in LATER.values() for later in some},
    },
    table=tuple(LATER),
    baseline="kd_long",
    seeds=(0, 1, 2),
    claims=(
        Claim(
            says="text and distillation help", row="kd_long", over="mma_long", published=1.67 + 0.95
        ),
        Claim(
            says="CAR and DAR help beside them",
            row="dar_long",
            over="kd_long",
            published=0.25 + 0.57,
        ),
        Claim(says="all four help together", row="dar_long", over="mma_long", published=3.44),
    ),
    curves={row: tuple(later.run.name for later in some) for row, some in LATER.items()},
    evaluations=(Evaluation(run=ANY, mode="offline"), Evaluation(run=ANY)),
    own={later.run.name: STEPS for some in LATER.values() for later in some},
)
