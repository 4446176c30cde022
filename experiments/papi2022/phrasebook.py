"""Papi et al. 2022 on the phrasebook: 10,000 sentences, built from nothing.

    simuljax prepare phrasebook --to data/phrasebook
    simuljax train experiments/papi2022/phrasebook.py teacher
    simuljax prepare phrasebook --to data/phrasebook-distilled \
        --distil runs/papi-phrasebook/teacher --distil-mode join
    simuljax ablate experiments/papi2022/phrasebook.py --grid figure_1      and 2, 3, 4, 5

Hardware: one GPU. Not run. Variants and grids are those of recipe.py.
"""

from dataclasses import replace

from experiments.papi2022 import multi30k
from experiments.papi2022.recipe import grids, variants
from experiments.shared import adam
from experiments.zaidi2022.phrasebook import MASKED
from experiments.zaidi2022.phrasebook import RECIPE as BASE
from simuljax.config.experiment import DATA, RUNS
from simuljax.text import VocabularyConfig

TRAINING = replace(multi30k.TRAINING, optimiser=adam(2e-3, 1_000), objective=MASKED, epochs=80)

RECIPE = replace(
    multi30k.RECIPE,
    name="the phrasebook",
    runs=RUNS / "papi-phrasebook",
    data=replace(
        BASE.data, source=VocabularyConfig(kind="subword_nmt", size=2_000, lowercase=True)
    ),
    distilled=DATA / "phrasebook-distilled",
    taught=BASE.data,
    teaching=BASE.mt,
    training=TRAINING,
    conformer_training=TRAINING,
)

EXPERIMENTS = variants(RECIPE)
GRIDS = grids(RECIPE)
