"""Bad input is refused with a message that names the argument."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import config

from simuljax import ops

P = jnp.full((2, 3, 4), 0.5)
DELAYS = jnp.ones((2, 3))
TWO = jnp.array([2, 2])

WRONG_SHAPES = {
    "p": lambda: ops.expected_alignment(jnp.ones(4)),
    "alpha": lambda: ops.preserve_mass(jnp.ones(4)),
    "alpha ": lambda: ops.expected_soft_attention(jnp.ones(4), jnp.ones(4)),
    "energy": lambda: ops.expected_soft_attention(P, jnp.ones((2, 3, 5))),
    "alpha  ": lambda: ops.expected_delays(jnp.ones(4)),
    "positions": lambda: ops.expected_delays(P, jnp.arange(5)),
    "energy ": lambda: ops.selection_probability(jnp.ones(4)),
    "key": lambda: ops.monotonic_energy(jnp.ones((3, 8)), jnp.ones((4, 6)), 0.0),
    "delays": lambda: ops.average_lagging(jnp.array(1.0), jnp.array(1), jnp.array(1)),
    "labels": lambda: ops.label_triggers(jnp.array([1, 2, 3]), jnp.array([3])),
    "states": lambda: ops.pool_windows(jnp.ones((4, 8)), jnp.array([4]), 2),
    "value": lambda: ops.linear_recurrence(jnp.ones(4), jnp.ones(5)),
}


def with_lengths(lengths):
    """Every op that takes lengths of a [2,3,4] array."""
    return [
        lambda: ops.expected_alignment(P, lengths),
        lambda: ops.expected_alignment(P, lengths, method="fused"),
        lambda: ops.preserve_mass(P, lengths),
        lambda: ops.expected_soft_attention(P, P, lengths),
        lambda: ops.expected_soft_attention(P, P, lengths, chunk=2),
        lambda: ops.selection_probability(P, lengths),
    ]


@pytest.fixture(autouse=True)
def annotations_unchecked():
    """Annotations are checked in tests only; users meet the functions' own messages."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("name", list(WRONG_SHAPES))
def test_wrong_shapes(name):
    with pytest.raises(ValueError, match=rf"\b{name.strip()}\b"):
        WRONG_SHAPES[name]()


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 1), (1, 2)])
@pytest.mark.parametrize("op", range(6))
def test_lengths_that_are_no_prefix(op, shape):
    with pytest.raises(ValueError, match=r"\blengths\b"):
        with_lengths(jnp.ones(shape, int))[op]()


@pytest.mark.parametrize("op", range(6))
def test_lengths_beyond_the_source(op):
    with pytest.raises(ValueError, match=r"\blengths\b"):
        with_lengths(jnp.array([4, 5]))[op]()
    with_lengths(jnp.array([4, 1]))[op]()


@pytest.mark.parametrize(
    "op",
    [
        lambda: ops.fixed_triggers(jnp.array([5]), 4, 2),
        lambda: ops.label_triggers(jnp.ones((1, 4), int), jnp.array([5])),
        lambda: ops.label_triggers(jnp.ones((1, 4), int), TWO),
        lambda: ops.pool_windows(jnp.ones((1, 4, 2)), jnp.array([5]), 2),
        lambda: ops.window_ends(jnp.array([5]), 4, 2),
    ],
)
def test_lengths_of_triggers_and_windows(op):
    with pytest.raises(ValueError, match=r"\blengths\b"):
        op()


@pytest.mark.parametrize(
    "metric", [ops.average_lagging, ops.differentiable_average_lagging, ops.average_proportion]
)
def test_lengths_of_delays(metric):
    with pytest.raises(ValueError, match="source_length"):
        metric(DELAYS, jnp.ones(3, int), TWO)
    with pytest.raises(ValueError, match="target_length"):
        metric(DELAYS, TWO, jnp.ones(3, int))
    with pytest.raises(ValueError, match="target_length"):
        metric(DELAYS, TWO, jnp.array([3, 4]))


@pytest.mark.parametrize(
    ("call", "choices"),
    [
        (
            lambda: ops.expected_alignment(P, method="fast"),
            ["exact", "closed_form", "fused", "auto"],
        ),
        (lambda: ops.wait_k_probability(1, 2, 3, convention="mine"), ["stacl", "papi"]),
        (
            lambda: ops.pool_windows(jnp.ones((1, 4, 2)), jnp.array([4]), 2, kind="max"),
            ["average", "last"],
        ),
    ],
)
def test_unknown_choices_are_listed(call, choices):
    with pytest.raises(ValueError) as error:
        call()
    assert all(choice in str(error.value) for choice in choices)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("chunk", lambda: ops.expected_soft_attention(P, P, chunk=0)),
        ("step", lambda: ops.fixed_triggers(TWO, 4, 0)),
        ("step", lambda: ops.pool_windows(jnp.ones((2, 4, 2)), TWO, 0)),
    ],
)
def test_sizes_that_are_not_positive(name, call):
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        call()


@pytest.mark.parametrize("method", ["exact", "fused", "closed_form"])
@pytest.mark.parametrize("jitted", [False, True])
def test_nan_probabilities_in_debug_mode(method, jitted):
    p = np.full((2, 3), 0.5, np.float32)
    p[1, 1] = np.nan

    def align(x):
        return ops.expected_alignment(x, method=method)

    with jax.debug_nans(True):
        align = jax.jit(align) if jitted else align
        jax.block_until_ready(align(np.full_like(p, 0.5)))
        with pytest.raises(Exception, match=r"(?is)(\bp\b.*\bnan\b|\bnan\b.*\bp\b)"):
            jax.block_until_ready(align(p))
