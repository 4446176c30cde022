"""The expected alignment itself: the exact recurrence against the field's closed form.

    simuljax speak TEXT --to data/multi30k-speech       TEXT holds train.en, train.de, val.en ...
    simuljax ablate experiments/ma2020/alignment.py --workers 4 --together 12

One H200: results/ablation-multi30k/alignment. The same model, losses, schedule and seeds, once with
the exact alignment (the row `dar`) and once with the closed form in float32, which loses
probability at the length of speech (`experiments/ma2020/closed_form_mass.py`). Decoding takes hard
decisions and is the same for both.
"""

from dataclasses import replace
from pathlib import Path

from experiments.zaidi2022.multi30k import EXPERIMENTS
from experiments.zaidi2022.table_3 import STEPS
from simuljax.ablate.grid import Ablation
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import RUNS, Experiment

ANY = Path()


def with_closed_form(experiment: Experiment, run: Path) -> Experiment:
    """The experiment with the other alignment."""
    monotonic = replace(experiment.model.monotonic, method="closed_form")
    return replace(experiment, run=run, model=replace(experiment.model, monotonic=monotonic))


EXACT, LATER = EXPERIMENTS["dar"], EXPERIMENTS["dar_lambda_0.1"]
CLOSED = with_closed_form(EXACT, RUNS / "closed_form")
CLOSED_LATER = with_closed_form(LATER, RUNS / "closed_form_lambda_0.1")
CLOSED_LATER = replace(CLOSED_LATER, begin=(replace(LATER.begin[0], run=CLOSED.run),))

ABLATION = Ablation(
    title="The expected alignment: exact, and in closed form",
    runs=RUNS / "ablation-multi30k",
    answer="alignment",
    rows={
        "asr": EXPERIMENTS["asr"],
        "mt": EXPERIMENTS["mt"],
        "dar": EXACT,
        "dar_lambda_0.1": LATER,
        "closed_form": CLOSED,
        "closed_form_lambda_0.1": CLOSED_LATER,
    },
    table=("closed_form", "dar"),
    baseline="closed_form",
    seeds=(0, 1, 2),
    curves={
        "dar": ("dar_lambda_0.1",),
        "closed_form": ("closed_form_lambda_0.1",),
    },
    evaluations=(Evaluation(run=ANY, mode="offline"), Evaluation(run=ANY)),
    own={"dar_lambda_0.1": STEPS, "closed_form_lambda_0.1": STEPS},
)
