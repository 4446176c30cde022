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

from experiments.shared import ALONE, ANY, OFFLINE, TRANSLATION, with_objective
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
ONE = Evaluation(run=ANY, checkpoint="averaged")
WHOLE = replace(OFFLINE, checkpoint="averaged")
WHOLES = (WHOLE, replace(WHOLE, beam=Beam(size=5)))


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
    transformer, conformer = recipe.transformer, recipe.conformer
    small = with_objective(recipe.training, WITH_CTC)
    large = with_objective(recipe.conformer_training, WITH_CTC)
    models = {"transformer": (transformer, small), "conformer": (conformer, large)}
    distilled = {"conformer_kd": (conformer, large)}
    for units in UNITS:
        for k in K:
            models[f"transformer_{units}_k{k}"] = (waiting(transformer, units, k), small)
            distilled[f"conformer_{units}_k{k}_kd"] = (waiting(conformer, units, k), large)
    kd = replace(recipe.data, directory=recipe.distilled)
    teacher = Experiment(
        run=recipe.runs / "teacher",
        data=recipe.taught,
        model=recipe.teacher,
        training=with_objective(recipe.teaching, TRANSLATION),
    )
    found = {"teacher": teacher}
    for corpus, each in ((recipe.data, models), (kd, distilled)):
        for name, (model, training) in each.items():
            found[name] = Experiment(
                run=recipe.runs / name, data=corpus, model=model, training=training
            )
    return found | {f"caat_{size}_kd": caat(recipe, kd, size) for size in GROUPS}


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
    return Experiment(
        run=recipe.runs / f"caat_{size}_kd",
        data=corpus,
        model=replace(
            recipe.transformer,
            speech=speech,
            decoder="caat",
            joiner_layers=recipe.transformer.decoder_layers,
            predecision=PreDecision(kind="fixed", step_ms=40 * size),
        ),
        training=with_objective(recipe.training, TRANSDUCER),
    )


def tested(units: Units, architecture: str, **changes: Any) -> tuple[Evaluation, ...]:
    """Evaluate at every k_test, as in appendix A: no `avoid_eos` for the fixed Transformer."""
    spared = units == "fixed" and architecture == "transformer"
    one = replace(ONE, force_finish=True, avoid_eos_while_reading=not spared, **changes)
    kind = "fixed" if units == "fixed" else "ctc"
    return tuple(replace(one, policy=WaitK(k=k, units=kind)) for k in K)


def grids(recipe: Recipe) -> Mapping[str, Grid]:
    """Return the figures by name. Figures 4 and 5 need the distilled corpus."""
    titled, systems = f"Papi et al. 2022 on {recipe.name}", variants(recipe)

    def training(units: Units, architecture: str, kd: str = "") -> Grid:
        """Compare offline training with every k_train, at every k_test."""
        offline = f"{architecture}{kd}"
        return Grid(
            title=f"{titled}: k_train, {offline}, {units} words",
            runs=recipe.runs,
            name=f"{offline}_{units}",
            variants=systems,
            table=(offline, *(f"{architecture}_{units}_k{k}{kd}" for k in K)),
            baseline=offline,
            evaluations=tested(units, architecture),
            own={offline: (*WHOLES, *tested(units, architecture))},
        )

    def architectures(units: Units) -> Grid:
        names = ("transformer", "conformer")
        return Grid(
            title=f"{titled}: architectures, {units} words",
            runs=recipe.runs,
            name=f"architectures_{units}",
            variants=systems,
            table=names,
            baseline="transformer",
            evaluations=WHOLES,
            own={name: (*WHOLES, *tested(units, name)) for name in names},
        )

    clock: dict[str, Any] = {"mode": "live", "first": recipe.live}
    adaptive = (*tested("adaptive", "conformer"), *tested("adaptive", "conformer", **clock))
    rivals = Grid(
        title=f"{titled}: an offline Conformer and CAAT",
        runs=recipe.runs,
        name="caat",
        variants=systems,
        table=("conformer_kd", *(f"caat_{size}_kd" for size in GROUPS)),
        baseline="conformer_kd",
        evaluations=(ONE, replace(ONE, **clock)),  # the whole test set; in real time
        own={"conformer_kd": adaptive},
    )
    return {
        "figure_1": training("fixed", "transformer"),
        "figure_2": training("adaptive", "transformer"),
        "figure_3": architectures("fixed"),
        "figure_3_adaptive": architectures("adaptive"),
        "figure_4": training("adaptive", "conformer", "_kd"),
        "figure_4_fixed": training("fixed", "conformer", "_kd"),
        "figure_5": rivals,
    }
