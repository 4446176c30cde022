"""Make small grids: planned only, as if trained, or on a corpus of a few sentences."""

import dataclasses
import importlib.metadata
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest

from data_pipelines.corpora import Phrasebook
from data_pipelines.dataset import SUMMARY
from data_pipelines.prepare import Preparation, prepare
from simuljax.ablate.grid import Grid, Planned, plan
from simuljax.config.decoding import LengthLimit
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import Experiment, InitFrom
from simuljax.config.model import ModelConfig
from simuljax.models.joint import JointModel
from simuljax.models.parameters import initialise
from simuljax.train.run import ENDED
from tests.helpers.experiments import experiment, text_alone
from tests.written_runs import PIECES, experiment_of, write_files

REPOSITORY = Path(__file__).parents[2]
EVALUATIONS = tuple(Evaluation(run=Path(), mode=mode) for mode in ("offline", "live", "streamed"))
CLOCKED = 3  # utterances in real time
LIMIT = LengthLimit(ratio=0.1, constant=4)  # an untrained model would write for long
# For processes whose programs run once: jaxlib 0.10 needs half the time without MLIR.
QUICK = ["--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true"]
if importlib.metadata.version("jaxlib").startswith("0.10."):
    QUICK.append("--xla_cpu_use_fusion_emitters=false")


def grid(corpus: Path, runs: Path, **changes: Any) -> Grid:
    """Return a grid of two variants that start from a donor, and a second phase of one of them."""
    donor = experiment(corpus, runs / "donor")
    init_from = (InitFrom(run=donor.run, checkpoint="last"),)
    corpus_of_donor = replace(donor.data, vocabularies_of=donor.run)
    one = replace(donor, run=runs / "one", init_from=init_from, data=corpus_of_donor)
    other = replace(one, run=runs / "other", training=replace(one.training, accumulate=2))
    later = replace(other, run=runs / "later", init_from=(InitFrom(run=other.run),))
    given = {
        "runs": runs,
        "variants": {"donor": donor, "one": one, "other": other, "later": later},
        "table": ("one", "other"),
        "baseline": "one",
        "curves": {"other": ("later",)},
        "seeds": (0, 1),
        "evaluations": (Evaluation(run=Path(), mode="offline", frames=8_000),),
    }
    return Grid(**given | changes)


def trained(ablation: Grid) -> dict[str, Experiment]:
    """Return the variants that are trained."""
    return {name: v for name, v in ablation.variants.items() if isinstance(v, Experiment)}


def text_grid(corpus: Path, runs: Path, **changes: Any) -> Grid:
    """Return the first phase of the grid with text translators, which compile in seconds."""
    small = grid(corpus, runs, **{"curves": {}, "seeds": (0,)} | changes)
    return replace(
        small,
        variants={name: text_alone(variant) for name, variant in trained(small).items()},
        evaluations=(replace(small.evaluations[0], branch="text", limit=LIMIT),),
    )


def with_training(ablation: Grid, variant: str, **changes: Any) -> Grid:
    """Change the training of one variant."""
    old = trained(ablation)[variant]
    new = replace(old, training=dataclasses.replace(old.training, **changes))
    return replace(ablation, variants={**ablation.variants, variant: new})


def summarised_corpus(directory: Path) -> Path:
    """Make as much of a corpus as a plan reads."""
    directory.mkdir(exist_ok=True)
    (directory / SUMMARY).write_text("{}")
    return directory


def spoken_corpus(directory: Path, test: int = 6) -> Path:
    """Prepare a few sentences of the phrasebook."""
    pytest.importorskip("espeakng_loader", reason="needs `pip install 'simuljax[speech]'`")
    prepare(Preparation(corpus=Phrasebook(train=24, valid=8, test=test)), None, directory, 1)
    return directory


def all_trained(corpus: Path, runs: Path) -> tuple[Grid, list[Planned]]:
    """Return runs as if trained, with three evaluations each, one of them in real time."""
    ablation = grid(corpus, runs, seeds=(0,), curves={}, evaluations=EVALUATIONS)
    planned = plan(ablation)
    for run in planned:
        run.experiment.run.mkdir(parents=True)
        (run.experiment.run / ENDED).write_text("{}")
    return ablation, planned


def write_scores(evaluation: Evaluation) -> None:
    """Make an evaluation look done."""
    evaluation.folder.mkdir(parents=True, exist_ok=True)
    (evaluation.folder / "scores.json").write_text("{}")


def environment(**variables: str) -> dict[str, str]:
    """Return the variables of a child process: this repository, one device, quick compilation."""
    places = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(filter(None, places)), "XLA_FLAGS": " ".join(QUICK)}
    return os.environ | own | variables


def small_model(model: ModelConfig) -> ModelConfig:
    """Shrink a model to one or two narrow layers of each kind."""
    heads = min(2, model.width.heads)
    width = replace(model.width, model=16, hidden=32, heads=heads, dropout=0.0, dtype="float32")
    changes: dict[str, Any] = {"decoder_layers": 1, "joiner_layers": 1, "decoder_width": None}
    if model.speech is not None:
        sizes = {"layers": 2, "shared": min(1, model.speech.shared), "channels": 16}
        ctc = 1 if model.speech.ctc_after else None
        changes["speech"] = replace(model.speech, ctc_after=ctc, **sizes)
    if model.text is not None:
        changes["text"] = replace(model.text, layers=1)
    return replace(model, width=width, **changes)


def write_untrained(directory: Path, variant: Experiment, corpus: Path) -> Path:
    """Write the run of a small model that nobody trained: it writes many words without meaning."""
    sizes = {"source_vocabulary": PIECES.size, "target_vocabulary": PIECES.size, "features": 80}
    model = replace(small_model(variant.model), **sizes)
    params, statistics = initialise(JointModel(model), jax.random.key(0))
    loud = jax.tree.map(lambda leaf: leaf * 3 if leaf.ndim > 1 else leaf, params)
    return write_files(experiment_of(directory, model, corpus, variant.data.task), loud, statistics)


def small_evaluation(evaluation: Evaluation) -> Evaluation:
    """Shrink an evaluation to fewer utterances and tokens, under the same name."""
    first = evaluation.first and CLOCKED
    return replace(evaluation, name=evaluation.folder.name, frames=8_000, first=first, limit=LIMIT)
