"""Papi et al. 2022 on Multi30k-speech: 29,000 captions, synthesised here, 25 hours.

    simuljax speak TEXT --to data/multi30k-speech        TEXT holds train.en, train.de, val.en ...
    simuljax train experiments/papi2022/multi30k.py teacher
    simuljax speak TEXT --to data/multi30k-speech-distilled \
        --distil runs/papi-multi30k/teacher --distil-mode join
    simuljax ablate experiments/papi2022/multi30k.py --grid figure_1        and 2, 3, 4, 5
    simuljax train experiments/papi2022/multi30k.py conformer_kd            a single variant

Hardware: one H200. Not run; `policies.py` trains its Conformer, with a shorter schedule. Variants
and grids are those of recipe.py.
"""

from dataclasses import replace

from experiments.papi2022.recipe import Recipe, grids, variants
from experiments.shared import adam
from experiments.zaidi2022.multi30k import MASKED
from experiments.zaidi2022.multi30k import RECIPE as BASE
from simuljax.config.experiment import DATA, RUNS
from simuljax.config.model import SpeechConfig
from simuljax.config.training import Training
from simuljax.models import presets
from simuljax.text import VocabularyConfig

SMALL = presets.small_conformer()
CONFORMER = replace(SMALL, width=replace(SMALL.width, dtype="bfloat16", dropout=0.2))
TRAINING = Training(
    optimiser=adam(2e-3, 2_000), objective=MASKED, epochs=60, validate_every=500, average=7
)

RECIPE = Recipe(
    name="Multi30k-speech",
    runs=RUNS / "papi-multi30k",
    data=replace(
        BASE.data, source=VocabularyConfig(kind="subword_nmt", size=4_000, lowercase=True)
    ),
    distilled=DATA / "multi30k-speech-distilled",
    taught=BASE.data,
    teacher=presets.offline(presets.text_only(BASE.model)),
    transformer=replace(
        CONFORMER, speech=SpeechConfig(layers=8, shared=0, channels=512, ctc_after=6)
    ),
    conformer=CONFORMER,
    teaching=BASE.mt,
    training=TRAINING,
    conformer_training=TRAINING,
    live=200,
)

EXPERIMENTS = variants(RECIPE)
GRIDS = grids(RECIPE)
