"""G1: does lambda choose the latency? Weights of latency, with and without that of head variance.

    simuljax speak TEXT --to data/multi30k-speech       TEXT holds train.en, train.de, val.en ...
    simuljax ablate experiments/zaidi2022/latency_weight.py --workers 6 --together 4

One H200, about 25 minutes, 48 runs. Hypothesis and verdict rule: PROGRAMME.md beside this file.

    kd                      no CAR, no DAR, lambda 0
    flow                    CAR, and DAR whose gradient reaches text energies too, lambda 0
    *_lambda_W              trained further with latency weight W on both branches
    *_lambda_W_variance     the same, and weight W on the variance of delays over heads

Every seed has its own recogniser, text translator and order of batches.
"""

from dataclasses import replace

from experiments.shared import ANY, with_objective
from experiments.zaidi2022.multi30k import RECIPE
from experiments.zaidi2022.recipe import DAR, KD, at_lambda, variants
from simuljax.ablate.grid import Grid
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import RUNS, Experiment

LAMBDAS = (0.03, 0.1, 0.2)
# Runs of one seed are trained together, which needs threefry.
SHORT = replace(
    RECIPE,
    runs=RUNS / "zaidi2022",
    asr=replace(RECIPE.asr, epochs=14),
    first=replace(RECIPE.first, epochs=6, random="threefry"),
    second=replace(
        RECIPE.second,
        epochs=3,
        validate_every=285,
        best_by="loss_and_latency",
        random="threefry",
        keep_last=1,
        keep_best=1,
    ),
)
VARIANTS = variants(SHORT)
BASE = VARIANTS["dar"]
# `kd` has the options of a DAR that does not count, so that both are one compiled update.
JOINT = {"kd": KD, "flow": DAR}


def with_variance(later: Experiment) -> Experiment:
    """Return a variant whose head variance has the weight of its latency, on both branches."""
    objective = later.training.objective
    weight = objective.weight("st_latency")
    weighted = objective.with_weights(st_variance=weight, mt_variance=weight)
    return replace(
        later,
        run=later.run.with_name(f"{later.run.name}_variance"),
        training=replace(later.training, objective=weighted),
    )


FIRST, LATER = {}, {}
for name, joint in JOINT.items():
    training = with_objective(BASE.training, replace(joint, decision_teacher="flow"))
    FIRST[name] = replace(BASE, run=SHORT.runs / name, training=training)
    continued = [at_lambda(FIRST[name], SHORT.second, weight) for weight in LAMBDAS]
    LATER[name] = [run for plain in continued for run in (plain, with_variance(plain))]
DONORS = {name: VARIANTS[name] for name in ("asr", "mt")}

GRID = Grid(
    title="Latency weights on Multi30k-speech",
    runs=SHORT.runs,
    name="latency_weight",
    variants={
        **DONORS,
        **FIRST,
        **{later.run.name: later for some in LATER.values() for later in some},
    },
    # Variants of the table are trained for every seed: donors, too, but they are not evaluated.
    table=(*FIRST, *DONORS),
    own=dict.fromkeys(DONORS, ()),
    baseline="kd",
    seeds=(0, 1, 2),
    order=None,
    curves={name: tuple(later.run.name for later in some) for name, some in LATER.items()},
    evaluations=(Evaluation(run=ANY, predecision_ms=280),),
)
