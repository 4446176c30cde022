"""Rows of a large grid on a corpus of a few sentences: the same kinds of everything, a few updates.

python -m tests.ablate.small_grids CORPUS RUNS FILE GRID ROW ...
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from simuljax.ablate.grid import Ablation, load_ablation, plan
from simuljax.ablate.worker import work
from simuljax.config.evaluation import Evaluation
from simuljax.config.experiment import Experiment
from simuljax.models import config
from tests.runs.small_run import experiment

CLOCKED = 3  # utterances that are played
LIMIT = {"length_ratio": 0.1, "length_constant": 4}  # or what has learnt nothing goes on for long


def small_model(model: config.Translator) -> config.Translator:
    """One or two layers of each kind, and narrow."""
    width = replace(model.width, model=16, hidden=32, heads=2, dropout=0.0, dtype="float32")
    changes: dict[str, Any] = {}
    if model.speech is not None:
        sizes = {"layers": 2, "shared": min(1, model.speech.shared), "channels": 16}
        ctc = 1 if model.speech.ctc_after else None
        changes["speech"] = replace(model.speech, ctc_after=ctc, **sizes)
    if model.text is not None:
        changes["text"] = replace(model.text, layers=1)
    return replace(model, width=width, decoder_layers=1, **changes)


def small_row(row: Experiment, corpus: Path) -> Experiment:
    """For a few updates on a few sentences."""
    like = experiment(corpus, row.run)
    given = replace(like.corpus, task=row.corpus.task, vocabularies_of=row.corpus.vocabularies_of)
    training = replace(
        row.training,
        optimiser=replace(row.training.optimiser, warmup=2),
        updates=4,
        epochs=None,
        validate_every=2,
        log_every=2,
    )
    return replace(row, corpus=given, model=small_model(row.model), training=training)


def small_way(way: Evaluation) -> Evaluation:
    """Of fewer utterances and tokens, under the same name."""
    first = way.first and CLOCKED
    return replace(way, name=way.folder.name, frames=8_000, first=first, **LIMIT)


def small_grid(grid: Ablation, rows: Sequence[str], corpus: Path, runs: Path) -> Ablation:
    """Some rows, all of them in the table."""
    own = {row: tuple(small_way(way) for way in grid.ways(row)) for row in grid.seeded}
    return replace(
        grid,
        rows={name: small_row(row, corpus) for name, row in grid.rows.items()},
        runs=runs,
        table=tuple(rows),
        baseline=rows[0],
        curves={},
        claims=(),
        seeds=(0,),
        own=own,
    )


def main(corpus: str, runs: str, file: str, name: str, *rows: str) -> None:
    """Trains and evaluates them; what is there already is left alone."""
    grid = small_grid(load_ablation(Path(file), name or None), rows, Path(corpus), Path(runs))
    for run in plan(grid):
        work([run], grid)


if __name__ == "__main__":
    main(*sys.argv[1:])
