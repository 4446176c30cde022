"""Zaidi et al. 2022, tables 3 and 4: measure what each part of the joint objective adds to MMA.

A recipe holds corpus, model size and schedules. `variants` makes the experiments from it, all
with the same schedule:

    asr, mt          the recogniser and the offline text translator that every variant starts from
    mma ... mma_dar  table 3, at lambda = 0
    *_lambda_*       each of them trained further with the latency loss, for the curves
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import ENCODER, OFFLINE_TEXT, DataConfig, Experiment, InitFrom
from simuljax.config.model import ModelConfig
from simuljax.config.training import Optimiser, Training
from simuljax.losses import JointObjective
from simuljax.models import presets
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
MULTITASK = replace(ALONE, translation=0.5)
KD = replace(MULTITASK, distillation=0.2)
CAR = replace(KD, cross_attentive=0.02)
DAR = replace(CAR, decision_attentive=0.01)
LAMBDAS = (0.01, 0.05, 0.1)
ANY = Path()  # an evaluation's run, which the grid fills in
# Steps between decisions, for a curve. The model is trained with 280 ms.
STEPS = tuple(Evaluation(run=ANY, predecision_ms=step) for step in (120, 280, 520))
AUGMENTED = ("mma_aug", "mma_aug_mt", "mma_dar")
COPIES = 3  # of an utterance: original, augmented, with the teacher's translation


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hold what all variants have in common."""

    runs: Path
    data: DataConfig
    augmented: Path  # the corpus with augmented speech and translations beside the originals
    model: ModelConfig  # joint
    asr: Training  # schedules; the variants set the objective
    mt: Training
    first: Training  # lambda = 0
    second: Training  # lambda > 0
    distil_after: int = 0  # updates of `first`
    # Augmented variants have the same number of these; their epochs are 3 times as long.
    equal: Literal["epochs", "updates"] = "updates"


def variants(recipe: Recipe) -> Mapping[str, Experiment]:
    """Return the experiments of the paper by name."""
    one = {
        "mma": ALONE,
        "mma_aug": ALONE,
        "multitask": MULTITASK,
        "kd": KD,
        "mma_mt": CAR,
        "mma_aug_mt": CAR,
        "dar": DAR,
        "mma_dar": DAR,
    }
    first = {name: _first(recipe, name, joint) for name, joint in one.items()}
    second = {
        f"{name}_lambda_{weight:g}": at_lambda(base, as_long(recipe, recipe.second, name), weight)
        for name, base in first.items()
        for weight in LAMBDAS
    }
    asr = recogniser(recipe.runs / "asr", recipe.data, recipe.model, recipe.asr)
    return {"asr": asr, "mt": mt(recipe), **first, **second}


def recogniser(run: Path, corpus: DataConfig, model: ModelConfig, training: Training) -> Experiment:
    """Return a character recogniser. Its encoder initialises the speech branch."""
    corpus = replace(
        corpus,
        task="transcription",
        source=VocabularyConfig(kind="characters", size=200, lowercase=True),
        target=VocabularyConfig(kind="characters", size=200, lowercase=True),
    )
    return Experiment(
        run=run,
        data=corpus,
        model=presets.recogniser(model),
        training=with_objective(training, replace(ALONE, ctc=0.3)),
    )


def mt(recipe: Recipe) -> Experiment:
    """Return an offline text translator. All variants use its vocabularies."""
    model = presets.offline(presets.text_only(recipe.model))
    training = with_objective(recipe.mt, replace(ALONE, translation=1.0))
    return Experiment(run=recipe.runs / "mt", data=recipe.data, model=model, training=training)


def as_long(recipe: Recipe, training: Training, name: str) -> Training:
    """Shorten a schedule on the augmented corpus to as many updates as on the plain one."""
    if name not in AUGMENTED or recipe.equal == "epochs" or training.epochs is None:
        return training
    return replace(training, epochs=training.epochs / COPIES)


def _first(recipe: Recipe, name: str, joint: JointObjective) -> Experiment:
    corpus = replace(recipe.data, vocabularies_of=recipe.runs / "mt")
    if name in AUGMENTED:
        corpus = replace(corpus, directory=recipe.augmented)
    return Experiment(
        run=recipe.runs / name,
        data=corpus,
        model=recipe.model,
        training=with_objective(
            as_long(recipe, recipe.first, name), joint, distil_after=recipe.distil_after
        ),
        init_from=(
            InitFrom(run=recipe.runs / "asr", rules=ENCODER),
            InitFrom(run=recipe.runs / "mt", rules=OFFLINE_TEXT),
        ),
    )


def phases(
    first: Mapping[str, Experiment],
    second: Training,
    lambdas: Mapping[str, tuple[float, ...]],
    evaluations: tuple[Evaluation, ...],
    donors: Mapping[str, Experiment],
) -> dict[str, Any]:
    """Return the part of a grid that trains each variant further with its latency weights.

    All start from `asr` and `mt` of the donors.
    """
    later = {
        name: [at_lambda(experiment, second, weight) for weight in lambdas[name]]
        for name, experiment in first.items()
    }
    continued = [experiment for each in later.values() for experiment in each]
    return {
        "variants": {
            **{name: donors[name] for name in ("asr", "mt")},
            **first,
            **{each.run.name: each for each in continued},
        },
        "table": tuple(first),
        "curves": {name: tuple(each.run.name for each in some) for name, some in later.items()},
        "evaluations": (Evaluation(run=ANY, mode="offline"), Evaluation(run=ANY)),
        "own": {each.run.name: evaluations for each in continued},
    }


def at_lambda(base: Experiment, second: Training, weight: float) -> Experiment:
    """Train an experiment further with a latency weight, by the schedule of the second phase."""
    weighted = base.training.objective.with_weights(st_latency=weight, mt_latency=weight)
    terms = tuple(replace(term, start=0) for term in weighted.terms)
    return replace(
        base,
        run=base.run.with_name(f"{base.run.name}_lambda_{weight:g}"),
        training=replace(second, objective=replace(second.objective, terms=terms)),
        init_from=(InitFrom(run=base.run), *(i for i in base.init_from if i.fills == "teacher")),
    )


def adam(peak: float, warmup: int) -> Optimiser:
    """Return Adam with inverse square root decay, as in the paper, for fewer updates."""
    return Optimiser(learning_rate=peak, warmup=warmup, betas=(0.9, 0.98), clip=10.0)


def with_objective(training: Training, joint: JointObjective, *, distil_after: int = 0) -> Training:
    """Replace the objective of a schedule."""
    terms = joint.terms(distil_after=distil_after)
    return replace(training, objective=replace(training.objective, terms=terms))
