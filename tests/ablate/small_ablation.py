"""A grid of a few small runs: planned only, as if trained, or on a corpus of a few sentences."""

import dataclasses
from pathlib import Path

import pytest

from data_pipelines.corpora import Phrasebook
from data_pipelines.prepare import Preparation, prepare
from data_pipelines.prepared import SUMMARY
from simuljax.ablate.grid import Ablation, Planned, plan
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import Begin
from simuljax.train.member import ENDED
from tests.runs.small_run import experiment

WAYS = tuple(Evaluation(run=Path(), mode=mode) for mode in ("offline", "live", "streamed"))
FILE = """
from pathlib import Path
from tests.ablate.small_ablation import grid, with_training
ABLATION = grid(Path({corpus!r}), Path({runs!r}), seeds=(0,), curves={{}})
"""


def grid(corpus: Path, runs: Path, **changes) -> Ablation:
    """A row that the two of the table begin with, and a later phase of one of them."""
    donor = experiment(corpus, runs / "donor")
    begin = (Begin(run=donor.run, checkpoint="last"),)
    corpus_of_donor = dataclasses.replace(donor.corpus, vocabularies_of=donor.run)
    one = dataclasses.replace(donor, run=runs / "one", begin=begin, corpus=corpus_of_donor)
    other = dataclasses.replace(
        one,
        run=runs / "other",
        training=dataclasses.replace(one.training, accumulate=2),
    )
    later = dataclasses.replace(other, run=runs / "later", begin=(Begin(run=other.run),))
    rows = {"donor": donor, "one": one, "other": other, "later": later}
    given = {
        "runs": runs,
        "rows": rows,
        "table": ("one", "other"),
        "baseline": "one",
        "curves": {"other": ("later",)},
        "seeds": (0, 1),
        "evaluations": (Evaluation(run=Path(), mode="offline", frames=8_000),),
    }
    return Ablation(**given | changes)


def as_addressed(corpus: Path) -> Path:
    """A corpus as far as an address looks at it."""
    corpus.mkdir()
    (corpus / SUMMARY).write_text("{}")
    return corpus


def with_training(ablation: Ablation, row: str, **changes) -> Ablation:
    old = ablation.rows[row]
    new = dataclasses.replace(old, training=dataclasses.replace(old.training, **changes))
    return dataclasses.replace(ablation, rows={**ablation.rows, row: new})


def all_trained(corpus: Path, runs: Path) -> tuple[Ablation, list[Planned]]:
    """Two runs to be evaluated in three ways, one of them with the clock running."""
    ablation = grid(corpus, runs, seeds=(0,), curves={}, evaluations=WAYS)
    planned = plan(ablation)
    for run in planned:
        run.experiment.run.mkdir(parents=True)
        (run.experiment.run / ENDED).write_text("{}")
    return ablation, planned


def write_scores(way: Evaluation) -> None:
    way.folder.mkdir(parents=True, exist_ok=True)
    (way.folder / "scores.json").write_text("{}")


def spoken(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A corpus of a few sentences, and where runs and the file of a grid are to be."""
    pytest.importorskip("espeakng_loader", reason="needs `pip install 'simuljax[speech]'`")
    corpus = tmp_path / "corpus"
    prepare(Preparation(corpus=Phrasebook(train=24, valid=8, test=6)), None, corpus, 1)
    return corpus, tmp_path / "runs", tmp_path / "grid.py"
