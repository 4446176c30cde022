"""Ma et al. 2020 on Multi30k-speech: 29,000 captions with word and phoneme times.

    simuljax speak TEXT --to data/multi30k-speech       TEXT holds train.en, train.de, val.en ...
    simuljax train experiments/ma2020/multi30k.py asr
    simuljax train experiments/ma2020/multi30k.py fixed_280    or another variant of recipe.py

Hardware: one GPU. `figures_2_to_4.py` trains and compares these variants on one H200.
"""

from dataclasses import replace

from experiments.ma2020.recipe import variants
from experiments.zaidi2022 import multi30k
from simuljax.config.experiment import RUNS
from simuljax.models import presets

RECIPE = replace(
    multi30k.RECIPE,
    runs=RUNS / "ma-multi30k",
    model=presets.speech_only(multi30k.RECIPE.model),
)

EXPERIMENTS = variants(RECIPE)
