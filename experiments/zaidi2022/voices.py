"""The variants of `table_3.py` on natural voices, which none of them was trained on.

    simuljax prepare multi30k-speech --from SPEECH --translations TEXT --to data/multi30k-kokoro
    simuljax ablate experiments/zaidi2022/voices.py

Hardware: one GPU, after `table_3.py`: its runs are evaluated again, nothing is trained. The test
set is the first 500 captions of test 2016 in 28 voices of another synthesiser. Results:
ablation-multi30k/voices.
"""

from dataclasses import replace

from experiments.shared import ANY
from experiments.zaidi2022.table_3 import GRID as TABLE_3
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import DATA

NATURAL = DATA / "multi30k-kokoro"

GRID = replace(
    TABLE_3,
    title="Zaidi et al. 2022 on Multi30k-speech, natural voices",
    name="voices",
    claims=tuple(replace(claim, evaluation="natural-offline") for claim in TABLE_3.claims),
    evaluations=(
        Evaluation(run=ANY, corpus=NATURAL, mode="offline", name="natural-offline"),
        Evaluation(run=ANY, corpus=NATURAL, name="natural-streamed"),
    ),
    own={},
)
