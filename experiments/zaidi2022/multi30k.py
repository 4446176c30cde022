"""Zaidi et al. 2022 on Multi30k-speech: 29,000 captions, synthesised here, 25 hours.

    simuljax speak TEXT --to data/multi30k-speech       TEXT holds train.en, train.de, val.en ...
    simuljax train experiments/zaidi2022/multi30k.py asr
    simuljax train experiments/zaidi2022/multi30k.py mt
    simuljax train experiments/zaidi2022/multi30k.py dar    or another variant of recipe.py
    simuljax train experiments/zaidi2022/multi30k.py dar_lambda_0.05

Hardware: one H200; times in ../BUDGET.md. Expected on test 2016: `dar` after 8 epochs 39.1 BLEU
from text and 33.0 from speech (results/outputs.md); after 10 more with lambda 0.1,
34.5 streamed at 1.4 s LAAL (results/outputs.md).
"""

from dataclasses import replace

from experiments.shared import adam
from experiments.zaidi2022.recipe import Recipe, variants
from simuljax.audio import SpecAugment
from simuljax.config.experiment import DATA, RUNS, Budget, DataConfig
from simuljax.config.training import Objective, Training
from simuljax.models import presets
from simuljax.text import VocabularyConfig

MASKED = Objective(
    augment=SpecAugment(time_masks=2, time_width=40, time_fraction=0.2, frequency_width=20)
)
SMALL = presets.small()

RECIPE = Recipe(
    runs=RUNS / "zaidi-multi30k",
    data=DataConfig(
        directory=DATA / "multi30k-speech",
        source=VocabularyConfig(kind="unigram", size=5_000, lowercase=True),
        target=VocabularyConfig(kind="unigram", size=5_000),
        budget=Budget(frames=48_000, tokens=12_000, shapes=3),
        held="device",
    ),
    augmented=DATA / "multi30k-speech-augmented",
    model=replace(SMALL, width=replace(SMALL.width, dtype="bfloat16", dropout=0.2)),
    asr=Training(optimiser=adam(2e-3, 2_000), objective=MASKED, epochs=24, validate_every=1_000),
    mt=Training(optimiser=adam(2e-3, 1_000), epochs=60, validate_every=500),
    first=Training(optimiser=adam(1e-3, 1_000), objective=MASKED, epochs=8, validate_every=570),
    second=Training(optimiser=adam(5e-4, 300), objective=MASKED, epochs=5, validate_every=475),
)

EXPERIMENTS = variants(RECIPE)
