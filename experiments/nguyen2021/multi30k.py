"""Nguyen et al. 2021 on Multi30k-speech: 29,000 captions, synthesised at three speeds.

    simuljax speak TEXT --to data/multi30k-speech-speed --augment speed
    simuljax ablate experiments/nguyen2021/multi30k.py --grid table      and figure_2, figure_3
    simuljax train experiments/nguyen2021/multi30k.py characters         a single variant
    simuljax evaluate runs/nguyen-multi30k/asr --then runs/nguyen-multi30k/mt --then-k 3 \
        --policy alignatt --last-frames 4 --force-finish

Hardware: one H200. Not run. Captions take 3 s and the paper's sentences 6, so k is halved.
"""

from dataclasses import replace

from experiments.nguyen2021.recipe import Recipe, grids, variants
from experiments.papi2022 import multi30k as papi_multi30k
from experiments.shared import adam
from experiments.zaidi2022.multi30k import MASKED
from experiments.zaidi2022.multi30k import RECIPE as BASE
from simuljax.config.experiment import DATA, RUNS
from simuljax.config.training import Training
from simuljax.models import presets
from simuljax.text import VocabularyConfig

RECIPE = Recipe(
    name="Multi30k-speech",
    runs=RUNS / "nguyen-multi30k",
    data=replace(
        BASE.data,
        directory=DATA / "multi30k-speech-speed",
        source=VocabularyConfig(kind="bpe", size=4_000, lowercase=True),
    ),
    model=presets.small_blstm(),
    recogniser=papi_multi30k.CONFORMER,
    translator=presets.offline(presets.text_only(BASE.model)),
    training=Training(
        optimiser=adam(1e-3, 1_000), objective=MASKED, epochs=30, validate_every=1_000
    ),
    asr=Training(optimiser=adam(2e-3, 2_000), objective=MASKED, epochs=20, validate_every=1_000),
    mt=replace(BASE.mt, epochs=20),
    length_ratio=1.5,
    scale=0.5,
)

EXPERIMENTS = variants(RECIPE)
GRIDS = grids(RECIPE)
