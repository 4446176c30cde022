"""MMA, the row with DAR and MMA with augmented speech, for three times as many updates.

    simuljax speak TEXT --to data/multi30k-speech       TEXT holds train.en, train.de, val.en ...
    simuljax speak TEXT --to data/multi30k-speech-augmented --augment effects \\
        --distil runs/ablation-multi30k/mt-ADDRESS --distil-mode join
    simuljax ablate experiments/ablation_longer.py --workers 4 --together 3

One H200, in part: results/ablation-multi30k/longer. Rows of `experiments/ablation_zaidi.py` still
gain when their 8 epochs are over, and those with augmented speech hear a third as many epochs of
it; the paper names one number of epochs, which would be three times the updates. Here all rows have
that: 24 epochs of speech, 8 of augmented speech (once data/multi30k-speech-augmented is there).
"""

from dataclasses import replace
from pathlib import Path

from experiments.ablation import Ablation, Claim
from experiments.ablation_zaidi import IS_AUGMENTED, STEPS
from experiments.evaluation import Evaluation
from experiments.experiment import RUNS
from experiments.zaidi import COPIES, as_long, at_lambda, rows
from experiments.zaidi_multi30k import RECIPE

ANY = Path()
LONG = replace(RECIPE, first=replace(RECIPE.first, epochs=8 * COPIES))
OF = rows(LONG)
LONGER = ("mma", "dar") + (("mma_aug",) if IS_AUGMENTED else ())
FIRST = {
    f"{name}_long": replace(OF[name], run=OF[name].run.with_name(f"{name}_long")) for name in LONGER
}
LATER = {
    name: at_lambda(first, as_long(LONG, LONG.second, name.removesuffix("_long")), 0.1)
    for name, first in FIRST.items()
}
HELP = Claim(
    says="text, distillation, CAR and DAR help together",
    row="dar_long",
    over="mma_long",
    published=3.44,
)
AUGMENTED = Claim(
    says="augmented speech helps", row="mma_aug_long", over="mma_long", published=2.58
)

ABLATION = Ablation(
    title="Three times as many updates, on Multi30k-speech",
    runs=RUNS / "ablation-multi30k",
    answer="longer",
    rows={
        "asr": OF["asr"],
        "mt": OF["mt"],
        **FIRST,
        **{later.run.name: later for later in LATER.values()},
    },
    table=tuple(FIRST),
    baseline="mma_long",
    seeds=(0, 1, 2),
    claims=(HELP, AUGMENTED) if IS_AUGMENTED else (HELP,),
    curves={name: (later.run.name,) for name, later in LATER.items()},
    evaluations=(Evaluation(run=ANY, mode="offline"), Evaluation(run=ANY)),
    own={later.run.name: STEPS for later in LATER.values()},
)
