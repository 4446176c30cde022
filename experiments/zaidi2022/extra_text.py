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

from experiments.zaidi2022.multi30k import RECIPE
from experiments.zaidi2022.recipe import ANY, KD, variants, with_objective
from simuljax.ablate.grid import Claim, Grid
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import DATA, RUNS, Experiment

TEXT = DATA / "tatoeba-text"
SCHEDULES = replace(
    RECIPE,
    runs=RUNS / "zaidi2022-text",
    asr=replace(RECIPE.asr, epochs=14),
    mt=replace(RECIPE.mt, epochs=30),
    first=replace(RECIPE.first, epochs=10, patience=4, random="threefry"),
)
PLAIN = variants(SCHEDULES)


def with_text(experiment: Experiment) -> Experiment:
    """Return the same with as many batches of text as of its corpus, hence twice the updates."""
    training = experiment.training
    return replace(
        experiment,
        data=replace(experiment.data, text=TEXT),
        training=replace(training, validate_every=2 * training.validate_every),
    )


STRONGER = replace(
    PLAIN["kd"],
    run=SCHEDULES.runs / "kd_0.8",
    training=with_objective(PLAIN["kd"].training, replace(KD, distillation=0.8)),
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
    claims=(
        Claim(says="multitask learning helps", variant="multitask", over="mma", published=1.67),
        Claim(says="online distillation helps", variant="kd", over="multitask", published=0.95),
        Claim(says="more distillation helps", variant="kd_0.8", over="kd"),
    ),
    evaluations=(Evaluation(run=ANY, mode="offline"), Evaluation(run=ANY, predecision_ms=280)),
)
