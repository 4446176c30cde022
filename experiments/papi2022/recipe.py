"""Papi et al. 2022: does simultaneous speech translation need simultaneous models?

A recipe holds corpora, model sizes and schedules. `variants` makes the paper's systems from it, and
`grids` its tables and figures, which share their runs:

    teacher                         translates the transcripts for distillation
    transformer, conformer          trained offline, with CTC on the transcript
    transformer_fixed_k3 ... k11    trained with wait-k masks; a word is 280 ms
    transformer_adaptive_k3 ...     the same; a word is one that the CTC head detects
    conformer_kd, conformer_*_kd    on references and the teacher's translations
    caat_16_kd, _32_kd, _64_kd      CAAT; groups of so many states of 40 ms

    figure_1, figure_2              k_train against offline training, fixed and adaptive words
    figure_3, figure_3_adaptive     Transformer and Conformer; table 1 is their offline part
    figure_4, figure_4_fixed        the same question for the distilled Conformer
    figure_5                        Conformer and CAAT, with the clock; AL is figure 6, and
                                    word_difference in scores.json table 2
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from experiments.zaidi2022.recipe import ALONE, with_objective
from simuljax.ablate.grid import Grid
from simuljax.config.decoding import Beam
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import DataConfig, Experiment
from simuljax.config.model import ModelConfig, Monotonic, PreDecision, SpeechConfig
from simuljax.config.training import Training
from simuljax.decode.policies import WaitK

Units = Literal["fixed", "adaptive"]

K = (3, 5, 7, 9, 11)  # of training, and of testing
GROUPS = (16, 32, 64)
UNITS: tuple[Units, ...] = ("fixed", "adaptive")
WITH_CTC = replace(ALONE, ctc=0.5)
TRANSDUCER = replace(ALONE, transducer=1.0, transducer_delay=1.0)
TEXT = replace(ALONE, translation=1.0)
ANY = Path()


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hold what all variants have in common."""

    name: str  # of the corpus
    runs: Path
    data: DataConfig
    distilled: Path  # the corpus with the teacher's translations beside the references
    taught: DataConfig  # what the teacher is trained on
    teacher: ModelConfig
    transformer: ModelConfig
    conformer: ModelConfig
    teaching: Training  # schedules; the variants set the objective
    training: Training  # of the Transformer and of CAAT
    conformer_training: Training
    live: int | None = None  # utterances that are played with the clock running; None: all


def variants(recipe: Recipe) -> Mapping[str, Experiment]:
    """Return the systems of the paper by name."""
    large = (recipe.conformer, recipe.conformer_training)
    plain = {"transformer": (recipe.transformer, recipe.training), "conformer": large}
    plain |= {
        f"transformer_{units}_k{k}": (waiting(recipe.transformer, units, k), recipe.training)
        for units in UNITS
        for k in K
    }
    distilled = {"conformer_kd": large} | {
        f"conformer_{units}_k{k}_kd": (waiting(recipe.conformer, units, k), large[1])
        for units in UNITS
        for k in K
    }
    kd = replace(recipe.data, directory=recipe.distilled)
    return {
        "teacher": teacher(recipe),
        **{name: _variant(recipe, name, recipe.data, *variant) for name, variant in plain.items()},
        **{name: _variant(recipe, name, kd, *variant) for name, variant in distilled.items()},
        **{f"caat_{size}_kd": caat(recipe, kd, size) for size in GROUPS},
    }


def teacher(recipe: Recipe) -> Experiment:
    """Return an offline text translator."""
    return Experiment(
        run=recipe.runs / "teacher",
        data=recipe.taught,
        model=recipe.teacher,
        training=with_objective(recipe.teaching, TEXT),
    )


def waiting(model: ModelConfig, units: Units, k: int) -> ModelConfig:
    """Train with a wait-k mask: one more target word for each source word, k words behind."""
    kind = "fixed" if units == "fixed" else "ctc_words"
    return replace(
        model,
        predecision=PreDecision(kind=kind, step_ms=280),
        monotonic=Monotonic(policy="wait_k", wait_k=(k, k), convention="papi", counts="words"),
    )


