"""Where to decide: learnt points against fixed steps of 280 ms and the oracle's words.

    simuljax speak TEXT --to data/multi30k-speech       TEXT holds train.en, train.de, val.en ...
    simuljax ablate experiments/zaidi2022/decisions.py --workers 4 --together 4

One H200: results/ablation-multi30k/decisions. 18 runs, 6 of which are those of
`experiments/zaidi2022/table_3.py` if these are there. All rows are `kd`, which decides every 280 ms:
without DAR, whose matching would change with the number of points. Nothing in the translation loss
says how many points to learn; in `learnable_counted` they are to be as many as the pieces of the
transcript.

All are heard in pieces of 40 ms, so that a point is noticed where it is. Fixed steps are also heard
in pieces of their own: with smaller ones, heads are asked more often about the same window, as the
encoder sees more. The words of the test are the synthesiser's: an oracle, and no system.
"""

from dataclasses import replace
from pathlib import Path

from experiments.zaidi2022.multi30k import EXPERIMENTS, RECIPE
from experiments.zaidi2022.recipe import at_lambda, with_objective
from experiments.zaidi2022.table_3 import STEPS
from simuljax.ablate.grid import Ablation
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import RUNS, Experiment
from simuljax.models.config import DecisionKind, PreDecision

ANY = Path()
LAMBDA = 0.1
QUANTITY = 0.1
PIECES = Evaluation(run=ANY, read_ms=40)  # an encoder state to a READ
OFFLINE = Evaluation(run=ANY, mode="offline")
FIXED = EXPERIMENTS["kd"]


def decide(name: str, kind: DecisionKind, *, quantity: float = 0.0) -> Experiment:
    """The row `kd` with other decision points."""
    joint = replace(FIXED.training.objective.joint, quantity=quantity)
    return replace(
        FIXED,
        run=FIXED.run.with_name(name),
        model=replace(FIXED.model, predecision=PreDecision(kind=kind)),
        training=with_objective(FIXED.training, joint),
    )


FIRST = {
    "kd": FIXED,
    "words": decide("words", "words"),
    "learnable": decide("learnable", "learnable"),
    "learnable_counted": decide("learnable_counted", "learnable", quantity=QUANTITY),
}
LATER = {name: at_lambda(row, RECIPE.second, LAMBDA) for name, row in FIRST.items()}

ABLATION = Ablation(
    title="Learnt decision points, fixed steps and words, on Multi30k-speech",
    runs=RUNS / "ablation-multi30k",
    answer="decisions",
    rows={
        "asr": EXPERIMENTS["asr"],
        "mt": EXPERIMENTS["mt"],
        **FIRST,
        **{later.run.name: later for later in LATER.values()},
    },
    table=tuple(FIRST),
    baseline="kd",
    seeds=(0, 1),
    curves={name: (later.run.name,) for name, later in LATER.items()},
    evaluations=(OFFLINE, PIECES),
    own={
        "kd": (OFFLINE, PIECES, Evaluation(run=ANY)),
        LATER["kd"].run.name: (*STEPS, PIECES),
        **{LATER[name].run.name: (PIECES,) for name in FIRST if name != "kd"},
    },
)
