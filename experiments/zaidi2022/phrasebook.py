"""Zaidi et al. 2022 on the phrasebook, and the one run that `simuljax demo` trains.

    simuljax prepare phrasebook --to data/phrasebook    10,000 sentences, 8 hours, 71 voices
    simuljax train experiments/zaidi2022/phrasebook.py asr
    simuljax train experiments/zaidi2022/phrasebook.py mt
    simuljax train experiments/zaidi2022/phrasebook.py dar
    simuljax train experiments/zaidi2022/phrasebook.py dar_lambda_0.05

The rows are for one GPU; none has been trained yet, so there is no score to expect. A memoriser,
which answers with the translation of the most similar training sentence, gets 8.5 BLEU on the test
split.

    simuljax demo                                       builds its corpus, trains `demo`, tests it

`demo` is a joint model of under a million parameters for the little phrasebook
(`simuljax.cli.demo_corpus`): every loss of the paper from the first update, CTC on the
transcript so that the encoder finds its words, and latency in the last 120 of 800 updates. 2 CPU
cores; 82 BLEU offline and 73 streamed. Its language is small, so that the memoriser gets 43.
"""

from dataclasses import replace
from pathlib import Path

from data_pipelines.feeding import Corpus
from data_pipelines.shapes import Budget
from experiments.zaidi2022.recipe import Recipe, adam, rows
from simuljax.audio import SpecAugment
from simuljax.config.experiment import DATA, RUNS, Experiment
from simuljax.losses import JointObjective
from simuljax.models import config, presets
from simuljax.nn.layers import Width
from simuljax.text import VocabularyConfig
from simuljax.train.objective import Objective
from simuljax.train.optimiser import Optimiser
from simuljax.train.training import Training

HEARD = Objective(
    augment=SpecAugment(time_masks=2, time_width=30, time_fraction=0.2, frequency_width=20)
)
SMALL = presets.small()
LATENCY_SHARE = 0.15  # of the demo's updates, at the end


RECIPE = Recipe(
    runs=RUNS / "zaidi-phrasebook",
    corpus=Corpus(
        directory=DATA / "phrasebook",
        source=VocabularyConfig(kind="unigram", size=2_000, lowercase=True),
        target=VocabularyConfig(kind="unigram", size=2_000),
        budget=Budget(frames=24_000, tokens=6_000, shapes=2),
        held="device",
    ),
    augmented=DATA / "phrasebook-augmented",
    model=replace(SMALL, width=replace(SMALL.width, dtype="bfloat16", dropout=0.2)),
    asr=Training(optimiser=adam(2e-3, 1_000), objective=HEARD, epochs=60, validate_every=500),
    mt=Training(optimiser=adam(2e-3, 500), epochs=60, validate_every=250),
    first=Training(optimiser=adam(1e-3, 500), objective=HEARD, epochs=60, validate_every=500),
    second=Training(optimiser=adam(5e-4, 250), objective=HEARD, epochs=10, validate_every=250),
)


def demo(run: Path, corpus: Path, *, updates: int = 800, rows: int = 24) -> Experiment:
    """The run of `simuljax demo`: batches of one shape, since every shape is compiled."""
    joint = JointObjective(ctc=0.5, latency=0.05)
    return Experiment(
        run=run,
        corpus=Corpus(
            directory=corpus,
            source=VocabularyConfig(kind="unigram", size=600, lowercase=True),
            target=VocabularyConfig(kind="unigram", size=1_300),
            budget=Budget(frames=rows * 260, shapes=1),
        ),
        model=config.Translator(
            width=Width(model=128, hidden=256, heads=4, dropout=0.1),
            speech=config.SpeechEncoder(layers=3, shared=1, channels=128, ctc_after=2),
            text=config.TextEncoder(layers=1),
            decoder_layers=1,
            predecision=config.PreDecision(kind="fixed", step_ms=160),
        ),
        training=Training(
            updates=updates,
            latency_after=round(updates * (1 - LATENCY_SHARE)),
            objective=Objective(joint=joint),
            optimiser=Optimiser(
                learning_rate=2e-3,
                schedule="cosine",
                warmup=min(150, updates // 5),
                decay_updates=updates,
                final=1e-4,
                betas=(0.9, 0.98),
                clip=5.0,
            ),
            log_every=min(25, updates),
            validate_every=max(1, updates // 5),
            keep_last=1,
            keep_best=1,
        ),
    )


DEMO = demo(RUNS / "demo", DATA / "little-phrasebook")
EXPERIMENTS = {**rows(RECIPE), "demo": DEMO}
