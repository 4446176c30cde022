"""Decision points: what they look at, where they stand, and the way back to the states."""

import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.nn.monotonic import at_triggers, every_state, fixed_windows, place

STATES = jnp.arange(2 * 6 * 2, dtype=jnp.float32).reshape(2, 6, 2)
LENGTHS = jnp.array([6, 4])
TRIGGERS = jnp.array([[0, 1, 0, 0, 1, 1], [0, 0, 1, 1, 0, 0]], bool)


@pytest.mark.parametrize("pooling", ["average", "last"])
def test_triggers_pool_what_came_since_the_one_before(pooling):
    points = at_triggers(STATES, TRIGGERS, pooling)
    np.testing.assert_array_equal(points.count, [3, 2])
    for row, ends in enumerate([[1, 4, 5], [2, 3]]):
        np.testing.assert_array_equal(points.ends[row, : len(ends)], ends)
        for window, (first, end) in enumerate(zip([0, *(e + 1 for e in ends)], ends, strict=False)):
            members = STATES[row, first : end + 1]
            expected = members.mean(0) if pooling == "average" else members[-1]
            np.testing.assert_allclose(points.keys[row, window], expected, rtol=1e-6)


def test_fixed_windows_are_triggers_at_their_ends():
    ends = jnp.array([[0, 0, 0, 1, 0, 1], [0, 0, 0, 1, 0, 0]], bool)
    fixed, free = fixed_windows(STATES, LENGTHS, 4, "average"), at_triggers(STATES, ends, "average")
    np.testing.assert_array_equal(fixed.count, free.count)
    for row, count in enumerate(fixed.count.tolist()):
        np.testing.assert_array_equal(fixed.ends[row, :count], free.ends[row, :count])
        np.testing.assert_allclose(fixed.keys[row, :count], free.keys[row, :count], rtol=1e-6)


@pytest.mark.parametrize(
    "points",
    [
        every_state(STATES, LENGTHS),
        fixed_windows(STATES, LENGTHS, 4, "last"),
        at_triggers(STATES, TRIGGERS, "last"),
    ],
    ids=["every", "fixed", "triggers"],
)
def test_placing_puts_each_decision_on_its_state(points):
    windows = points.ends.shape[1]
    real = np.arange(windows) < np.asarray(points.count)[:, None]
    alpha = jnp.asarray(np.random.default_rng(0).random((2, 1, 3, windows)) * real[:, None, None])
    on_states = place(alpha, points, 6)
    expected = np.zeros((2, 1, 3, 6))
    for row in range(2):
        for window in range(int(points.count[row])):
            expected[row, :, :, int(points.ends[row, window])] += alpha[row, :, :, window]
    np.testing.assert_allclose(on_states, expected, rtol=1e-6)
