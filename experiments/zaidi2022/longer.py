"""MMA, distillation and DAR trained three times as long: does DAR help at convergence?

    simuljax speak TEXT --to data/multi30k-speech       TEXT holds train.en, train.de, val.en ...
    simuljax ablate experiments/zaidi2022/longer.py --variants 'kd_long*' 'dar_long*' \\
        --workers 8 --together 9
    simuljax ablate experiments/zaidi2022/longer.py --variants 'mma_long*' --workers 4 --together 3

Hardware: one H200, both commands at once (XLA_PYTHON_CLIENT_MEM_FRACTION=0.42 divides its memory).
Time: 28 minutes, 32 runs. Results: ablation-multi30k/longer.

The variants of `table_3.py` still improve after their 8 epochs, those with a text branch most; here
they have 24. Each is then trained with latency weights that lead to latencies which the variants
have in common: with DAR, heads wait longer at the same weight. The second phase selects
checkpoints by loss and latency, because it trains both.
"""

from dataclasses import replace

from experiments.shared import claims
from experiments.zaidi2022.multi30k import RECIPE
from experiments.zaidi2022.recipe import phases, variants
from simuljax.ablate.grid import Grid
from simuljax.config.experiment import RUNS

LONG = replace(
    RECIPE,
    first=replace(RECIPE.first, epochs=24),
    second=replace(RECIPE.second, best_by="loss_and_latency"),
)
VARIANTS = variants(LONG)
LAMBDAS = {"mma_long": (0.1,), "kd_long": (0.01, 0.03, 0.1), "dar_long": (0.1, 0.2, 0.4)}
FIRST = {name: replace(VARIANTS[name[:-5]], run=LONG.runs / name) for name in LAMBDAS}
CLAIMS = claims(
    ("text and distillation help", "kd_long", "mma_long", 1.67 + 0.95),
    ("CAR and DAR help beside them", "dar_long", "kd_long", 0.25 + 0.57),
    ("all four help together", "dar_long", "mma_long", 3.44),
)

GRID = Grid(
    title="Three times as many updates, on Multi30k-speech",
    runs=RUNS / "ablation-multi30k",
    name="longer",
    baseline="kd_long",
    seeds=(0, 1, 2),
    claims=CLAIMS,
    **phases(FIRST, LONG.second, LAMBDAS, VARIANTS),
)
