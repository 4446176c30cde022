"""G3 and G4: Zaidi et al. 2022 with little speech and much text, in many voices.

    experiments/real_speech/corpora.sh TATOEBA.zip MULTI30K KOKORO IWSLT
    simuljax ablate experiments/zaidi2022/text_rich.py --grid table_3 --workers 4 --together 4
    simuljax ablate experiments/zaidi2022/text_rich.py --grid curves --workers 4 --together 4

Hypotheses and verdict rules: PROGRAMME.md beside this file. `--seeds 0 1` runs a part: two seeds
of `table_3` took 17 minutes of one H200.

Speech: 40,000 sentences of Tatoeba in eSpeak's and hibari's voices. Text: all
170,000 pairs and 20,000 of the phrasebook, single and joined. Every second update is of text, for
all variants but `mma`. All start from the same recogniser and the same text translator.
"""

from dataclasses import replace

from experiments.real_speech.en_de import HOME, MT, PAIRS, TESTS, schedule
from experiments.shared import ANY, claims, with_objective
from experiments.zaidi2022.multi30k import RECIPE
from experiments.zaidi2022.recipe import CAR, DAR, KD, phases, variants
from simuljax.ablate.grid import Grid
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import RUNS

RECIPE = replace(
    RECIPE,
    runs=RUNS / "zaidi2022-text-rich",
    data=replace(PAIRS, directory=HOME / "voices", budget=RECIPE.data.budget),
    asr=replace(RECIPE.asr, epochs=None, updates=4_000, optimiser=schedule(2e-3, 4_000)),
    mt=replace(MT.training, objective=RECIPE.mt.objective),
    first=replace(RECIPE.first, epochs=6, random="threefry"),
    second=replace(RECIPE.second, epochs=3, best_by="loss_and_latency", random="threefry"),
)
PLAIN = variants(RECIPE)
# Batches of text beside those of speech, and DAR's gradient on both sides.
MULTITASK = replace(
    PLAIN["dar"],
    run=RECIPE.runs / "multitask",
    data=replace(PLAIN["dar"].data, text=HOME / "pairs"),
    training=PLAIN["multitask"].training,
)
JOINT = {
    name: replace(
        MULTITASK,
        run=RECIPE.runs / name,
        training=with_objective(MULTITASK.training, replace(joint, decision_teacher="flow")),
    )
    for name, joint in {"kd": KD, "car": CAR, "dar": DAR}.items()
}
FIRST = {"mma": PLAIN["mma"], "multitask": MULTITASK, **JOINT}
DONORS = {
    "asr": PLAIN["asr"],
    "mt": replace(PLAIN["mt"], data=replace(PLAIN["mt"].data, directory=HOME / "pairs")),
}
STREAMED = Evaluation(run=ANY, corpus=TESTS["tatoeba"], name="tatoeba")
OFFLINE = replace(STREAMED, name="tatoeba-offline", mode="offline")

TABLE_3 = Grid(
    title="Zaidi et al. 2022, table 3, with much text and many voices",
    runs=RECIPE.runs,
    name="table_3",
    variants=DONORS | FIRST,
    table=tuple(FIRST),
    baseline="mma",
    seeds=(0, 1, 2, 3, 4),
    order=None,
    claims=claims(
        ("multitask learning helps", "multitask", "mma", 1.67),
        ("online distillation helps", "kd", "multitask", 0.95),
        ("CAR helps", "car", "kd", 0.25),
        ("DAR helps", "dar", "car", 0.57),
        ("all four help together", "dar", "mma", 3.44),
        evaluation="tatoeba-offline",
    ),
    evaluations=(OFFLINE, STREAMED),
)
CURVES = replace(
    TABLE_3,
    title="Zaidi et al. 2022, figure 4, with much text and many voices",
    name="curves",
    baseline="kd",
    claims=(),
    **phases(
        *(JOINT, RECIPE.second, dict.fromkeys(JOINT, (0.01, 0.03, 0.1)), DONORS),
        at_zero=(STREAMED,),
        later=(STREAMED,),
    ),
)
GRIDS = {"table_3": TABLE_3, "curves": CURVES}
