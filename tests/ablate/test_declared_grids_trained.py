"""Train small variants that only the large grids have, from their donors to their scores."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data_pipelines.dataset import open_corpus
from experiments.ma2020 import figures_2_to_4
from simuljax.eval import Record, read_records
from simuljax.runs.evaluate import evaluate
from simuljax.train.run_log import read_metrics
from tests.helpers.grids import (
    CLOCKED,
    REPOSITORY,
    environment,
    small_evaluation,
    trained,
    write_untrained,
)

pytestmark = pytest.mark.slow  # compiles much

STATE_MS = 40
TEST = 6  # utterances


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Of all tests: what one has trained, another need not."""
    return tmp_path_factory.mktemp("runs")


def work(corpus: Path, runs: Path, file: str, grid: str, *variants: str) -> None:
    """Work as `simuljax ablate` does, in a process with one device."""
    command = [sys.executable, "-m", "tests.helpers.grids", str(corpus), str(runs)]
    command += [f"experiments/{file}.py", grid, *variants]
    held = {"cwd": REPOSITORY, "env": environment(), "capture_output": True, "text": True}
    done = subprocess.run(command, **held)
    assert done.returncode == 0, done.stderr[-3000:]


def run_of(runs: Path, variant: str) -> Path:
    (run,) = runs.glob(f"{variant}-seed0-*")
    return run


def records_of(runs: Path, variant: str) -> dict[str, list[Record]]:
    """The records of a variant's evaluations."""
    return {path.parent.name: read_records(path.parent)
            for path in run_of(runs, variant).glob("eval/*/scores.json")}  # fmt: skip


def values_of(runs: Path, variant: str, name: str) -> list[float]:
    """Of a loss in training, as it was recorded."""
    records = read_metrics(run_of(runs, variant))
    return [each["values"][name] for each in records if each["split"] == "train"]


def word_ends(corpus: Path) -> list[np.ndarray]:
    """In milliseconds, of every utterance of the test."""
    split = open_corpus(corpus)["test"]
    return [example["word_ms"][:, 1] for example in split.source.__getitems__([*range(len(split))])]


def test_wait_k_at_words_waits_for_k_words(corpus, tmp_path):
    """Nobody trained this one: it writes many words, which mean nothing."""
    variant = trained(figures_2_to_4.FIGURES)["words_wait_k"]
    write_untrained(tmp_path / "run", variant, corpus)
    early = {}
    for each in figures_2_to_4.FIGURES.ways("words_wait_k")[:2]:
        each = replace(small_evaluation(each), run=tmp_path / "run")
        evaluate(each)
        early[each.k] = 0
        for record, ends in zip(read_records(each.folder), word_ends(corpus), strict=True):
            third = min(ends[2] if len(ends) > 2 else np.inf, record.source_length)
            early[each.k] += sum(delay < third - STATE_MS for delay in record.delays)
    assert early[3] == 0
    assert early[1] > 0, "nothing was written early: this shows little"


def test_phoneme_decision_points(corpus, runs):
    work(corpus, runs, "ma2020/figures_2_to_4", "figures", "phonemes")
    assert [len(records) for records in records_of(runs, "phonemes").values()] == [TEST] * 2


def test_streaming_encoder_writes_the_same_live_and_in_batches(corpus, runs):
    variant, k = "streaming_280_wait_k", 3
    work(corpus, runs, "ma2020/figures_2_to_4", "clock", variant)
    found, words = records_of(runs, variant), 0
    played = found[f"test-speech-live-k{k}-first100"]
    for one, other in zip(found[f"test-speech-streamed-k{k}"][:CLOCKED], played, strict=True):
        assert one.prediction == other.prediction
        assert one.delays == pytest.approx(other.delays)
        assert all(e >= d for d, e in zip(other.delays, other.elapsed, strict=True))
        words += len(other.delays)
    assert words, "nothing was written: this shows nothing"


def test_learned_decision_points(corpus, runs):
    variant = "learnable_counted"
    work(corpus, runs, "zaidi2022/decisions", "", variant)
    assert min(values_of(runs, variant, "quantity")) > 0
    assert [len(records) for records in records_of(runs, variant).values()] == [TEST] * 2
