"""A corpus in device memory gives the batches that reading it gives, number for number."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from data_pipelines.batches import Batches, Host, iterate
from data_pipelines.dataset import PreparedCorpus
from data_pipelines.input import gather, load_resident
from simuljax.batch import Batch
from tests.helpers.corpora import BUDGET, assert_same_batch, batches_of, build_rows, examples_of


def assert_same(held: Batch, read: Batch) -> None:
    assert all(isinstance(value, jax.Array) for value in vars(held).values() if value is not None)
    assert_same_batch(held, read)


def both(corpus: PreparedCorpus, split: str = "train", **options: Any) -> tuple[Any, Batches]:
    read = batches_of(corpus, split, **options)
    return replace(read, examples=load_resident(examples_of(corpus, split))), read


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_resident_batches_are_those_that_are_read(hums, split):
    held, read = both(hums, split, seed=4)
    empty = 0
    for step in range(2 * read.plan.steps_per_epoch):
        batch = held[step]
        assert_same(batch, read[step])
        empty += int((np.asarray(batch.index) < 0).sum())
    assert empty  # rows without an example are among them


@pytest.mark.parametrize("kind", ["phonemes", "text", "no transcripts", "host 0", "host 1"])
def test_other_corpora_and_hosts(kind, request, hums_root, tmp_path):
    if kind == "no transcripts":  # and times beyond the end
        words = [["m", 0.1, 0.2], ["hm", 0.25, 5.0], ["never", 6, 7]]
        names = {f"Satz {n}": str(hums_root / f"train{n}.wav") for n in range(6)}
        rows = [{"audio": a, "translation": text, "words": words} for text, a in names.items()]
        held, read = both(build_rows(tmp_path, {"train": rows}))
        assert set(np.unique(np.asarray(read[0].words))) == {0, 1, 2}
    elif kind == "phonemes":
        budget = replace(BUDGET, frames=3000)
        held, read = both(request.getfixturevalue("spoken"), budget=budget)
        assert read[0].phonemes is not None
    elif kind == "text":
        held, read = both(request.getfixturevalue("text"))
    else:
        host = Host(index=int(kind[-1]), count=2)
        held, read = both(request.getfixturevalue("hums"), host=host)
    for step in range(read.plan.steps_per_epoch):
        assert_same(held[step], read[step])


def test_resident_batches_can_be_iterated(hums):
    held, read = both(hums)
    stream = iterate(held, start=3)
    assert_same(next(stream), read[3])


def test_one_compilation_for_each_shape(hums):
    held, read = both(hums)
    count: Any = gather
    count.clear_cache()
    for step in range(3 * read.plan.steps_per_epoch):
        held[step]
    assert count._cache_size() == len(read.plan.buckets) == 3


def test_a_split_that_is_too_large_is_refused(hums):
    examples = examples_of(hums)
    gigabytes = hums["train"].table.samples.sum() * 2 / 1e9
    with pytest.raises(ValueError, match=r"split train takes .* raise most_gb"):
        load_resident(examples, most_gb=gigabytes * 0.9)
    load_resident(examples, most_gb=gigabytes * 1.2)
