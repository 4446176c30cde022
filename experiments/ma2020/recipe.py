"""Ma et al. 2020, figures 2 to 4: decide at steps, words or phonemes, by wait-k or MMA.

`variants` makes the paper's experiments from a recipe:

    asr                         the character recogniser that initialises every encoder
    fixed_120 ... fixed_520     MMA at steps of that many milliseconds, lambda = 0
    words, phonemes             MMA at oracle boundaries
    *_wait_k                    the same with wait-k, one multi-path model for every k
    *_lambda_*                  MMA trained further with the latency loss
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.zaidi2022.recipe import ALONE, recogniser, with_objective
from simuljax.config.experiment import DataConfig, Experiment, InitFrom
from simuljax.config.model import ModelConfig, Monotonic, PreDecision
from simuljax.config.training import Training

STEPS_MS = (120, 200, 280, 360, 440, 520)
LAMBDAS = (0.001, 0.004, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1)
# Equation 4: AL, clipped at 0.
LATENCY = replace(ALONE, latency_metric="AL", latency_clip=True)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hold what all variants have in common."""

    runs: Path
    data: DataConfig
    model: ModelConfig  # speech only
    asr: Training  # schedules; the variants set the objective
    first: Training  # lambda = 0, and wait-k
    second: Training  # lambda > 0
    wait_k: tuple[int, int] = (1, 10)


def variants(recipe: Recipe) -> Mapping[str, Experiment]:
    """Return the experiments of the paper by name."""
    points = {f"fixed_{step}": PreDecision(kind="fixed", step_ms=step) for step in STEPS_MS}
    points |= {"words": PreDecision(kind="words"), "phonemes": PreDecision(kind="phonemes")}
    mma = {name: _first(recipe, name, point, Monotonic()) for name, point in points.items()}
    waiting = Monotonic(policy="wait_k", wait_k=recipe.wait_k)
    fixed = {
        f"{name}_wait_k": _first(recipe, f"{name}_wait_k", point, waiting)
        for name, point in points.items()
    }
    second = {
        f"{name}_lambda_{weight:g}": _second(recipe, f"{name}_lambda_{weight:g}", base, weight)
        for name, base in mma.items()
        for weight in LAMBDAS
    }
    asr = recogniser(recipe.runs / "asr", recipe.data, recipe.model, recipe.asr)
    return {"asr": asr, **mma, **fixed, **second}


def _first(recipe: Recipe, name: str, point: PreDecision, how: Monotonic) -> Experiment:
    return Experiment(
        run=recipe.runs / name,
        data=recipe.data,
        model=replace(recipe.model, predecision=point, monotonic=how),
        training=with_objective(recipe.first, LATENCY),
        init_from=(InitFrom(run=recipe.runs / "asr", rules=("speech",)),),
    )


def _second(recipe: Recipe, name: str, base: Experiment, weight: float) -> Experiment:
    return replace(
        base,
        run=recipe.runs / name,
        data=replace(base.data, vocabularies_of=base.run),
        training=with_objective(recipe.second, replace(LATENCY, latency=weight)),
        init_from=(InitFrom(run=base.run),),
    )
