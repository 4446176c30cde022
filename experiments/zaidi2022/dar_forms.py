"""G0: forms of DAR on Multi30k-speech. Which of them descend, and what do heads do then?

    simuljax speak TEXT --to data/multi30k-speech       TEXT holds train.en, train.de, val.en ...
    simuljax ablate experiments/zaidi2022/dar_forms.py --workers 7 --together 4 --variants kd \\
        flow stop averaged frozen without_car '*_lambda_0.1'
    simuljax ablate experiments/zaidi2022/dar_forms.py --workers 3 --together 2

One H200, about 25 minutes. Hypothesis, gate and verdict rule: PROGRAMME.md beside this file.

Every form has DAR's weight of 0.01 and starts from the same recogniser and text translator. All but
`kd` and `without_car` include CAR. `stop` is `dar` of the published grids: they were run
when the stop-gradient was the only form.

    kd            no CAR, no DAR
    stop          the paper's form: text energies are held fixed within an update
    flow          the gradient reaches text energies too; the default of the joint objective
    averaged      text energies of averaged parameters (decay 0.999 per update)
    frozen        text energies of `mt`, the offline text translator, which no update changes
    without_car   flow without CAR
    unit          flow with columns of unit length
    no_bias       flow with energies without the decoder's bias
    tokens        flow, divided by target tokens: about 16 times weaker
    stop_unit     stop with columns of unit length
    stop_no_bias  stop with energies without the decoder's bias
"""

from dataclasses import replace
from typing import Any

from experiments.shared import ANY, OFFLINE, with_objective
from experiments.zaidi2022.multi30k import EXPERIMENTS, RECIPE
from experiments.zaidi2022.recipe import DAR, phases
from simuljax.ablate.grid import Grid
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import OFFLINE_TEXT, RUNS, Experiment, InitFrom

FORMS: dict[str, dict[str, Any]] = {
    "stop": {},
    "flow": {"decision_teacher": "flow"},
    "averaged": {"decision_teacher": "averaged"},
    "frozen": {"decision_teacher": "frozen"},
    "without_car": {"decision_teacher": "flow", "cross_attentive": 0.0},
    "unit": {"decision_teacher": "flow", "decision_columns": "unit"},
    "no_bias": {"decision_teacher": "flow", "decision_bias": False},
    "tokens": {"decision_teacher": "flow", "decision_divisor": "tokens"},
    "stop_unit": {"decision_columns": "unit"},
    "stop_no_bias": {"decision_bias": False},
}
WITH_LATENCY = ("kd", "stop", "flow", "averaged", "frozen")
SECOND = replace(RECIPE.second, best_by="loss_and_latency")


def form(name: str, changes: dict[str, Any]) -> Experiment:
    """Return `dar` with another form of DAR; a frozen teacher has the weights of `mt`."""
    base = EXPERIMENTS["dar"]
    joint = replace(DAR, **changes)
    teacher = InitFrom(run=EXPERIMENTS["mt"].run, rules=OFFLINE_TEXT, fills="teacher")
    return replace(
        base,
        run=base.run.with_name(name),
        training=with_objective(base.training, joint),
        init_from=(*base.init_from, *([teacher] if joint.decision_teacher == "frozen" else [])),
    )


FIRST = {"kd": EXPERIMENTS["kd"]} | {name: form(name, changes) for name, changes in FORMS.items()}
LAMBDAS = {name: (0.1,) if name in WITH_LATENCY else () for name in FIRST}
WAYS = (OFFLINE, Evaluation(run=ANY, predecision_ms=280))

GRID = Grid(
    title="Forms of DAR on Multi30k-speech",
    runs=RUNS / "zaidi2022",
    name="dar_forms",
    baseline="kd",
    seeds=(0, 1),
    **phases(FIRST, SECOND, LAMBDAS, EXPERIMENTS, at_zero=WAYS, later=WAYS),
)
