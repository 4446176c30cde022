"""Nguyen et al. 2021: an offline model writes N tokens every s frames, after k frames.

A recipe holds corpora, model sizes and schedules. `variants` makes the paper's systems from it, and
`grids` its tables and figures, which share their runs:

    characters, bpe400, bpe2k   VGG-BLSTM, by target units
    asr                         the cascade's recogniser, a Conformer that streams with AlignAtt
    mt, mt_offline              its translators: multi-path wait-k, and trained on whole texts

    table                       the 12 (k, s, N) rows of table 1 (en-de, two test sets) or 2 (en-pt)
    figure_2                    what to write: characters, BPE400 or BPE2k
    figure_3                    characters against both cascades

k and s count frames of 10 ms, as in the paper. Offline results are greedy, and with a beam of 10.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.shared import ALONE, ANY, TRANSLATION, with_objective
from simuljax.ablate.grid import Grid
from simuljax.config.decoding import Beam, LengthLimit
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import DataConfig, Experiment
from simuljax.config.model import ModelConfig, Monotonic, TextConfig
from simuljax.config.training import Training
from simuljax.decode.policies import AlignAtt, FixedSteps
from simuljax.models import presets
from simuljax.text import VocabularyConfig

Steps = tuple[int, int, int]  # k, s, N

# Tables 1 and 2, in the order of their rows.
TABLE: tuple[Steps, ...] = (
    (100, 10, 3), (100, 10, 2), (100, 20, 3), (200, 10, 3), (200, 10, 2), (100, 20, 2),
    (100, 10, 1), (200, 20, 3), (200, 20, 2), (200, 10, 1), (100, 20, 1), (200, 20, 1),
)  # fmt: skip
FIGURE_2: tuple[Steps, ...] = ((100, 10, 2), (200, 10, 2), (200, 20, 2), (200, 20, 1))
WAIT = (1, 3, 5, 7, 9)  # words that the translator of a cascade is behind
LAST_FRAMES = 4  # of AlignAtt: states that a recogniser does not trust
WRITTEN = {
    "characters": VocabularyConfig(kind="characters", size=200),
    "bpe400": VocabularyConfig(kind="bpe", size=400),
    "bpe2k": VocabularyConfig(kind="bpe", size=2_000),
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hold what all variants have in common."""

    name: str  # of the corpus
    runs: Path
    data: DataConfig  # with speech at .9 and 1.1 of its speed beside the original
    model: ModelConfig  # VGG-BLSTM
    recogniser: ModelConfig  # of the cascade
    translator: ModelConfig  # of its text
    training: Training  # schedules; the variants set the objective
    asr: Training
    mt: Training
    tests: tuple[str, ...] = ("test",)
    length_ratio: float = 1.0  # tokens to a state of the encoder, at most; 1.6 for en-pt
    scale: float = 1.0  # of k: sentences that take 3 s have no use for 2 s


def variants(recipe: Recipe) -> Mapping[str, Experiment]:
    """Return the systems of the paper by name; the cascade's texts are lower-case word pieces."""
    direct = {
        name: Experiment(
            run=recipe.runs / name,
            data=replace(recipe.data, target=vocabulary),
            model=recipe.model,
            training=with_objective(recipe.training, ALONE),
        )
        for name, vocabulary in WRITTEN.items()
    }
    spoken = replace(recipe.data.source, lowercase=True)
    asr = Experiment(
        run=recipe.runs / "asr",
        data=replace(recipe.data, task="transcription", source=spoken, target=spoken),
        model=recipe.recogniser,
        training=with_objective(recipe.asr, replace(ALONE, ctc=0.5)),
    )
    mt_offline = Experiment(
        run=recipe.runs / "mt_offline",
        data=replace(recipe.data, source=spoken, target=replace(spoken, lowercase=False)),
        model=presets.offline(recipe.translator),
        training=with_objective(recipe.mt, TRANSLATION),
    )
    layers = recipe.translator.text.layers if recipe.translator.text else 6
    causal = replace(
        recipe.translator,
        text=TextConfig(layers=layers, direction="unidirectional"),
        monotonic=Monotonic(policy="wait_k", wait_k=(1, 10)),
    )
    mt = replace(mt_offline, run=recipe.runs / "mt", model=causal)
    return {**direct, "asr": asr, "mt": mt, "mt_offline": mt_offline}


def stepped(recipe: Recipe, steps: tuple[Steps, ...], split: str) -> tuple[Evaluation, ...]:
    """Evaluate offline and with each (k, s, N), with the paper's length limit."""
    limit = LengthLimit(ratio=recipe.length_ratio, constant=0)
    one = Evaluation(run=ANY, split=split, limit=limit)
    whole = replace(one, mode="offline")
    policies = [
        FixedSteps(first_ms=round(10 * k * recipe.scale), step_ms=10 * s, tokens=n)
        for k, s, n in steps
    ]
    stepwise = (replace(one, policy=policy) for policy in policies)
    return (whole, replace(whole, beam=Beam(size=10)), *stepwise)


def grids(recipe: Recipe) -> Mapping[str, Grid]:
    """Return tables and figures by name."""
    titled, first = f"Nguyen et al. 2021 on {recipe.name}", recipe.tests[0]
    base = Grid(
        runs=recipe.runs,
        variants=variants(recipe),
        table=("characters",),
        baseline="characters",
        evaluations=stepped(recipe, TABLE, first),
    )
    tables = {
        "table" if split == first else f"table_{split}": replace(
            base,
            title=f"{titled}: (k, s, N) on {split}",
            name=f"table_{split}",
            evaluations=stepped(recipe, TABLE, split),
        )
        for split in recipe.tests
    }
    granularity = replace(
        base,
        title=f"{titled}: characters, BPE400 and BPE2k",
        name="granularity",
        table=tuple(WRITTEN),
        evaluations=stepped(recipe, FIGURE_2, first),
    )
    recognised = Evaluation(
        run=ANY, split=first, policy=AlignAtt(frames=LAST_FRAMES), force_finish=True
    )
    cascades = replace(
        base,
        title=f"{titled}: cascades",
        name="cascades",
        table=("characters", "asr"),
        own={
            "asr": tuple(
                replace(recognised, then=recipe.runs / translator, then_k=k)
                for translator in ("mt", "mt_offline")
                for k in WAIT
            )
        },
    )
    return {**tables, "figure_2": granularity, "figure_3": cascades}
