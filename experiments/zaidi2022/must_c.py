"""Zaidi et al. 2022 on MuST-C en-de, as the paper describes it.

    simuljax prepare must-c --from MUSTC_ROOT --to data/must-c
    simuljax prepare must-c --from MUSTC_ROOT --to data/must-c-augmented \
        --augment effects --distil TEACHER_COMMAND --distil-mode join
    simuljax train experiments/zaidi2022/must_c.py asr
    simuljax train experiments/zaidi2022/must_c.py mt
    simuljax train experiments/zaidi2022/must_c.py dar    or another variant of recipe.py
    simuljax train experiments/zaidi2022/must_c.py dar_lambda_0.05

Hardware: the paper used 8 A100 for 110 + 40 hours a system. Expected (paper, lambda = 0): MMA 17.23
BLEU, mma_mt 20.10, dar 20.67, mma_dar 22.35. Not run by this project,
because MuST-C may not be redistributed.
"""

from dataclasses import replace

from experiments.shared import LARGE, MASKED
from experiments.zaidi2022.recipe import Recipe, variants
from simuljax.config.experiment import DATA, RUNS, DataConfig
from simuljax.config.training import Objective, Optimiser, Training
from simuljax.models import presets
from simuljax.text import VocabularyConfig

PIECES = VocabularyConfig(kind="unigram", size=10_000)
PAPER = Optimiser(learning_rate=2e-3, warmup=20_000, betas=(0.9, 0.999), clip=10.0)
TRAINING = Training(optimiser=PAPER, objective=MASKED, epochs=100, accumulate=4, patience=10)

EXPERIMENTS = variants(
    Recipe(
        runs=RUNS / "zaidi-must-c",
        data=DataConfig(directory=DATA / "must-c", source=PIECES, target=PIECES, budget=LARGE),
        augmented=DATA / "must-c-augmented",
        model=presets.dar(),
        asr=TRAINING,
        mt=replace(TRAINING, objective=Objective()),
        first=replace(TRAINING, epochs=150, patience=None),
        distil_after=5_000,
        second=replace(TRAINING, epochs=50, patience=None),
        equal="epochs",
    )
)
