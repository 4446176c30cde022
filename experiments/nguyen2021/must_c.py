"""Nguyen et al. 2021 on MuST-C en-de, in the paper's size: table 1 and figure 3.

    simuljax prepare must-c --from MUSTC_ROOT --to data/must-c-speed --augment speed
    simuljax ablate experiments/nguyen2021/must_c.py --grid table        tst-COMMON; table_tst_he
    simuljax ablate experiments/nguyen2021/must_c.py --grid figure_3     and figure_2
    simuljax train experiments/nguyen2021/must_c.py characters           a single variant

Expected (paper, tst-COMMON): 21.38 BLEU offline, greedily, 23.55 with a beam of 10; (200, 20, 1)
17.94 at AL 3610 ms, (100, 10, 1) 12.85 at 2157. The paper trains on Europarl and on How2 with
synthetic translations too, and its optimiser is not said: Adam here. Its recogniser is a hybrid
one. Not run by this project, because MuST-C may not be redistributed.
"""

from experiments.nguyen2021.recipe import Recipe, grids, variants
from simuljax.audio import Features, SpecAugment
from simuljax.config.experiment import DATA, RUNS, Budget, DataConfig
from simuljax.config.training import Objective, Optimiser, Training
from simuljax.models import presets
from simuljax.text import VocabularyConfig

ADAM = Optimiser(learning_rate=1e-3, warmup=5_000, betas=(0.9, 0.98), clip=5.0)
TRANSFORMER = Optimiser(learning_rate=2e-3, warmup=10_000, betas=(0.9, 0.98), clip=10.0)
MASKED = Objective(augment=SpecAugment())
WRITTEN = {
    "characters": VocabularyConfig(kind="characters", size=200),
    "bpe400": VocabularyConfig(kind="bpe", size=400),
    "bpe2k": VocabularyConfig(kind="bpe", size=2_000),
}

RECIPE = Recipe(
    name="MuST-C en-de",
    runs=RUNS / "nguyen-must-c",
    data=DataConfig(
        directory=DATA / "must-c-speed",
        source=VocabularyConfig(kind="bpe", size=5_000),
        features=Features(pitch=True),  # 83 numbers a frame
        budget=Budget(frames=40_000, tokens=40_000, row_multiple=8),
    ),
    model=presets.nguyen(),
    recogniser=presets.papi_conformer(),
    translator=presets.offline(presets.text_only(presets.dar())),
    training=Training(optimiser=ADAM, objective=MASKED, epochs=50, patience=10),
    asr=Training(optimiser=TRANSFORMER, objective=MASKED, epochs=100, accumulate=4, patience=10),
    mt=Training(optimiser=TRANSFORMER, epochs=100, accumulate=4, patience=10),
    written=WRITTEN,
    tests=("test", "tst_he"),
)

EXPERIMENTS = variants(RECIPE)
GRIDS = grids(RECIPE)
