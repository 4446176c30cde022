"""Zaidi et al. 2022, table 3, on Mboshi-French: does what DAR buys hold for human speech?

    experiments/zaidi2022/mboshi.py                         has the commands that prepare the corpora
    simuljax ablate experiments/zaidi2022/mboshi_grid.py --grid alone --workers 6 --together 6
    simuljax ablate experiments/zaidi2022/mboshi_grid.py --grid helped --workers 6 --together 6

One H200. The rows of `experiments/zaidi2022/mboshi.py` with equal schedules and three seeds, each
trained on with a latency weight. The text branch is evaluated too: where the baseline reaches less
than 60 % of its BLEU from speech, the answer draws no conclusions. `alone`, 32 runs, has the four
hours of the corpus; `helped`, 33 runs, begins with the recogniser of
`experiments/zaidi2022/multi30k.py`, drops out less in its own, hears every utterance at three speeds
and keeps the checkpoints with most tokens right. Neither gets there (results/ablation-mboshi): 40
and 44 %.
"""

from collections.abc import Mapping
from pathlib import Path

from experiments.zaidi2022.mboshi import EXPERIMENTS, HELPED
from experiments.zaidi2022.table_3 import CLAIMS, STEPS
from simuljax.ablate.grid import Ablation
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import RUNS, Experiment

ANY = Path()
TABLE = ("mma", "multitask", "kd", "mma_mt", "dar")
LATER = {row: f"{row}_lambda_0.1" for row in TABLE}
HEARD = (Evaluation(run=ANY, mode="offline"), Evaluation(run=ANY))
READ = Evaluation(run=ANY, branch="text", mode="offline")


def grid(name: str, title: str, rows: Mapping[str, Experiment]) -> Ablation:
    """The same questions of the rows of either recipe."""
    return Ablation(
        title=f"Zaidi et al. 2022 on Mboshi-French, {title}",
        runs=RUNS / "ablation-mboshi",
        answer=name,
        rows=rows,
        table=TABLE,
        baseline="mma",
        seeds=(0, 1, 2),
        claims=CLAIMS,
        curves={row: (later,) for row, later in LATER.items()},
        evaluations=(*HEARD, READ),
        own={"mma": HEARD, **dict.fromkeys(LATER.values(), STEPS)},  # mma learns nothing from text
    )


ABLATIONS = {
    "alone": grid("alone", "and nothing else", EXPERIMENTS),
    "helped": grid("helped", "after English and at three speeds", HELPED),
}
