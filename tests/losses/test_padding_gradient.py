"""What lies in padding, finite or not, reaches neither a loss nor its gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax import losses

ONE, TWO, THREE = (jnp.array([n]) for n in (1, 2, 3))


def given(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape), jnp.float32)


STEPS, STATES, ENERGY = given(1, 2, 3), given(1, 4, 3), given(1, 2, 3, 2)
# Each is of [..., 2, 3] with a padded second position: of steps, of speech, of text.
CASES = {
    "cross-entropy": lambda x: losses.label_smoothed_cross_entropy(x, jnp.zeros((1, 2), int), ONE),
    "student": lambda x: losses.online_distillation(x, STEPS, ONE),
    "teacher": lambda x: losses.online_distillation(STEPS + 0 * x[:, :1], x, ONE),
    "CAR, speech": lambda x: losses.cross_attentive(x, STATES, ONE, jnp.array([4])),
    "CAR, text": lambda x: losses.cross_attentive(STATES * x[:, :1], x, jnp.array([4]), ONE),
    "DAR, speech": lambda x: losses.decision_attentive(
        jnp.stack([x, x], 1).swapaxes(-1, -2), ENERGY, ONE, TWO, THREE
    ),
    "DAR, text": lambda x: losses.decision_attentive(
        ENERGY * x[:, None, :1].swapaxes(-1, -2),
        jnp.stack([x, x], 1).swapaxes(-1, -2),
        TWO,
        ONE,
        THREE,
    ),
}


TOTALS = {
    name: jax.jit(jax.value_and_grad(lambda x, case=case: case(x)[0].sum()))
    for name, case in CASES.items()
}


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("case", CASES)
def test_padding_reaches_nothing(case, garbage):
    clean, filled = np.array(given(1, 2, 3)), np.array(given(1, 2, 3))
    clean[0, 1], filled[0, 1] = 0.0, garbage
    value, gradient = TOTALS[case](clean)
    dirty = TOTALS[case](filled)
    np.testing.assert_allclose(dirty[0], value, rtol=1e-6)
    np.testing.assert_allclose(dirty[1][0, 0], gradient[0, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(dirty[1][0, 1], 0)
