"""Shapes that waste least, and epochs in which every example comes exactly once."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipelines.batches import ROUND, Lengths, Plan, cuts, describe_plan, make_plan
from simuljax.config.data import Budget


def speech(n: int, seed: int = 0) -> Lengths:
    random = np.random.default_rng(seed)
    audio = random.gamma(12, 4000, n).astype(np.int64) + 8000
    return Lengths(audio=audio, source=random.integers(2, 30, n), target=random.integers(2, 40, n))


def text(n: int) -> Lengths:
    lengths = speech(n)
    return Lengths(audio=0 * lengths.audio, source=lengths.source, target=lengths.target)


def padding(lengths: np.ndarray, ends: np.ndarray) -> int:
    return int((ends[np.searchsorted(ends, lengths)] - lengths).sum())


def seen(plan: Plan, epoch: int) -> np.ndarray:
    rows = np.concatenate([planned.rows for planned in plan.epoch(epoch)])
    return rows[rows >= 0]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.integers(1, 4))
def test_cuts_waste_no_more_than_any_other_choice(values, count):
    lengths = np.array(values)
    distinct = np.unique(lengths)
    choices = itertools.combinations(distinct[:-1], min(count, len(distinct)) - 1)
    least = min(padding(lengths, np.array([*choice, distinct[-1]])) for choice in choices)
    assert padding(lengths, cuts(lengths, count)) == least
    assert len(cuts(lengths, count)) <= count


@pytest.mark.parametrize("lengths", [speech(3001), speech(7), text(2000)], ids=len)
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_example_comes_once_an_epoch(lengths, shuffle):
    plan = make_plan(lengths, Budget(), seed=3, shuffle=shuffle)
    for epoch in range(3):
        assert sorted(seen(plan, epoch)) == list(range(len(lengths)))
        assert len(plan.epoch(epoch)) == plan.steps_per_epoch
        partly_empty = [b for b in plan.epoch(epoch) if (b.rows < 0).any()]
        assert len(partly_empty) <= 1


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 400), st.integers(0, 5), st.sampled_from([1, 2, 8]))
def test_every_row_fits_its_shape(n, seed, multiple):
    lengths = speech(n, seed)
    budget = Budget(frames=20_000, tokens=3_000, row_multiple=multiple)
    plan = make_plan(lengths, budget, seed=seed)
    for planned in plan.epoch(0):
        shape, inside = planned.shape, lengths[planned.rows[planned.rows >= 0]]
        assert shape.rows == len(planned.rows) and shape.rows % multiple == 0
        assert shape.audio % ROUND == 0
        assert inside.audio.max() <= shape.audio
        assert inside.source.max() <= shape.source and inside.target.max() <= shape.target
        assert shape.rows * shape.audio <= budget.frames * 160
        assert shape.rows * max(shape.source, shape.target) <= budget.tokens


def test_batches_depend_on_seed_and_epoch_alone():
    def order(seed: int, epoch: int) -> list[list[int]]:
        plan = make_plan(speech(500), Budget(), seed=seed)
        return [planned.rows.tolist() for planned in plan.epoch(epoch)]

    assert order(1, 2) == order(1, 2)
    assert order(1, 2) != order(1, 3)
    assert order(1, 2) != order(2, 2)


def test_a_step_is_found_without_walking_there():
    plan = make_plan(speech(800), Budget(frames=10_000), seed=0)
    n = plan.steps_per_epoch
    walked = [planned for epoch in range(3) for planned in plan.epoch(epoch)]
    for step in (0, 1, n - 1, n, 2 * n + 3):
        np.testing.assert_array_equal(plan.batch(step).rows, walked[step].rows)


def test_the_first_of_every_shape():
    plan = make_plan(speech(800), Budget(frames=10_000), seed=0)
    shapes = [planned.shape for planned in plan.epoch(0)]
    assert [shapes.index(shapes[step]) for step in plan.first_steps()] == plan.first_steps()
    assert {shapes[step] for step in plan.first_steps()} == set(shapes)


def test_eight_shapes_are_enough_for_little_padding():
    plan = make_plan(speech(10_000), Budget(), seed=0)
    assert plan.padding["frames"] < 0.12
    one_shape = make_plan(speech(10_000), Budget(shapes=1), seed=0).padding["frames"]
    assert one_shape is not None and one_shape > 0.4
    assert f"{plan.padding['frames']:.1%} of frames" in describe_plan(plan)
    assert "frames" not in make_plan(text(500), Budget(), seed=0).padding


def test_a_budget_that_holds_no_batch_says_so():
    with pytest.raises(ValueError, match=r"does not hold 8 examples of .* raise the budget"):
        make_plan(speech(100), Budget(frames=500))
    with pytest.raises(ValueError, match="the split is empty"):
        make_plan(speech(0), Budget())
