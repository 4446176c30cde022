"""Where to decide: learned decision points against fixed steps of 280 ms and oracle words.

    simuljax speak TEXT --to data/multi30k-speech       TEXT holds train.en, train.de, val.en ...
    simuljax ablate experiments/zaidi2022/decisions.py --workers 4 --together 4

Hardware: one H200, 12 minutes, 18 runs, 6 of them shared with `table_3.py`. Results:
ablation-multi30k/decisions.

All variants are `kd` (no DAR, whose matching would change with the number of decision points). The
translation loss does not say how many points to learn; `learnable_counted` is trained towards as
many as the transcript has pieces. Test word boundaries are the synthesiser's: an oracle.

READs are 40 ms, so that a decision point is noticed where it is. Fixed steps are also evaluated
with READs of their own step: with smaller READs, heads decide more often on the same window.
"""

from dataclasses import replace

from experiments.shared import ANY, OFFLINE, STEPS, STREAMED, with_objective
from experiments.zaidi2022.multi30k import EXPERIMENTS, RECIPE
from experiments.zaidi2022.recipe import KD, phases
from simuljax.ablate.grid import Grid
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import RUNS, Experiment
from simuljax.config.model import DecisionKind, PreDecision

READ_40 = Evaluation(run=ANY, read_ms=40)  # one encoder state per READ
FIXED = EXPERIMENTS["kd"]


def decide(name: str, kind: DecisionKind, *, quantity: float = 0.0) -> Experiment:
    """Change the decision points of the variant `kd`."""
    return replace(
        FIXED,
        run=FIXED.run.with_name(name),
        model=replace(FIXED.model, predecision=PreDecision(kind=kind)),
        training=with_objective(FIXED.training, replace(KD, quantity=quantity)),
    )


FIRST = {
    "kd": FIXED,
    "words": decide("words", "words"),
    "learnable": decide("learnable", "learnable"),
    "learnable_counted": decide("learnable_counted", "learnable", quantity=0.1),
}
PHASES = phases(
    *(FIRST, RECIPE.second, dict.fromkeys(FIRST, (0.1,)), EXPERIMENTS),
    at_zero=(OFFLINE, READ_40),
    later=(READ_40,),
)
PHASES["own"] |= {"kd": (OFFLINE, READ_40, STREAMED), "kd_lambda_0.1": (*STEPS, READ_40)}

GRID = Grid(
    title="Learned decision points, fixed steps and words, on Multi30k-speech",
    runs=RUNS / "ablation-multi30k",
    name="decisions",
    baseline="kd",
    seeds=(0, 1),
    **PHASES,
)
