"""A stream's settings are refused before any sound; small things of the surface."""

import math

import numpy as np
import pytest

import simuljax
from simuljax import ops
from simuljax.eval import average_token_delay
from simuljax.serve.run_translator import Streaming


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"read_ms": -160}, "read_ms is -160"),
        ({"read_ms": 0}, "read_ms is 0"),
        ({"read_ms": 100.5}, "read_ms is 100.5; it must be a whole number"),
        ({"predecision_ms": 0}, "predecision_ms is 0"),
        ({"sentences": "x"}, "sentences is .x.; it must be one of"),
        ({"policy": "wait-k"}, "policy is 'wait-k'; it must be a Policy"),
        ({"threshold": "x"}, "threshold is 'x'"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(setting, said):
    with pytest.raises(ValueError, match=said):
        Streaming.of(setting)
    assert (
        Streaming.of({"read_ms": np.int64(280), "threshold": np.float32(0.25)}).decoding.read_ms
        == 280
    )


def test_a_word_is_made_of_its_three_parts():
    assert simuljax.Word("ja", 1.0, 2.0) == simuljax.Word(text="ja", delay_ms=1.0, elapsed_ms=2.0)


def test_triggers_of_lengths_that_are_all_real():
    labels = np.array([[1, 1, 2, 2], [1, 2, 3, 3]])
    np.testing.assert_array_equal(
        ops.label_triggers(labels, None), ops.label_triggers(labels, np.array([4, 4]))
    )


def test_token_delays_of_arrays():
    given = [100.0, 200.0, 900.0]
    found = average_token_delay(np.array(given), 3000, 2)  # pyright: ignore[reportArgumentType]
    assert found == average_token_delay(given, 3000, 2)
    with pytest.raises(ValueError, match="finite"):
        average_token_delay([100.0, math.nan], 3000, 2)
