"""DAR and CAR against their equations, and which side learns from them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax import losses
from tests.oracles import matching, reference
from tests.oracles.checks import assert_close, assert_gradient, everything_finite

OPTIONS = ("across_heads", "temperature", "text_gradient", "columns")
decision_attentive = jax.jit(losses.decision_attentive, static_argnames=OPTIONS)
decision_perplexity = jax.jit(losses.decision_perplexity, static_argnames=OPTIONS[:2])

SPEECH = jnp.float32(reference.SPEECH_ENERGY)[None]
TEXT = jnp.float32(reference.TEXT_ENERGY)[None]


def lengths(speech, text, target):
    return jnp.array([speech]), jnp.array([text]), jnp.array([target])


def by_loop(function, *batch, **options):
    """The oracle for every sentence of the batch."""
    rows = zip(*batch, strict=True)
    return np.array([function(*row, **options) for row in rows])


def random_batch(rng, batch=2, heads=2, targets=4, speech=5, text=3, dtype: type = np.float32):
    """Energies and ragged lengths, in the order of the arguments."""
    return (
        rng.normal(size=(batch, heads, targets, speech)).astype(dtype),
        rng.normal(size=(batch, heads, targets, text)).astype(dtype),
        rng.integers(1, speech + 1, batch),
        rng.integers(1, text + 1, batch),
        rng.integers(1, targets + 1, batch),
    )


@pytest.mark.parametrize(
    ("limits", "options", "expected"),
    [
        ((3, 2, 3), {}, 0.460924),
        ((3, 2, 2), {}, 0.350878),
        ((2, 2, 3), {}, 0.635122),
        ((3, 1, 3), {}, 0.633234),
        ((3, 2, 3), {"across_heads": False}, 0.657122),
    ],
)
def test_reference_values(limits, options, expected):
    value, weight = decision_attentive(SPEECH, TEXT, *lengths(*limits), **options)
    assert_close(value, [expected], 1e-6)
    assert_close(weight, [1], 0)


@pytest.mark.parametrize(("across_heads", "temperature"), [(True, 1.0), (False, 0.05)])
def test_perplexity(across_heads, temperature):
    batch = random_batch(np.random.default_rng(1), batch=3)
    options = {"temperature": temperature, "across_heads": across_heads}
    expected = by_loop(matching.decision_perplexity, *batch, **options)
    actual = decision_perplexity(*batch, **options)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize("columns", ["raw", "unit"])
def test_flow_is_the_gradient_on_both_sides(x64, columns):
    speech, text, *rest = random_batch(np.random.default_rng(8), dtype=np.float64)
    options = {"text_gradient": "flow", "columns": columns}

    def total(s, t):
        return decision_attentive(s, t, *rest, **options)[0].sum()

    assert_gradient(lambda s: total(s, text), lambda s: float(total(s, text)), speech)
    assert_gradient(lambda t: total(speech, t), lambda t: float(total(speech, t)), text)


def test_the_size_of_unit_columns_does_not_count():
    speech, text, *rest = random_batch(np.random.default_rng(9))
    once, _ = decision_attentive(speech, text, *rest, columns="unit")
    louder, _ = decision_attentive(3 * speech, 0.5 * text, *rest, columns="unit")
    np.testing.assert_allclose(louder, once, rtol=1e-5)
    same, _ = decision_attentive(speech, 2 * speech, rest[0], rest[0], rest[2], columns="unit")
    np.testing.assert_allclose(same, 0, atol=1e-6)


def test_columns_of_zeros_have_finite_gradients():
    speech, text, *limits = random_batch(np.random.default_rng(5))
    speech[0, 0, :, 0], text[0, :, :, 0] = 0, 0
    speech[1], text[1] = 0, 0  # and the norm of zero is where a square root has no derivative

    def total(s, t):
        return decision_attentive(s, t, *limits)[0].sum()

    _, gradients = found = jax.jit(jax.value_and_grad(total, (0, 1)))(speech, text)
    assert everything_finite(found) and np.any(gradients[0])
    assert not np.any(gradients[1])  # text is held fixed
    value, _ = decision_attentive(speech, text, *limits)
    expected = by_loop(matching.decision_attentive, speech, text, *limits)
    np.testing.assert_allclose(value, expected, atol=1e-5)


cross_attentive = jax.jit(losses.cross_attentive, static_argnames="direction")


def random_states(rng, batch=2, speech=5, text=3, width=4, dtype: type = np.float32):
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
def test_reference_values_of_car(direction, costs):
    speech, text = reference.SPEECH_STATES, reference.TEXT_STATES
    by_position = matching.position_costs(speech, text, 3, 2, direction)
    np.testing.assert_allclose(by_position, costs, atol=1e-6)
    batch = jnp.float32(speech)[None], jnp.float32(text)[None], jnp.array([3]), jnp.array([2])
    options = {} if direction == "paper" else {"direction": direction}  # it is the default
    value, weight = cross_attentive(*batch, **options)
    assert_close(value, [costs.mean()], 1e-6)
    assert_close(weight, [1], 0)


@pytest.mark.parametrize("direction", ["paper", "fairseq"])
def test_identical_states_cost_nothing_and_have_finite_gradients(direction):
    states, _, limit, _ = random_states(np.random.default_rng(6))
    batch = states, states, limit, limit
    np.testing.assert_allclose(cross_attentive(*batch, direction=direction)[0], 0, atol=1e-6)
    batch[0][0, 0] = 0

    @jax.jit
    @functools.partial(jax.grad, argnums=(0, 1))
    def gradients(speech, text):
        return cross_attentive(speech, text, limit, limit, direction=direction)[0].sum()

    assert everything_finite(gradients(states, states))
