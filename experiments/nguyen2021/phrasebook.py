"""Nguyen et al. 2021 on the phrasebook: 10,000 sentences, built from nothing.

    simuljax prepare phrasebook --to data/phrasebook-speed --augment speed
    simuljax ablate experiments/nguyen2021/phrasebook.py --grid table    and figure_2, figure_3

Hardware: one GPU. Not run. Variants and grids are those of recipe.py; k is half of the paper's.
"""

from dataclasses import replace

from experiments.nguyen2021 import multi30k as nguyen_multi30k
from experiments.nguyen2021.recipe import grids, variants
from experiments.zaidi2022.phrasebook import RECIPE as BASE
from simuljax.config.experiment import DATA, RUNS
from simuljax.text import VocabularyConfig

RECIPE = replace(
    nguyen_multi30k.RECIPE,
    name="the phrasebook",
    runs=RUNS / "nguyen-phrasebook",
    data=replace(
        BASE.data,
        directory=DATA / "phrasebook-speed",
        source=VocabularyConfig(kind="bpe", size=2_000, lowercase=True),
    ),
    mt=replace(BASE.mt, epochs=20),
)

EXPERIMENTS = variants(RECIPE)
GRIDS = grids(RECIPE)
