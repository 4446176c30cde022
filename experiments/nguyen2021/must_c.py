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

from dataclasses import replace

from experiments.nguyen2021.recipe import Recipe, grids, variants
from experiments.shared import LARGE, MASKED, adam
from simuljax.audio import Features
from simuljax.config.experiment import DATA, RUNS, DataConfig
from simuljax.config.training import Objective, Training
from simuljax.models import presets
from simuljax.text import VocabularyConfig

TRANSFORMER = Training(
    optimiser=adam(2e-3, 10_000), objective=MASKED, epochs=100, accumulate=4, patience=10
)

RECIPE = Recipe(
    name="MuST-C en-de",
    runs=RUNS / "nguyen-must-c",
    data=DataConfig(
        directory=DATA / "must-c-speed",
        source=VocabularyConfig(kind="bpe", size=5_000),
        features=Features(pitch=True),  # 83 numbers a frame
        budget=LARGE,
    ),
    model=presets.nguyen(),
    recogniser=presets.papi_conformer(),
    translator=presets.offline(presets.text_only(presets.dar())),
    training=Training(
        optimiser=replace(adam(1e-3, 5_000), clip=5.0), objective=MASKED, epochs=50, patience=10
    ),
    asr=TRANSFORMER,
    mt=replace(TRANSFORMER, objective=Objective()),
    tests=("test", "tst_he"),
)

EXPERIMENTS = variants(RECIPE)
GRIDS = grids(RECIPE)
