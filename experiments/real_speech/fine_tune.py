"""Fine-tune a trained model on an hour of your own speech: a domain, or another target language.

    simuljax prepare manifest --from my-corpus --to data/mine
    export SIMULJAX_BASE=runs/real_speech/whisper
    simuljax train experiments/real_speech/fine_tune.py domain
    simuljax train experiments/real_speech/fine_tune.py language

    domain      the same two languages: all parameters and both vocabularies of the base
    language    another target language: vocabularies of its own; everything else from the base

The base is a run or an export of one. Utterances are joined, and rooms and noise are drawn, so that
an hour is not heard twice alike. Hardware: one GPU, a few minutes; a CPU, an hour.
"""

import os
from dataclasses import replace
from pathlib import Path

from experiments.real_speech.en_de import MASKED, PAUSES, SLOWER, VARIANTS, schedule
from simuljax.audio import WaveAugment
from simuljax.config.experiment import (
    CONFIG_FILE,
    DATA,
    RUNS,
    Budget,
    Experiment,
    InitFrom,
    read_experiment,
)
from simuljax.config.training import Objective, Training
from simuljax.losses import JointObjective
from simuljax.models.parameters import by_path, shapes
from simuljax.text import VocabularyConfig

BASE = Path(os.environ.get("SIMULJAX_BASE", VARIANTS["whisper"].run))
FIRST = read_experiment(BASE) if (BASE / CONFIG_FILE).exists() else VARIANTS["whisper"]
UPDATES = 600
WORDS = ("text/embedding", "decoder/embedding", "speech/ctc")  # parts that belong to vocabularies
SIZED = replace(FIRST.model, source_vocabulary=8, target_vocabulary=8)  # any: names alone count
PARTS = {"/".join(path.split("/")[:2]) for path in by_path(shapes(SIZED)[0])}

SPEECH = FIRST.model.speech
IS_WHISPER = SPEECH is not None and SPEECH.is_whisper
HAS_CTC = SPEECH is not None and SPEECH.ctc_after is not None
JOINT = JointObjective(latency=0.1, ctc=0.3 if HAS_CTC else 0.0)

DOMAIN = Experiment(
    run=RUNS / "mine" / "domain",
    data=replace(
        FIRST.data,
        directory=DATA / "mine",
        train="train",
        valid="valid",
        task="translation",
        text=None,  # of the base's languages
        vocabularies_of=BASE,
        budget=Budget(frames=24_000, tokens=12_000, shapes=2),
        joining=PAUSES,
    ),
    model=FIRST.model,
    training=Training(
        updates=UPDATES,
        optimiser=replace(schedule(3e-4, UPDATES), factors=(SLOWER,) if IS_WHISPER else ()),
        objective=Objective(
            terms=JOINT.terms(), augment=MASKED, wave_augment=WaveAugment.typical()
        ),
        validate_every=100,
        best_by="loss_and_latency",
        keep_best=1,
        keep_last=1,
    ),
    init_from=(InitFrom(run=BASE),),
)
LANGUAGE = replace(
    DOMAIN,
    run=RUNS / "mine" / "language",
    data=replace(
        DOMAIN.data,
        vocabularies_of=None,
        source=VocabularyConfig(kind="unigram", size=1_000, lowercase=True),
        target=VocabularyConfig(kind="unigram", size=1_000),
    ),
    training=replace(
        DOMAIN.training,
        objective=replace(DOMAIN.training.objective, terms=JOINT.terms(latency_after=UPDATES // 2)),
    ),
    init_from=(InitFrom(run=BASE, rules=tuple(sorted(PARTS - {*WORDS}))),),
)
EXPERIMENTS = {"domain": DOMAIN, "language": LANGUAGE}
