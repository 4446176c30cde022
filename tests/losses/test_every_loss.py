"""What holds for every loss: padding, company, transformations, bad numbers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from simuljax import losses
from tests.losses.examples import LOSSES, alone, batch, differentiable, padded
from tests.oracles.checks import everything_finite

every_loss = pytest.mark.parametrize("name", list(LOSSES))


@every_loss
def test_alone_equals_in_a_ragged_batch(name):
    loss = LOSSES[name]
    arrays, lengths = batch(loss)
    values, weights = loss.call(*arrays, *lengths)
    assert values.shape == weights.shape == (4,)
    assert values.dtype == weights.dtype == np.float32
    for row in (1, 3):
        cut, own = alone(loss, arrays, lengths, row)
        value, weight = loss.call(*cut, *own)
        np.testing.assert_allclose(value[0], values[row], rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(weight[0], weights[row])


@every_loss
@pytest.mark.parametrize("garbage", [1e3, np.nan, np.inf, -np.inf])
def test_padding_has_no_influence(name, garbage):
    loss = LOSSES[name]
    arrays, lengths = batch(loss)
    limits = dict(zip(loss.lengths, lengths, strict=True))
    loud = [
        np.where(padded(axes, limits), np.asarray(7 if axes == "bt" else garbage, a.dtype), a)
        for axes, a in zip(loss.arrays, arrays, strict=True)
    ]
    expected, actual = loss.call(*arrays, *lengths)[0], loss.call(*loud, *lengths)[0]
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)
    found = loss.gradients(*loud, *lengths)
    for i, gradient in zip(differentiable(loss.arrays), found, strict=True):
        assert everything_finite(gradient)
        assert not np.any(np.asarray(gradient)[padded(loss.arrays[i], limits)])


@every_loss
def test_a_row_of_nothing_but_padding(name):
    loss = LOSSES[name]
    arrays, lengths = batch(loss)
    lengths = [np.where(np.arange(4) == 1, 0, length) for length in lengths]
    value, weight = loss.call(*arrays, *lengths)
    assert value[1] == weight[1] == 0
    for gradient in loss.gradients(*arrays, *lengths):
        assert everything_finite(gradient)
        assert not np.any(gradient[1])


@every_loss
@pytest.mark.parametrize("scale", [0.0, 1e4])
def test_finite_for_zeros_and_large_arrays(name, scale):
    loss = LOSSES[name]
    arrays, lengths = batch(loss, scale=scale)
    assert everything_finite((loss.call(*arrays, *lengths), loss.gradients(*arrays, *lengths)))


@every_loss
def test_bfloat16_is_accumulated_in_float32(name):
    loss = LOSSES[name]
    arrays, lengths = batch(loss)
    low = [jax.numpy.asarray(a, jax.numpy.bfloat16) if a.dtype == np.float32 else a for a in arrays]
    upcast = [a.astype(np.float32) if a.dtype == jax.numpy.bfloat16 else a for a in low]
    value, _ = loss.call(*low, *lengths)
    assert value.dtype == np.float32
    np.testing.assert_array_equal(value, loss.call(*upcast, *lengths)[0])


CHOSEN = ["cross entropy", "DAR", "CAR", "DAL"]
SHARED = PartitionSpec("data")


@pytest.fixture(scope="module", params=CHOSEN)
def loss(request):
    return LOSSES[request.param]


def arguments(loss):
    arrays, lengths = batch(loss)
    return tuple(jnp.asarray(x) for x in (*arrays, *lengths))


def differentiated(call):
    """arguments -> (values, weights), gradient of the summed values for the first argument."""

    def total(*arguments):
        value, weight = call(*arguments)
        return value.sum(), (value, weight)

    gradient = jax.grad(total, has_aux=True)
    return lambda *arguments: gradient(*arguments)[::-1]


@pytest.fixture(scope="module")
def expected(loss):
    return jax.jit(differentiated(loss.call))(*arguments(loss))


def assert_same(actual, expected):
    compare = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
    jax.tree.map(lambda x, y: compare(np.asarray(x), np.asarray(y)), actual, expected)


@pytest.mark.slow
def test_vmap(loss, expected):
    rows = tuple(x[:, None] for x in arguments(loss))
    result = jax.jit(jax.vmap(differentiated(loss.call)))(*rows)
    assert_same(jax.tree.map(lambda x: x[:, 0], result), expected)


@pytest.mark.slow
def test_pmap(loss, expected):
    rows = (x[:, None] for x in arguments(loss))
    result = jax.block_until_ready(jax.pmap(differentiated(loss.call))(*rows))
    assert_same(jax.tree.map(lambda x: np.asarray(x)[:, 0], result), expected)


def test_shard_map(loss, expected):
    mesh = Mesh(np.array(jax.devices()[:4]), ("data",))
    call = differentiated(loss.call)
    step = jax.shard_map(call, mesh=mesh, in_specs=SHARED, out_specs=SHARED)
    assert_same(jax.block_until_ready(jax.jit(step)(*arguments(loss))), expected)


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
