"""Objectives, schedules and evaluations that the experiments of several papers share."""

from dataclasses import dataclass, replace
from pathlib import Path

from simuljax.audio import SpecAugment
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import Budget, DataConfig, Experiment
from simuljax.config.model import ModelConfig
from simuljax.config.training import Objective, Optimiser, Training
from simuljax.losses import JointObjective
from simuljax.models import presets
from simuljax.report.results import Claim
from simuljax.text import VocabularyConfig

# The published runs were trained with the paper's stop-gradient, which is no longer the default.
# Forms of DAR that descend are compared in experiments/zaidi2022/dar_forms.py.
ALONE = JointObjective(
    distillation=0.0,
    cross_attentive=0.0,
    translation=0.0,
    decision_attentive=0.0,
    decision_teacher="stop",
)
TRANSLATION = replace(ALONE, translation=1.0)  # of text alone

MASKED = Objective(augment=SpecAugment())  # LibriSpeech double, for corpora of MuST-C's size
LARGE = Budget(frames=40_000, tokens=40_000, row_multiple=8)  # 5000 on each of 8 devices

ANY = Path()  # an evaluation's run, which the grid fills in
STREAMED = Evaluation(run=ANY)
OFFLINE = Evaluation(run=ANY, mode="offline")
# Steps between decisions, for a curve. The models are trained with 280 ms.
STEPS = tuple(Evaluation(run=ANY, predecision_ms=step) for step in (120, 280, 520))


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hold what all variants of a paper have in common on a corpus."""

    runs: Path
    data: DataConfig
    model: ModelConfig
    asr: Training  # schedules; the variants set the objective
    first: Training  # lambda = 0
    second: Training  # lambda > 0


def adam(peak: float, warmup: int) -> Optimiser:
    """Return Adam with inverse square root decay."""
    return Optimiser(learning_rate=peak, warmup=warmup, betas=(0.9, 0.98), clip=10.0)


def with_objective(training: Training, joint: JointObjective, *, distil_after: int = 0) -> Training:
    """Replace the objective of a schedule."""
    terms = joint.terms(distil_after=distil_after)
    return replace(training, objective=replace(training.objective, terms=terms))


def recogniser(recipe: Recipe) -> Experiment:
    """Return a character recogniser. Its encoder initialises the speech branch."""
    characters = VocabularyConfig(kind="characters", size=200, lowercase=True)
    return Experiment(
        run=recipe.runs / "asr",
        data=replace(recipe.data, task="transcription", source=characters, target=characters),
        model=presets.recogniser(recipe.model),
        training=with_objective(recipe.asr, replace(ALONE, ctc=0.3)),
    )


def clock(way: Evaluation, first: int) -> Evaluation:
    """Return the same evaluation in real time, of the first utterances."""
    return replace(way, mode="live", first=first, repeats=1)


def claims(
    *declared: tuple[str, str, str, float | None], evaluation: str = "test-speech-offline"
) -> tuple[Claim, ...]:
    """Return the claims that a variant is better than another by so much, as published."""
    return tuple(
        Claim(says=says, variant=variant, over=other, published=published, evaluation=evaluation)
        for says, variant, other, published in declared
    )
