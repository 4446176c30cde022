"""Zaidi et al. 2022, table 3, on Mboshi-French: does DAR help on 4 hours of human speech?

    mkdir data/mboshi && ln -s ORIGINAL/mboshi_fr.opus.zip data/mboshi      with an absolute path
    awk -F'\\t' -v OFS='\\t' '$2 == "dev" { $2 = "test" }
        NR > 1 && $2 == "train" { if (!($5 in held)) held[$5] = ++n % 15 == 0
                                  if (held[$5]) $2 = "dev" } 1' \\
        ORIGINAL/manifest.tsv > data/mboshi/manifest.tsv
    simuljax prepare mboshi --from data/mboshi --to data/mboshi-fr
    simuljax prepare mboshi --from data/mboshi --to data/mboshi-fr-speed --augment speed
    simuljax speak TEXT --to data/multi30k-speech               for `helped`, as in multi30k.py
    simuljax ablate experiments/zaidi2022/mboshi.py --grid alone --workers 6 --together 6
    simuljax ablate experiments/zaidi2022/mboshi.py --grid helped --workers 6 --together 6
    simuljax train experiments/zaidi2022/mboshi.py asr          a single variant; then mt, then dar

Hardware: one H200. Expected BLEU: `alone` (32 runs) 3.3 to 3.8 from speech and 7.4 to 8.2 from
text; `helped` (33 runs) 3.7 to 4.4 and 9.7 to 10.0. Results: ablation-mboshi. Bansal et al. 2019
have 3.5 without Mboshi transcripts, and 7.1 after pretraining on English and French.

The corpus has training and development sets. The latter (514 utterances, 0.44 h) is the test set
here; every 15th training sentence, with all its recordings, selects checkpoints: 307 are held out
and 4,309 (3.78 h) are trained on. No Mboshi sentence is in two sets; 65 of the 514 French test
sentences occur in training. An utterance lasts 3.1 s (9.8 at most), with 6.0 words of Mboshi and
7.7 of French. Of 6,709 Mboshi words 4,254 occur once: hence small vocabularies, much dropout, many
epochs.

`helped` uses three speeds, starts its recogniser from that of Multi30k-speech (synthetic English)
with less dropout, and selects checkpoints by token accuracy. The text branch is evaluated too: the
report draws no conclusion where the baseline reaches less than 60 % of its BLEU from speech; here
it reaches 40 and 44 %.
"""

from collections.abc import Mapping
from dataclasses import replace

from experiments.shared import ANY, OFFLINE, STEPS, STREAMED, adam
from experiments.zaidi2022 import multi30k
from experiments.zaidi2022.multi30k import MASKED
from experiments.zaidi2022.recipe import Recipe, variants
from experiments.zaidi2022.table_3 import CLAIMS
from simuljax.ablate.grid import Grid
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import DATA, RUNS, Budget, DataConfig, Experiment, InitFrom
from simuljax.config.training import Training
from simuljax.models import presets
from simuljax.text import VocabularyConfig

SMALL = presets.small()

RECIPE = Recipe(
    runs=RUNS / "zaidi-mboshi",
    data=DataConfig(
        directory=DATA / "mboshi-fr",
        source=VocabularyConfig(kind="unigram", size=500, lowercase=True),
        target=VocabularyConfig(kind="unigram", size=1_000),
        budget=Budget(frames=24_000, tokens=6_000, shapes=3),
        held="device",
    ),
    augmented=DATA / "mboshi-fr-augmented",
    model=replace(SMALL, width=replace(SMALL.width, dtype="bfloat16", dropout=0.3)),
    asr=Training(optimiser=adam(1e-3, 1_000), objective=MASKED, epochs=80, validate_every=500),
    mt=Training(optimiser=adam(1e-3, 500), epochs=100, validate_every=250),
    first=Training(optimiser=adam(1e-3, 500), objective=MASKED, epochs=40, validate_every=250),
    second=Training(optimiser=adam(5e-4, 200), objective=MASKED, epochs=15, validate_every=200),
)


# Three times the batches. Losses overfit long before token accuracy.
AT_THREE_SPEEDS = replace(
    RECIPE,
    runs=RUNS / "zaidi-mboshi-helped",
    data=replace(RECIPE.data, directory=DATA / "mboshi-fr-speed"),
    asr=replace(RECIPE.asr, epochs=40, best_by="accuracy"),
    mt=replace(RECIPE.mt, epochs=33, best_by="accuracy"),
    first=replace(RECIPE.first, epochs=14, best_by="accuracy"),
    second=replace(RECIPE.second, epochs=5, best_by="accuracy"),
)
ENGLISH = multi30k.EXPERIMENTS["asr"]
# All parameters of a recogniser but its characters, which belong to another language.
WITHOUT_CHARACTERS = (
    "speech/subsampling",
    "speech/below",
    "speech/norm",
    "shared",
    "decoder/layer",
    "decoder/norm",
)
EXPERIMENTS = variants(RECIPE)
SPED = variants(AT_THREE_SPEEDS)
ASR = SPED["asr"]
AFTER_ENGLISH = replace(
    ASR,
    model=replace(ASR.model, width=replace(ASR.model.width, dropout=0.15)),
    init_from=(InitFrom(run=ENGLISH.run, rules=WITHOUT_CHARACTERS),),
)
TABLE = ("mma", "multitask", "kd", "mma_mt", "dar")
LATER = {variant: f"{variant}_lambda_0.1" for variant in TABLE}
SPEECH = (OFFLINE, STREAMED)
TEXT = Evaluation(run=ANY, branch="text", mode="offline")


def grid(name: str, title: str, variants: Mapping[str, Experiment]) -> Grid:
    """Compare the same variants of either recipe."""
    return Grid(
        title=f"Zaidi et al. 2022 on Mboshi-French, {title}",
        runs=RUNS / "ablation-mboshi",
        name=name,
        variants=variants,
        table=TABLE,
        baseline="mma",
        seeds=(0, 1, 2),
        claims=CLAIMS,
        curves={variant: (later,) for variant, later in LATER.items()},
        evaluations=(*SPEECH, TEXT),
        own={"mma": SPEECH, **dict.fromkeys(LATER.values(), STEPS)},  # mma has no text branch
    )


GRIDS = {
    "alone": grid("alone", "and nothing else", EXPERIMENTS),
    "helped": grid(
        *("helped", "after English and at three speeds"),
        {**SPED, "english": ENGLISH, "asr": AFTER_ENGLISH},
    ),
}
