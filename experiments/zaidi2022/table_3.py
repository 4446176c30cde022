"""Zaidi et al. 2022, tables 3 and 4 and figures 2 to 4, on Multi30k-speech: what does DAR add?

    simuljax speak TEXT --to data/multi30k-speech       TEXT holds train.en, train.de, val.en ...
    simuljax ablate experiments/zaidi2022/table_3.py --workers 4 --together 12 [--list]
    simuljax speak TEXT --to data/multi30k-speech-augmented --augment effects \\
        --distil runs/ablation-multi30k/mt-HASH --distil-mode join
    simuljax ablate experiments/zaidi2022/table_3.py --variants 'mma_aug*' 'mma_dar*' --together 9

Hardware: one H200, 25 minutes, and 24 for the augmented variants, which join the grid when
data/multi30k-speech-augmented exists. Results: ablation-multi30k/zaidi. All variants of
`multi30k.py` with equal schedules and three seeds, each trained further with a latency weight and
then evaluated at steps of 120 to 520 ms.
"""

from experiments.shared import OFFLINE, STEPS, STREAMED, claims
from experiments.zaidi2022.multi30k import EXPERIMENTS, RECIPE
from experiments.zaidi2022.recipe import AUGMENTED
from simuljax.ablate.grid import Grid
from simuljax.config.experiment import RUNS

IS_AUGMENTED = (RECIPE.augmented / "summary.json").exists()
TABLE = ("mma", "multitask", "kd", "mma_mt", "dar") + (AUGMENTED if IS_AUGMENTED else ())
LATER = {variant: f"{variant}_lambda_0.1" for variant in TABLE}
CLAIMS = claims(
    ("multitask learning helps", "multitask", "mma", 1.67),
    ("online distillation helps", "kd", "multitask", 0.95),
    ("CAR helps", "mma_mt", "kd", 0.25),
    ("DAR helps", "dar", "mma_mt", 0.57),
    ("all four help together", "dar", "mma", 3.44),
)
OF_AUGMENTED = claims(
    ("augmented speech helps", "mma_aug", "mma", 2.58),
    ("it helps beside text", "mma_aug_mt", "mma_mt", 1.39),
    ("DAR helps beside it", "mma_dar", "mma_aug_mt", 0.86),
    ("all of them help", "mma_dar", "mma", 5.12),
)

GRID = Grid(
    title="Zaidi et al. 2022 on Multi30k-speech",
    runs=RUNS / "ablation-multi30k",
    name="zaidi",
    variants=EXPERIMENTS,
    table=TABLE,
    baseline="mma",
    seeds=(0, 1, 2),
    claims=CLAIMS + (OF_AUGMENTED if IS_AUGMENTED else ()),
    curves={variant: (later,) for variant, later in LATER.items()},
    evaluations=(OFFLINE, STREAMED),
    own=dict.fromkeys(LATER.values(), STEPS),
)
