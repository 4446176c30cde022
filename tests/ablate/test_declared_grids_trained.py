"""Evaluate small variants that only the large grids have. Nobody trained them: they write much."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data_pipelines.dataset import open_corpus
from experiments.ma2020.figures_2_to_4 import GRIDS
from simuljax.config.evaluation import Evaluation
from simuljax.eval import Record, read_records
from simuljax.runs.evaluate import evaluate
from tests.helpers.grids import CLOCKED, small_evaluation, trained, write_untrained

pytestmark = pytest.mark.slow  # compiles much
STATE_MS = 40


def word_ends(corpus: Path) -> list[np.ndarray]:
    """In milliseconds, of every utterance of the test."""
    split = open_corpus(corpus)["test"]
    return [example["word_ms"][:, 1] for example in split.source.__getitems__([*range(len(split))])]


def records_of(run: Path, way: Evaluation) -> list[Record]:
    small = replace(small_evaluation(way), run=run)
    evaluate(small)
    return read_records(small.folder)


def test_wait_k_at_words_waits_for_k_words(corpus, tmp_path):
    grid, early = GRIDS["figures"], {}
    write_untrained(tmp_path / "run", trained(grid)["words_wait_k"], corpus)
    for way in grid.evaluations_of("words_wait_k")[:2]:
        early[way.k] = 0
        found = records_of(tmp_path / "run", way)
        for record, ends in zip(found, word_ends(corpus), strict=True):
            third = min(ends[2] if len(ends) > 2 else np.inf, record.source_length)
            early[way.k] += sum(delay < third - STATE_MS for delay in record.delays)
    assert early[3] == 0
    assert early[1] > 0, "nothing was written early: this shows little"


def test_streaming_encoder_writes_the_same_live_and_in_batches(corpus, tmp_path):
    variant, grid, words = "streaming_280_wait_k", GRIDS["clock"], 0
    write_untrained(tmp_path / "run", trained(grid)[variant], corpus)
    ways = [way for way in grid.evaluations_of(variant) if way.k == 3]
    (live,) = [way for way in ways if way.mode == "live"]
    (streamed,) = [
        way for way in ways if way == replace(live, mode="streamed", first=None, repeats=3)
    ]
    played, batched = records_of(tmp_path / "run", live), records_of(tmp_path / "run", streamed)
    for one, other in zip(batched[:CLOCKED], played, strict=True):
        assert one.prediction == other.prediction
        assert one.delays == pytest.approx(other.delays)
        assert all(e >= d for d, e in zip(other.delays, other.elapsed, strict=True))
        words += len(other.delays)
    assert words, "nothing was written: this shows nothing"
