"""G2: does text that speech has not seen help? Multi30k-speech beside 170,000 pairs of Tatoeba.

    simuljax speak TEXT --to data/multi30k-speech       TEXT holds train.en, train.de, val.en ...
    simuljax prepare tsv --from deu-eng.zip --exclude TSV ... --to data/tatoeba-text
    simuljax ablate experiments/zaidi2022/extra_text.py --workers 4 --together 4

Hypothesis and verdict rule: PROGRAMME.md beside this file. One H200, about 30 minutes.

    mma         speech alone
    multitask   speech and text; every second update is of a batch of text alone
    kd          the same with online distillation, weight 0.2
    kd_0.8      the same with weight 0.8

All start from one recogniser and one text translator, which was trained on both texts, and hear
speech equally often. Seeds differ in first values, dropout, masks and the order of batches.
"""

from dataclasses import replace

from experiments.shared import ANY, OFFLINE, claims, with_objective
from experiments.zaidi2022.multi30k import RECIPE
from experiments.zaidi2022.recipe import KD, variants
from simuljax.ablate.grid import Grid
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import DATA, RUNS, Experiment

SCHEDULES = replace(
    RECIPE,
    runs=RUNS / "zaidi2022-text",
    asr=replace(RECIPE.asr, epochs=14),
    mt=replace(RECIPE.mt, epochs=30),
    first=replace(RECIPE.first, epochs=10, patience=4, random="threefry"),
)
PLAIN = variants(SCHEDULES)
STRONGER = replace(
    PLAIN["kd"],
    run=SCHEDULES.runs / "kd_0.8",
    training=with_objective(PLAIN["kd"].training, replace(KD, distillation=0.8)),
)


def with_text(experiment: Experiment) -> Experiment:
    """Return the same with as many batches of text as of its corpus, hence twice the updates."""
    training = experiment.training
    return replace(
        experiment,
        data=replace(experiment.data, text=DATA / "tatoeba-text"),
        training=replace(training, validate_every=2 * training.validate_every),
    )


VARIANTS = {
    "mma": PLAIN["mma"],
    "multitask": with_text(PLAIN["multitask"]),
    "kd": with_text(PLAIN["kd"]),
    "kd_0.8": with_text(STRONGER),
}

GRID = Grid(
    title="Extra text on Multi30k-speech",
    runs=SCHEDULES.runs,
    variants={"asr": PLAIN["asr"], "mt": with_text(PLAIN["mt"]), **VARIANTS},
    table=tuple(VARIANTS),
    baseline="mma",
    seeds=(0, 1, 2, 3),
    order=None,
    claims=claims(
        ("multitask learning helps", "multitask", "mma", 1.67),
        ("online distillation helps", "kd", "multitask", 0.95),
        ("more distillation helps", "kd_0.8", "kd", None),
    ),
    evaluations=(OFFLINE, Evaluation(run=ANY, predecision_ms=280)),
)
