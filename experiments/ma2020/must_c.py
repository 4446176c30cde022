"""Ma et al. 2020 on MuST-C en-de, as the paper describes it.

    simuljax prepare must-c --from MUSTC_ROOT --to data/must-c
    simuljax train experiments/ma2020/must_c.py asr
    simuljax train experiments/ma2020/must_c.py fixed_280    or another variant of recipe.py
    simuljax train experiments/ma2020/must_c.py fixed_280_lambda_0.04

Not run by this project, because MuST-C may not be redistributed. Oracles (words, phonemes) need
forced alignments. The paper names the S-Transformer (`presets.ma_s_transformer_base`), its public
code the 12 + 6 layers used here.
"""

from dataclasses import replace

from experiments.ma2020.recipe import variants
from experiments.shared import LARGE, MASKED, Recipe, adam
from simuljax.config.experiment import DATA, RUNS, DataConfig
from simuljax.config.training import Training
from simuljax.models import presets
from simuljax.text import VocabularyConfig

PIECES = VocabularyConfig(kind="unigram", size=10_000)
TRAINING = Training(
    optimiser=adam(2e-3, 10_000), objective=MASKED, epochs=100, accumulate=4, patience=10
)

EXPERIMENTS = variants(
    Recipe(
        runs=RUNS / "ma-must-c",
        data=DataConfig(directory=DATA / "must-c", source=PIECES, target=PIECES, budget=LARGE),
        model=presets.ma_conv_transformer(),
        asr=TRAINING,
        first=TRAINING,
        second=replace(TRAINING, epochs=50),
    )
)
