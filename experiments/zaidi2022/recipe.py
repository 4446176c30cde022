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

from experiments import shared
from experiments.shared import ALONE, OFFLINE, STEPS, STREAMED, TRANSLATION, with_objective
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import ENCODER, OFFLINE_TEXT, Experiment, InitFrom
from simuljax.config.training import Training
from simuljax.models import presets

MULTITASK = replace(ALONE, translation=0.5)
KD = replace(MULTITASK, distillation=0.2)
CAR = replace(KD, cross_attentive=0.02)
DAR = replace(CAR, decision_attentive=0.01)
OBJECTIVES = {
    "mma": ALONE,
    "mma_aug": ALONE,
    "multitask": MULTITASK,
    "kd": KD,
    "mma_mt": CAR,
    "mma_aug_mt": CAR,
    "dar": DAR,
    "mma_dar": DAR,
}
AUGMENTED = ("mma_aug", "mma_aug_mt", "mma_dar")
COPIES = 3  # of an utterance: original, augmented, with the teacher's translation
LAMBDAS = (0.01, 0.05, 0.1)


@dataclass(frozen=True, kw_only=True)
class Recipe(shared.Recipe):
    """Hold what all variants have in common; the model is joint."""

    augmented: Path  # the corpus with augmented speech and translations beside the originals
    mt: Training
    distil_after: int = 0  # updates of `first`
    # Augmented variants have the same number of these; their epochs are 3 times as long.
    equal: Literal["epochs", "updates"] = "updates"


def variants(recipe: Recipe) -> Mapping[str, Experiment]:
    """Return the experiments of the paper by name."""
    asr = shared.recogniser(recipe)
    mt = Experiment(
        run=recipe.runs / "mt",
        data=recipe.data,
        model=presets.offline(presets.text_only(recipe.model)),
        training=with_objective(recipe.mt, TRANSLATION),
    )
    begin = (InitFrom(run=asr.run, rules=ENCODER), InitFrom(run=mt.run, rules=OFFLINE_TEXT))
    first, later = {}, {}
    for name, joint in OBJECTIVES.items():
        corpus = replace(recipe.data, vocabularies_of=mt.run)
        schedules = [recipe.first, recipe.second]
        if name in AUGMENTED:
            corpus = replace(corpus, directory=recipe.augmented)
        if name in AUGMENTED and recipe.equal == "updates":
            schedules = [replace(each, epochs=(each.epochs or 0) / COPIES) for each in schedules]
        first[name] = Experiment(
            run=recipe.runs / name,
            data=corpus,
            model=recipe.model,
            training=with_objective(schedules[0], joint, distil_after=recipe.distil_after),
            init_from=begin,
        )
        for weight in LAMBDAS:
            continued = at_lambda(first[name], schedules[1], weight)
            later[continued.run.name] = continued
    return {"asr": asr, "mt": mt, **first, **later}


def at_lambda(base: Experiment, second: Training, weight: float) -> Experiment:
    """Train an experiment further with a latency weight, by the schedule of the second phase."""
    objective = base.training.objective
    on_text = weight if objective.needs("text") else 0.0
    weighted = objective.with_weights(st_latency=weight, mt_latency=on_text)
    terms = tuple(replace(term, start=0) for term in weighted.terms)
    return replace(
        base,
        run=base.run.with_name(f"{base.run.name}_lambda_{weight:g}"),
        training=replace(second, objective=replace(second.objective, terms=terms)),
        init_from=(InitFrom(run=base.run), *(i for i in base.init_from if i.fills == "teacher")),
    )


def phases(
    first: Mapping[str, Experiment],
    second: Training,
    lambdas: Mapping[str, tuple[float, ...]],
    donors: Mapping[str, Experiment],
    *,
    at_zero: tuple[Evaluation, ...] = (OFFLINE, STREAMED),
    later: tuple[Evaluation, ...] = STEPS,
) -> dict[str, Any]:
    """Return the part of a grid that trains each variant further with its latency weights.

    All start from `asr` and `mt` of the donors.
    """
    continued = {
        name: [at_lambda(experiment, second, weight) for weight in lambdas[name]]
        for name, experiment in first.items()
    }
    curves = {name: tuple(each.run.name for each in some) for name, some in continued.items()}
    by_name = {each.run.name: each for some in continued.values() for each in some}
    return {
        "variants": {"asr": donors["asr"], "mt": donors["mt"], **first, **by_name},
        "table": tuple(first),
        "curves": curves,
        "evaluations": at_zero,
        "own": dict.fromkeys(by_name, later),
    }
