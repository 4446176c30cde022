"""Words too many and too few."""

import math

from simuljax.eval import Record
from simuljax.eval.scores import word_difference


def record(prediction: str, reference: str | None) -> Record:
    delays = tuple(100.0 for _ in prediction.split())
    return Record(
        index=0, prediction=prediction, delays=delays, reference=reference, source="x",
        source_length=100.0,
    )  # fmt: skip


def test_words_above_the_reference():
    records = [record("a b c", "a b"), record("", "a b c"), record("a", "b"), record("a", None)]
    assert word_difference(records) == (1 - 3 + 0) / 3
    assert math.isnan(word_difference([record("a", None)]))
