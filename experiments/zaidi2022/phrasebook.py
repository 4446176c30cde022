"""Zaidi et al. 2022 on the phrasebook: 10,000 sentences, 8 hours, 71 voices, built from nothing.

    simuljax prepare phrasebook --to data/phrasebook
    simuljax train experiments/zaidi2022/phrasebook.py asr
    simuljax train experiments/zaidi2022/phrasebook.py mt
    simuljax train experiments/zaidi2022/phrasebook.py dar    or another variant of recipe.py

Hardware: one GPU. Not run, so there is no expected score; answering with the translation of the
most similar training sentence gives 8.5 BLEU on the test split.
"""

from dataclasses import replace

from experiments.shared import adam
from experiments.zaidi2022 import multi30k
from experiments.zaidi2022.recipe import variants
from simuljax.audio import SpecAugment
from simuljax.config.experiment import DATA, RUNS, Budget
from simuljax.config.training import Objective, Training
from simuljax.text import VocabularyConfig

MASKED = Objective(
    augment=SpecAugment(time_masks=2, time_width=30, time_fraction=0.2, frequency_width=20)
)
RECIPE = replace(
    multi30k.RECIPE,
    runs=RUNS / "zaidi-phrasebook",
    data=replace(
        multi30k.RECIPE.data,
        directory=DATA / "phrasebook",
        source=VocabularyConfig(kind="unigram", size=2_000, lowercase=True),
        target=VocabularyConfig(kind="unigram", size=2_000),
        budget=Budget(frames=24_000, tokens=6_000, shapes=2),
    ),
    augmented=DATA / "phrasebook-augmented",
    asr=Training(optimiser=adam(2e-3, 1_000), objective=MASKED, epochs=60, validate_every=500),
    mt=Training(optimiser=adam(2e-3, 500), epochs=60, validate_every=250),
    first=Training(optimiser=adam(1e-3, 500), objective=MASKED, epochs=60, validate_every=500),
    second=Training(optimiser=adam(5e-4, 250), objective=MASKED, epochs=10, validate_every=250),
)

EXPERIMENTS = variants(RECIPE)
