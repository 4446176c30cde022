"""Kinds of rows that only the grids for one H200 have, small, from their donors to their scores."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from data_pipelines.corpora import Phrasebook
from data_pipelines.prepare import Preparation, prepare
from data_pipelines.prepared import open_corpus
from experiments.ma2020 import figures_2_to_4 as ablation_ma
from simuljax.eval import Record, read_records
from simuljax.models.initialise import initialise
from simuljax.models.translator import Translator
from simuljax.runs.evaluate import evaluate
from simuljax.train.metrics import read_metrics
from tests.ablate.small_grids import CLOCKED, small_model, small_way
from tests.written_runs import PIECES, write_files

pytest.importorskip("espeakng_loader", reason="needs `pip install 'simuljax[speech]'`")
pytestmark = pytest.mark.slow  # compiles much

REPOSITORY = Path(__file__).parents[2]
STATE_MS = 40
TEST = 6  # utterances


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("corpus") / "phrasebook"
    prepare(Preparation(corpus=Phrasebook(train=24, valid=8, test=TEST)), None, place, 1)
    return place


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Of all tests: what one has trained, another need not."""
    return tmp_path_factory.mktemp("runs")


def work(corpus: Path, runs: Path, file: str, grid: str, *rows: str) -> None:
    """As `simuljax ablate` does it, in a process with one device."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-m", "tests.ablate.small_grids", str(corpus), str(runs)]
    command += [f"experiments/{file}.py", grid, *rows]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def run_of(runs: Path, row: str) -> Path:
    (run,) = runs.glob(f"{row}-seed0-*")
    return run


def said(runs: Path, row: str) -> dict[str, list[Record]]:
    """The records of a row's evaluations."""
    return {path.parent.name: read_records(path.parent)
            for path in run_of(runs, row).glob("eval/*/scores.json")}  # fmt: skip


def values_of(runs: Path, row: str, name: str) -> list[float]:
    """Of a loss in training, as it was recorded."""
    records = read_metrics(run_of(runs, row))
    return [each["values"][name] for each in records if each["split"] == "train"]


def word_ends(corpus: Path) -> list[np.ndarray]:
    """In milliseconds, of every utterance of the test."""
    split = open_corpus(corpus)["test"]
    return [example["word_ms"][:, 1] for example in split.source.__getitems__([*range(len(split))])]


def test_wait_k_at_words_writes_nothing_before_the_word_it_waits_for(corpus, tmp_path):
    """Nobody trained this one: it writes many words, which mean nothing."""
    row = ablation_ma.FIGURES.rows["words_wait_k"]
    sizes = {"source_vocabulary": PIECES.size, "target_vocabulary": PIECES.size}
    model = replace(small_model(row.model), **sizes)
    params, statistics = initialise(Translator(model), jax.random.key(0))
    loud = jax.tree.map(lambda leaf: leaf * 3 if leaf.ndim > 1 else leaf, params)
    told = {"model": model, "corpus": {"task": "translation", "directory": corpus}}
    write_files(tmp_path / "run", told, loud, statistics)
    early = {}
    for way in ablation_ma.FIGURES.ways("words_wait_k")[:2]:
        way = replace(small_way(way), run=tmp_path / "run")
        evaluate(way)
        early[way.k] = 0
        for record, ends in zip(read_records(way.folder), word_ends(corpus), strict=True):
            third = min(ends[2] if len(ends) > 2 else np.inf, record.source_length)
            early[way.k] += sum(delay < third - STATE_MS for delay in record.delays)
    assert early[3] == 0
    assert early[1] > 0, "nothing was written early: this shows little"


def test_phonemes(corpus, runs):
    work(corpus, runs, "ma2020/figures_2_to_4", "figures", "phonemes")
    assert [len(records) for records in said(runs, "phonemes").values()] == [TEST] * 2


def test_a_streaming_encoder_says_live_what_it_says_in_batches(corpus, runs):
    row, k = "streaming_280_wait_k", ablation_ma.CLOCKED_K
    work(corpus, runs, "ma2020/figures_2_to_4", "clock", row)
    found, words = said(runs, row), 0
    played = found[f"test-speech-live-k{k}-first100"]
    for one, other in zip(found[f"test-speech-streamed-k{k}"][:CLOCKED], played, strict=True):
        assert one.prediction == other.prediction
        assert one.delays == pytest.approx(other.delays)
        assert all(e >= d for d, e in zip(other.delays, other.elapsed, strict=True))
        words += len(other.delays)
    assert words, "nothing was written: this shows nothing"


def test_decision_points_that_are_learnt(corpus, runs):
    row = "learnable_counted"
    work(corpus, runs, "zaidi2022/decisions", "", row)
    assert min(values_of(runs, row, "quantity")) > 0
    assert [len(records) for records in said(runs, row).values()] == [TEST] * 2
