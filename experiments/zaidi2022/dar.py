"""DAR's weight, temperature and matching; latency weights at which the curves overlap.

    simuljax speak TEXT --to data/multi30k-speech       TEXT holds train.en, train.de, val.en ...
    simuljax ablate experiments/zaidi2022/dar.py --workers 4 --together 4 [--seeds 0] [--list]

Hardware: one H200, 48 runs, 10 of them shared with `table_3.py`. Results: ablation-multi30k/dar.

Every variant is trained at lambda = 0, then with 0.1. At 0.1 the variants without DAR reach an AL
of 330 to 1,100 ms and `dar` 1,290 to 2,220 ms, so `dar` gets larger weights too and `kd` smaller
ones. The paper's table has a DAR weight of 0.01; it also names a search over 0.05 to 0.5.
"""

from dataclasses import replace

from experiments.shared import with_objective
from experiments.zaidi2022.multi30k import EXPERIMENTS, RECIPE
from experiments.zaidi2022.recipe import DAR, phases
from simuljax.ablate.grid import Grid
from simuljax.config.experiment import RUNS, Experiment

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
    """Change the DAR loss of the variant `dar`."""
    base = EXPERIMENTS["dar"]
    training = with_objective(base.training, replace(DAR, **changes))
    return replace(base, run=base.run.with_name(name), training=training)


FIRST = {name: EXPERIMENTS[name] for name in ("kd", "dar")}
FIRST |= {name: vary(name, changes) for name, changes in VARIANTS.items()}

GRID = Grid(
    title="DAR's weight, temperature and matching, on Multi30k-speech",
    runs=RUNS / "ablation-multi30k",
    name="dar",
    baseline="dar",
    seeds=(0, 1),
    **phases(FIRST, RECIPE.second, LAMBDAS, EXPERIMENTS),
)
