"""Zaidi et al. 2022 on Mboshi-French: 4 hours of human speech, three speakers, one H200.

    mkdir data/mboshi && ln -s ORIGINAL/mboshi_fr.opus.zip data/mboshi      with an absolute path
    awk -F'\\t' -v OFS='\\t' '$2 == "dev" { $2 = "test" }
        NR > 1 && $2 == "train" { if (!($5 in held)) held[$5] = ++n % 15 == 0
                                  if (held[$5]) $2 = "dev" } 1' \\
        ORIGINAL/manifest.tsv > data/mboshi/manifest.tsv
    simuljax prepare mboshi --from data/mboshi --to data/mboshi-fr
    simuljax prepare mboshi --from data/mboshi --to data/mboshi-fr-speed --augment speed
    simuljax speak TEXT --to data/multi30k-speech               for HELPED, as in zaidi_multi30k.py
    simuljax train experiments/zaidi2022/mboshi.py asr
    simuljax train experiments/zaidi2022/mboshi.py mt
    simuljax train experiments/zaidi2022/mboshi.py dar

The corpus has a training set and a development set. The latter (514 utterances, 0.44 h) is the
test here, and every 15th sentence of the former, with all its recordings, says which checkpoint is
best: 307 are left out and 4,309 (3.78 h) are trained on. No Mboshi sentence is in two of them; a
French one of the test may be in training (65 are, of 514).

An utterance lasts 3.1 s (9.8 at most), with 6.0 words of Mboshi and 7.7 of French. Of 6,709 Mboshi
words 4,254 occur once: hence small vocabularies, much dropout, and many epochs.

EXPERIMENTS has nothing but these hours: 3.3 to 3.8 BLEU from speech, 7.4 to 8.2 from text
(results/ablation-mboshi/alone). Bansal et al. 2019 have 3.5 without transcripts of Mboshi, and 7.1
once the model has learnt to recognise English and French. HELPED hears each utterance at three
speeds, its recogniser begins with that of Multi30k-speech, synthetic English, and its checkpoints
are chosen by tokens: 3.7 to 4.4 and 9.7 to 10.0 (results/ablation-mboshi/helped).
"""

from dataclasses import replace

from data_pipelines.feeding import Corpus
from data_pipelines.shapes import Budget
from experiments.zaidi2022 import multi30k as zaidi_multi30k
from experiments.zaidi2022.multi30k import HEARD
from experiments.zaidi2022.recipe import Recipe, adam, rows
from simuljax.config.experiment import DATA, RUNS, Begin, Experiment
from simuljax.models import presets
from simuljax.text import VocabularyConfig
from simuljax.train.training import Training

SMALL = presets.small()

RECIPE = Recipe(
    runs=RUNS / "zaidi-mboshi",
    corpus=Corpus(
        directory=DATA / "mboshi-fr",
        source=VocabularyConfig(kind="unigram", size=500, lowercase=True),
        target=VocabularyConfig(kind="unigram", size=1_000),
        budget=Budget(frames=24_000, tokens=6_000, shapes=3),
        held="device",
    ),
    augmented=DATA / "mboshi-fr-augmented",
    model=replace(SMALL, width=replace(SMALL.width, dtype="bfloat16", dropout=0.3)),
    asr=Training(optimiser=adam(1e-3, 1_000), objective=HEARD, epochs=80, validate_every=500),
    mt=Training(optimiser=adam(1e-3, 500), epochs=100, validate_every=250),
    first=Training(optimiser=adam(1e-3, 500), objective=HEARD, epochs=40, validate_every=250),
    second=Training(optimiser=adam(5e-4, 200), objective=HEARD, epochs=15, validate_every=200),
)


def at_three_speeds(training: Training, epochs: int) -> Training:
    """Three times the batches, so fewer epochs. Losses are overfitted long before tokens."""
    return replace(training, epochs=epochs, best_by="accuracy")


AT_THREE_SPEEDS = replace(
    RECIPE,
    runs=RUNS / "zaidi-mboshi-helped",
    corpus=replace(RECIPE.corpus, directory=DATA / "mboshi-fr-speed"),
    asr=at_three_speeds(RECIPE.asr, 40),
    mt=at_three_speeds(RECIPE.mt, 33),
    first=at_three_speeds(RECIPE.first, 14),
    second=at_three_speeds(RECIPE.second, 5),
)
ENGLISH = zaidi_multi30k.EXPERIMENTS["asr"]
# All of a recogniser but its characters, which are another language's.
WITHOUT_CHARACTERS = (
    "speech/subsampling",
    "speech/below",
    "speech/norm",
    "shared",
    "decoder/layer",
    "decoder/norm",
)


def after_english(asr: Experiment) -> Experiment:
    """A recogniser that begins with that of another language, and is held back less."""
    width = replace(asr.model.width, dropout=0.15)
    begin = Begin(run=ENGLISH.run, rules=WITHOUT_CHARACTERS)
    return replace(asr, model=replace(asr.model, width=width), begin=(begin,))


EXPERIMENTS = rows(RECIPE)
SPED = rows(AT_THREE_SPEEDS)
HELPED = {**SPED, "english": ENGLISH, "asr": after_english(SPED["asr"])}
