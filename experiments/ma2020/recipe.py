"""Ma et al. 2020, figures 2 to 4: decide at steps, words or phonemes, by wait-k or MMA.

`variants` makes the paper's experiments from a recipe, whose model has speech only:

    asr                         the character recogniser that initialises every encoder
    fixed_120 ... fixed_520     MMA at steps of that many milliseconds, lambda = 0
    words, phonemes             MMA at oracle boundaries
    *_wait_k                    the same with wait-k, one multi-path model for every k
    *_lambda_*                  MMA trained further with the latency loss
"""

from collections.abc import Mapping
from dataclasses import replace

from experiments.shared import ALONE, Recipe, recogniser, with_objective
from simuljax.config.experiment import Experiment, InitFrom
from simuljax.config.model import Monotonic, PreDecision

POINTS = {
    **{f"fixed_{ms}": PreDecision(kind="fixed", step_ms=ms) for ms in range(120, 521, 80)},
    "words": PreDecision(kind="words"),
    "phonemes": PreDecision(kind="phonemes"),
}
LAMBDAS = (0.001, 0.004, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1)
WAIT_K = Monotonic(policy="wait_k", wait_k=(1, 10))
# Equation 4: AL, clipped at 0.
LATENCY = replace(ALONE, latency_metric="AL", latency_clip=True)


def variants(recipe: Recipe) -> Mapping[str, Experiment]:
    """Return the experiments of the paper by name."""
    asr = recogniser(recipe)
    mma, wait_k, later = {}, {}, {}
    for name, point in POINTS.items():
        base = Experiment(
            run=recipe.runs / name,
            data=recipe.data,
            model=replace(recipe.model, predecision=point, monotonic=Monotonic()),
            training=with_objective(recipe.first, LATENCY),
            init_from=(InitFrom(run=asr.run, rules=("speech",)),),
        )
        mma[name] = base
        waiting = replace(base.model, monotonic=WAIT_K)
        wait_k[f"{name}_wait_k"] = replace(base, run=recipe.runs / f"{name}_wait_k", model=waiting)
        for weight in LAMBDAS:
            continued = f"{name}_lambda_{weight:g}"
            later[continued] = replace(
                base,
                run=recipe.runs / continued,
                data=replace(base.data, vocabularies_of=base.run),
                training=with_objective(recipe.second, replace(LATENCY, latency=weight)),
                init_from=(InitFrom(run=base.run),),
            )
    return {"asr": asr, **mma, **wait_k, **later}
