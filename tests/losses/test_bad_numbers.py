"""Bad numbers show: none turns into a plausible loss, and padding cannot bring any in."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax import losses

ONE = jnp.array([1])

decision_attentive, cross_attentive = map(
    jax.jit, (losses.decision_attentive, losses.cross_attentive)
)


@jax.jit
@jax.value_and_grad
def dar(speech, text, lengths):
    return losses.decision_attentive(speech, text, *lengths)[0].sum()


def energies(heads=2, targets=3, sources=4, seed=0):
    return jax.random.normal(jax.random.key(seed), (1, heads, targets, sources))


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_dar_and_car_show_nan(who, bad):
    both = [energies(), energies(seed=1)]
    both[who] = both[who].at[0, 1, 2, 0].set(bad)
    assert not np.isfinite(decision_attentive(both[0], both[1], 4 * ONE, 4 * ONE, 3 * ONE)[0])
    states, three = [both[0][0], both[1][0]], jnp.array([3, 3])
    assert not np.isfinite(cross_attentive(states[0], states[1], three, three)[0]).all()


@pytest.mark.parametrize("scale", [1e-18, 1e-15, 1e-13, 1e-6, 1e6])
def test_dar_gradient_is_finite_at_any_scale(scale):
    _, gradient = dar(scale * energies(), energies(seed=1), (3 * ONE,) * 3)
    assert np.isfinite(scale * gradient).all()


@pytest.mark.parametrize("target", [-1, 4, -5])
def test_a_target_outside_the_vocabulary_is_nan(target):
    logits = jnp.zeros((1, 1, 4))
    assert np.isnan(losses.label_smoothed_cross_entropy(logits, jnp.array([[target]]), ONE)[0])


def test_a_masked_token_has_probability_0_and_that_is_all():
    logits = jnp.array([[[0.0, 0.0, -jnp.inf]]])
    plain = losses.label_smoothed_cross_entropy(logits, jnp.array([[0]]), ONE, smoothing=0.0)
    distilled = losses.online_distillation(logits, logits, ONE)
    assert float(plain[0][0]) == pytest.approx(np.log(2))
    assert float(distilled[0][0]) == pytest.approx(np.log(2))


def test_lambda_may_be_traced_and_a_lone_branch_counts_in_full():
    branch = losses.Branch(
        logits=jnp.zeros((1, 2, 3)),
        target_length=2 * ONE,
        state_length=4 * ONE,
        delays=jnp.array([[[1.0, 3.0]]]),
    )
    targets = jnp.array([[0, 1]])

    @jax.jit
    def total(weight):
        objective = losses.JointObjective().terms()
        terms = losses.term_values(objective, losses.Outputs(targets=targets, speech=branch))
        weights = {term.name: term.weight for term in objective} | {"st_latency": weight}
        return losses.combine(losses.sum_terms(terms), weights).total

    assert float(total(0.0)) == pytest.approx(np.log(3), rel=1e-6)
    assert float(total(0.5)) == pytest.approx(np.log(3) + 0.5 * 1.0 / 2, rel=1e-6)
