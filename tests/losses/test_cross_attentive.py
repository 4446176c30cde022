"""CAR against its equations, in both directions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simuljax import losses
from tests.oracles import matching, reference
from tests.oracles.checks import CHEAP, assert_close, assert_gradient, everything_finite

cross_attentive = jax.jit(losses.cross_attentive, static_argnames="direction")

DIRECTIONS = ["paper", "fairseq"]
both_directions = pytest.mark.parametrize("direction", DIRECTIONS)


def by_loop(speech, text, speech_length, text_length, direction):
    rows = zip(speech, text, speech_length, text_length, strict=True)
    return np.array([matching.cross_attentive(*row, direction=direction) for row in rows])


def random_batch(rng, batch=2, speech=5, text=3, width=4, dtype: type = np.float32):
    """States and ragged lengths, in the order of the arguments."""
    return (
        rng.normal(size=(batch, speech, width)).astype(dtype),
        rng.normal(size=(batch, text, width)).astype(dtype),
        rng.integers(1, speech + 1, batch),
        rng.integers(1, text + 1, batch),
    )


@pytest.mark.parametrize(
    ("direction", "costs"), [("paper", reference.PAPER_COSTS), ("fairseq", reference.FAIRSEQ_COSTS)]
)
def test_reference_values(direction, costs):
    speech, text = reference.SPEECH_STATES, reference.TEXT_STATES
    by_position = matching.position_costs(speech, text, 3, 2, direction)
    np.testing.assert_allclose(by_position, costs, atol=1e-6)
    batch = jnp.float32(speech)[None], jnp.float32(text)[None], jnp.array([3]), jnp.array([2])
    options = {} if direction == "paper" else {"direction": direction}  # it is the default
    value, weight = cross_attentive(*batch, **options)
    assert_close(value, [costs.mean()], 1e-6)
    assert_close(weight, [1], 0)


@given(
    seed=st.integers(0, 999),
    sizes=st.sampled_from([(1, 1, 1, 1), (2, 5, 3, 4), (3, 2, 6, 8)]),
    direction=st.sampled_from(DIRECTIONS),
)
@CHEAP
def test_random_shapes(seed, sizes, direction):
    batch = random_batch(np.random.default_rng(seed), *sizes)
    value, weight = cross_attentive(*batch, direction=direction)
    np.testing.assert_allclose(value, by_loop(*batch, direction), rtol=1e-5, atol=1e-5)
    assert_close(weight, np.ones(sizes[0]), 0)


@functools.partial(jax.jit, static_argnames="direction")
def gradients(batch, direction):
    def total(speech, text):
        return cross_attentive(speech, text, *batch[2:], direction=direction)[0].sum()

    return jax.grad(total, (0, 1))(*batch[:2])


@both_directions
def test_one_side_learns(direction):
    to_speech, to_text = gradients(random_batch(np.random.default_rng(1)), direction)
    assert (np.any(to_speech), np.any(to_text)) == (direction == "paper", direction == "fairseq")


@both_directions
def test_finite_differences(x64, direction):
    *states, one, other = random_batch(np.random.default_rng(3), dtype=np.float64)
    learner = DIRECTIONS.index(direction)

    def given(x):
        return [x if i == learner else states[i] for i in range(2)] + [one, other]

    assert_gradient(
        lambda x: cross_attentive(*given(x), direction=direction)[0].sum(),
        lambda x: by_loop(*given(x), direction=direction).sum(),
        states[learner],
    )


@both_directions
def test_identical_states_cost_nothing_and_have_finite_gradients(direction):
    states, _, limit, _ = random_batch(np.random.default_rng(6))
    batch = states, states, limit, limit
    np.testing.assert_allclose(cross_attentive(*batch, direction=direction)[0], 0, atol=1e-6)
    batch[0][0, 0] = 0
    assert everything_finite(gradients(batch, direction))
