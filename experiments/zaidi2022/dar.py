"""DAR itself: its weight, its temperature, its matching across heads; and curves that overlap.

    simuljax speak TEXT --to data/multi30k-speech       TEXT holds train.en, train.de, val.en ...
    simuljax ablate experiments/zaidi2022/dar.py --list
    simuljax ablate experiments/zaidi2022/dar.py --workers 4 --together 4 [--seeds 0]

One H200: results/ablation-multi30k/dar. 48 runs, 10 of which are in `experiments/zaidi2022/table_3.py`
too. Every variant of DAR is trained at lambda 0, then with 0.1. With 0.1 the rows of that grid
without DAR came out at an AL of 330 to 1,100 ms, and `dar` at 1,290 to 2,220: the curves scarcely
overlap. Hence larger lambdas for `dar`, and smaller ones for `kd`.

The weight is 0.01 in the paper's table; the paper also names a grid of 0.05 to 0.5. Rows that
differ in the weights of losses are trained together; temperature and matching are compiled in.
"""

from dataclasses import replace
from pathlib import Path

from experiments.zaidi2022.multi30k import EXPERIMENTS, RECIPE
from experiments.zaidi2022.recipe import at_lambda, with_objective
from experiments.zaidi2022.table_3 import STEPS
from simuljax.ablate.grid import Ablation
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import RUNS, Experiment

ANY = Path()
VARIANTS = {
    **{f"dar_weight_{weight:g}": {"decision_attentive": weight} for weight in (0.05, 0.1, 0.5)},
    **{f"dar_temperature_{t:g}": {"decision_temperature": t} for t in (0.1, 10.0)},
    "dar_per_head": {"decision_across_heads": False},
}
LAMBDAS = {
    "kd": (0.01, 0.03, 0.05, 0.1),
    "dar": (0.01, 0.05, 0.1, 0.2, 0.4),
    **dict.fromkeys(VARIANTS, (0.1,)),
}


def vary(name: str, changes: dict[str, float | bool]) -> Experiment:
    """The row `dar` with another DAR."""
    base = EXPERIMENTS["dar"]
    joint = replace(base.training.objective.joint, **changes)
    training = with_objective(base.training, joint)
    return replace(base, run=base.run.with_name(name), training=training)


FIRST = {
    "kd": EXPERIMENTS["kd"],
    "dar": EXPERIMENTS["dar"],
    **{name: vary(name, changes) for name, changes in VARIANTS.items()},
}
LATER = {
    name: [at_lambda(FIRST[name], RECIPE.second, weight) for weight in LAMBDAS[name]]
    for name in FIRST
}

ABLATION = Ablation(
    title="DAR's weight, temperature and matching, on Multi30k-speech",
    runs=RUNS / "ablation-multi30k",
    answer="dar",
    rows={
        "asr": EXPERIMENTS["asr"],
        "mt": EXPERIMENTS["mt"],
        **FIRST,
        **{later.run.name: later for each in LATER.values() for later in each},
    },
    table=tuple(FIRST),
    baseline="dar",
    seeds=(0, 1),
    curves={name: tuple(later.run.name for later in each) for name, each in LATER.items()},
    evaluations=(Evaluation(run=ANY, mode="offline"), Evaluation(run=ANY)),
    own={later.run.name: STEPS for each in LATER.values() for later in each},
)