def caat(recipe: Recipe, corpus: DataConfig, size: int) -> Experiment:
    """Return CAAT in the size of the Transformer: blocks of 8 + 4 states, groups of `size`."""
    of = recipe.transformer.speech
    assert of is not None
    speech = SpeechConfig(
        kind="streaming", layers=of.layers, shared=0, channels=of.channels, chunk=8, right=4
    )
    model = replace(
        recipe.transformer,
        speech=speech,
        decoder="caat",
        joiner_layers=recipe.transformer.decoder_layers,
        predecision=PreDecision(kind="fixed", step_ms=40 * size),
    )
    return Experiment(
        run=recipe.runs / f"caat_{size}_kd",
        data=corpus,
        model=model,
        training=with_objective(recipe.training, TRANSDUCER),
    )


def _variant(
    recipe: Recipe, name: str, corpus: DataConfig, model: ModelConfig, training: Training
) -> Experiment:
    return Experiment(
        run=recipe.runs / name,
        data=corpus,
        model=model,
        training=with_objective(training, WITH_CTC),
    )


def tested(units: Units, architecture: str, **changes: Any) -> tuple[Evaluation, ...]:
    """Evaluate at every k_test, as in appendix A: no `avoid_eos` for the fixed Transformer."""
    spared = units == "fixed" and architecture == "transformer"
    one = Evaluation(
        run=ANY,
        checkpoint="averaged",
        force_finish=True,
        avoid_eos_while_reading=not spared,
        **changes,
    )
    kind = "fixed" if units == "fixed" else "ctc"
    return tuple(replace(one, policy=WaitK(k=k, units=kind)) for k in K)


OFFLINE = (
    Evaluation(run=ANY, checkpoint="averaged", mode="offline"),
    Evaluation(run=ANY, checkpoint="averaged", mode="offline", beam=Beam(size=5)),
)


def grids(recipe: Recipe) -> Mapping[str, Grid]:
    """Return the figures by name. Figures 4 and 5 need the distilled corpus."""
    return {
        "figure_1": _training(recipe, "fixed", "transformer", ""),
        "figure_2": _training(recipe, "adaptive", "transformer", ""),
        "figure_3": _architectures(recipe, "fixed"),
        "figure_3_adaptive": _architectures(recipe, "adaptive"),
        "figure_4": _training(recipe, "adaptive", "conformer", "_kd"),
        "figure_4_fixed": _training(recipe, "fixed", "conformer", "_kd"),
        "figure_5": _rivals(recipe),
    }


def _training(recipe: Recipe, units: Units, architecture: str, kd: str) -> Grid:
    """Compare offline training with every k_train, at every k_test."""
    offline = f"{architecture}{kd}"
    return Grid(
        title=f"Papi et al. 2022 on {recipe.name}: k_train, {architecture}{kd}, {units} words",
        runs=recipe.runs,
        name=f"{architecture}{kd}_{units}",
        variants=variants(recipe),
        table=(offline, *(f"{architecture}_{units}_k{k}{kd}" for k in K)),
        baseline=offline,
        evaluations=tested(units, architecture),
        own={offline: (*OFFLINE, *tested(units, architecture))},
    )


def _architectures(recipe: Recipe, units: Units) -> Grid:
    return Grid(
        title=f"Papi et al. 2022 on {recipe.name}: architectures, {units} words",
        runs=recipe.runs,
        name=f"architectures_{units}",
        variants=variants(recipe),
        table=("transformer", "conformer"),
        baseline="transformer",
        evaluations=OFFLINE,
        own={name: (*OFFLINE, *tested(units, name)) for name in ("transformer", "conformer")},
    )


def _rivals(recipe: Recipe) -> Grid:
    """Compare with CAAT, simulated on the whole test set and in real time."""
    native = Evaluation(run=ANY, checkpoint="averaged")
    clock: dict[str, Any] = {"mode": "live", "first": recipe.live}
    return Grid(
        title=f"Papi et al. 2022 on {recipe.name}: an offline Conformer and CAAT",
        runs=recipe.runs,
        name="caat",
        variants=variants(recipe),
        table=("conformer_kd", *(f"caat_{size}_kd" for size in GROUPS)),
        baseline="conformer_kd",
        evaluations=(native, replace(native, mode="live", first=recipe.live)),
        own={
            "conformer_kd": (
                *tested("adaptive", "conformer"),
                *tested("adaptive", "conformer", **clock),
            )
        },
    )
