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

from experiments.zaidi2022.multi30k import EXPERIMENTS, RECIPE
from experiments.zaidi2022.recipe import ANY, AUGMENTED, STEPS
from simuljax.ablate.grid import Claim, Grid
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import RUNS

IS_AUGMENTED = (RECIPE.augmented / "summary.json").exists()
TABLE = ("mma", "multitask", "kd", "mma_mt", "dar") + (AUGMENTED if IS_AUGMENTED else ())
LATER = {variant: f"{variant}_lambda_0.1" for variant in TABLE}
CLAIMS = (
    Claim(says="multitask learning helps", variant="multitask", over="mma", published=1.67),
    Claim(says="online distillation helps", variant="kd", over="multitask", published=0.95),
    Claim(says="CAR helps", variant="mma_mt", over="kd", published=0.25),
    Claim(says="DAR helps", variant="dar", over="mma_mt", published=0.57),
    Claim(says="these four help together", variant="dar", over="mma", published=3.44),
)
OF_AUGMENTED = (
    Claim(says="augmented speech helps", variant="mma_aug", over="mma", published=2.58),
    Claim(says="it helps beside text", variant="mma_aug_mt", over="mma_mt", published=1.39),
    Claim(says="DAR helps beside it", variant="mma_dar", over="mma_aug_mt", published=0.86),
    Claim(says="all of them help", variant="mma_dar", over="mma", published=5.12),
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
    evaluations=(Evaluation(run=ANY, mode="offline"), Evaluation(run=ANY)),
    own=dict.fromkeys(LATER.values(), STEPS),
)
