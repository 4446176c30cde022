"""Ma et al. 2020 on MuST-C en-de, as the paper describes it.

    simuljax prepare must-c --from MUSTC_ROOT --to data/must-c
    simuljax train experiments/ma2020/must_c.py asr
    simuljax train experiments/ma2020/must_c.py fixed_280    or another variant of recipe.py
    simuljax train experiments/ma2020/must_c.py fixed_280_lambda_0.04

Not run by this project, because MuST-C may not be redistributed. Oracles (words, phonemes) need
forced alignments. The paper names the S-Transformer (`presets.ma_s_transformer_base`), its public
code the 12 + 6 layers used here.
"""

from experiments.ma2020.recipe import Recipe, variants
from simuljax.audio import SpecAugment
from simuljax.config.experiment import DATA, RUNS, Budget, DataConfig
from simuljax.config.training import Objective, Optimiser, Training
from simuljax.models import presets
from simuljax.text import VocabularyConfig

ADAM = Optimiser(learning_rate=2e-3, warmup=10_000, betas=(0.9, 0.98), clip=10.0)
MASKED = Objective(augment=SpecAugment())

EXPERIMENTS = variants(
    Recipe(
        runs=RUNS / "ma-must-c",
        data=DataConfig(
            directory=DATA / "must-c",
            source=VocabularyConfig(kind="unigram", size=10_000),
            target=VocabularyConfig(kind="unigram", size=10_000),
            budget=Budget(frames=40_000, tokens=40_000, row_multiple=8),
        ),
        model=presets.ma_conv_transformer(),
        asr=Training(optimiser=ADAM, objective=MASKED, epochs=100, accumulate=4, patience=10),
        first=Training(optimiser=ADAM, objective=MASKED, epochs=100, accumulate=4, patience=10),
        second=Training(optimiser=ADAM, objective=MASKED, epochs=50, accumulate=4, patience=10),
    )
)
