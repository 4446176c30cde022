"""Declare the run that `simuljax demo` trains.

    simuljax demo                 builds its corpus, trains this run, tests it

Hardware: 2 CPU cores. Expected: 85 BLEU offline and 77 streamed on the little phrasebook
(`simuljax.demo.corpus`); the most similar training sentence gives 43.

A joint model of under a million parameters: every loss of Zaidi et al. 2022 from the first update,
CTC on the transcript, and the latency loss in the last 15 % of the updates.
"""

from pathlib import Path

from simuljax.config.experiment import DATA, RUNS, Budget, DataConfig, Experiment
from simuljax.config.model import ModelConfig, PreDecision, SpeechConfig, TextConfig, Width
from simuljax.config.training import Objective, Optimiser, Training
from simuljax.losses import JointObjective
from simuljax.text import VocabularyConfig

LATENCY_SHARE = 0.15  # of the updates, at the end


def demo_experiment(run: Path, corpus: Path, *, updates: int = 800, rows: int = 24) -> Experiment:
    """Return the experiment. Batches have one shape, because every shape is compiled."""
    joint = JointObjective(ctc=0.5, latency=0.05)
    terms = joint.terms(latency_after=round(updates * (1 - LATENCY_SHARE)))
    return Experiment(
        run=run,
        data=DataConfig(
            directory=corpus,
            source=VocabularyConfig(kind="unigram", size=600, lowercase=True),
            target=VocabularyConfig(kind="unigram", size=1_300),
            budget=Budget(frames=rows * 260, shapes=1),
        ),
        model=ModelConfig(
            width=Width(model=128, hidden=256, heads=4, dropout=0.1),
            speech=SpeechConfig(layers=3, shared=1, channels=128, ctc_after=2),
            text=TextConfig(layers=1),
            decoder_layers=1,
            predecision=PreDecision(kind="fixed", step_ms=160),
        ),
        training=Training(
            updates=updates,
            objective=Objective(terms=terms),
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


EXPERIMENT = demo_experiment(RUNS / "demo", DATA / "little-phrasebook")
