"""The rows of `ablation_zaidi` on natural voices: nobody they were trained on sounds like these.

    simuljax prepare multi30k-speech --from SPEECH --translations TEXT --to data/multi30k-kokoro
    simuljax ablate experiments/zaidi2022/voices.py

After `experiments/zaidi2022/table_3.py`, whose runs these are: nothing is trained here, and the first
500 captions of test 2016 are heard again in 28 voices of another synthesiser.
"""

from dataclasses import replace
from pathlib import Path

from experiments.zaidi2022 import table_3 as ablation_zaidi
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import DATA

NATURAL = DATA / "multi30k-kokoro"

ABLATION = replace(
    ablation_zaidi.ABLATION,
    title="Zaidi et al. 2022 on Multi30k-speech, natural voices",
    answer="voices",
    claims=tuple(
        replace(claim, evaluation="natural-offline") for claim in ablation_zaidi.ABLATION.claims
    ),
    evaluations=(
        Evaluation(run=Path(), corpus=NATURAL, mode="offline", name="natural-offline"),
        Evaluation(run=Path(), corpus=NATURAL, name="natural-streamed"),
    ),
    own={},
)
