"""Papi et al. 2022 on MuST-C, as the paper describes it; en-de, or another target language.

    export SIMULJAX_TARGET=es                            by default de
    simuljax prepare must-c --from MUSTC_ROOT --target es --to data/must-c-es
    simuljax prepare parallel-text --from OPUS --target es --to data/opus-es    or other text
    simuljax train experiments/papi2022/must_c.py teacher
    simuljax prepare must-c --from MUSTC_ROOT --target es --to data/must-c-es-distilled \
        --distil runs/papi-must-c-es/teacher --distil-mode join
    simuljax ablate experiments/papi2022/must_c.py --grid figure_1        and 2, 3, 4, 5
    simuljax train experiments/papi2022/must_c.py conformer_kd            a single variant

Hardware: the paper used 4 K80 for 116 hours a system. Expected (tst-COMMON, greedy and beam 5):
Transformer 20.6 and 22.2 BLEU in German, 26.1 and 27.2 in Spanish; Conformer 23.3 and 24.8, 28.5
and 29.6. Not run by this project, because MuST-C may not be redistributed.

The paper takes its schedule from Ma et al. 2020 and does not state the CTC weight: 0.5 and the
Conformer's warm-up are those of its authors' published recipes. Each builds its vocabularies
from its own training data.
"""

import os
from dataclasses import replace

from experiments.papi2022.recipe import Recipe, grids, variants
from experiments.shared import LARGE, MASKED, adam
from simuljax.config.experiment import DATA, RUNS, Budget, DataConfig
from simuljax.config.training import Training
from simuljax.models import presets
from simuljax.text import VocabularyConfig

TARGET = os.environ.get("SIMULJAX_TARGET", "de")
CORPUS = DataConfig(
    directory=DATA / ("must-c" if TARGET == "de" else f"must-c-{TARGET}"),
    source=VocabularyConfig(kind="subword_nmt", size=5_000),  # `@@` says where a word ends
    target=VocabularyConfig(kind="unigram", size=8_000, language=TARGET),
    budget=LARGE,
)
TRAINING = Training(
    optimiser=adam(2e-3, 10_000),
    objective=MASKED,
    epochs=100,
    accumulate=4,
    patience=10,
    average=7,
)

RECIPE = Recipe(
    name=f"MuST-C en-{TARGET}",
    runs=RUNS / f"papi-must-c-{TARGET}",
    data=CORPUS,
    distilled=CORPUS.directory.with_name(f"{CORPUS.directory.name}-distilled"),
    taught=DataConfig(
        directory=DATA / f"opus-{TARGET}",
        source=VocabularyConfig(kind="unigram", size=16_000),
        target=VocabularyConfig(kind="unigram", size=16_000, language=TARGET),
        budget=Budget(tokens=100_000),
    ),
    teacher=presets.papi_teacher(),
    transformer=presets.papi_transformer(),
    conformer=presets.papi_conformer(),
    teaching=Training(optimiser=replace(adam(5e-4, 4_000), clip=0.0), updates=200_000, patience=10),
    training=TRAINING,
    conformer_training=replace(TRAINING, optimiser=adam(2e-3, 25_000)),
)

EXPERIMENTS = variants(RECIPE)
GRIDS = grids(RECIPE)
