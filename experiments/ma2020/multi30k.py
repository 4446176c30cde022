"""Ma et al. 2020 on Multi30k-speech: 29,000 captions with word and phoneme times, one GPU.

simuljax speak TEXT --to data/multi30k-speech       TEXT holds train.en, train.de, val.en ...
simuljax train experiments/ma2020/multi30k.py asr
simuljax train experiments/ma2020/multi30k.py fixed_280          and any other row of ma.py
simuljax train experiments/ma2020/multi30k.py words_wait_k
"""

from experiments.ma2020.recipe import Recipe, rows
from experiments.zaidi2022 import multi30k as zaidi_multi30k
from simuljax.config.experiment import RUNS
from simuljax.models import presets

BASE = zaidi_multi30k.RECIPE

EXPERIMENTS = rows(
    Recipe(
        runs=RUNS / "ma-multi30k",
        corpus=BASE.corpus,
        model=presets.speech_only(BASE.model),
        asr=BASE.asr,
        first=BASE.first,
        second=BASE.second,
    )
)
