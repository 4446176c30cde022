"""The hard decisions that are marked in the picture, against the rule with loops."""

import numpy as np
import pytest

from simuljax.runs.heads import hard_decisions


def oracle(energy):
    heads, targets, width = energy.shape
    written = np.zeros((heads, targets), int)
    for head in range(heads):
        stands = 0
        for target in range(targets):
            while stands < width - 1 and energy[head, target, stands] < 0:
                stands += 1
            written[head, target] = stands
    return written


@pytest.mark.parametrize("mean", [-2.0, 0.0, 2.0])
def test_hard_decisions(mean):
    energy = np.random.default_rng(3).normal(mean, 1.5, (5, 7, 9))
    np.testing.assert_array_equal(hard_decisions(energy), oracle(energy))


def test_an_energy_of_zero_is_accepted():
    assert hard_decisions(np.array([[[-1.0, 0.0, 1.0]]])).tolist() == [[1]]
