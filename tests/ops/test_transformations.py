"""The ops under vmap, jit and shard_map; under pmap, an update is in tests/train."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from simuljax import ops
from tests.oracles.checks import probabilities

LENGTHS = np.array([5, 3, 4, 5, 1, 2, 5, 5])
SHARED = PartitionSpec("data")


def chain(p, lengths):
    """Alignment, mass, attention and lag: everything between the probabilities and a loss."""
    alpha = ops.preserve_mass(ops.expected_alignment(p, lengths), lengths)
    beta = ops.expected_soft_attention(alpha, jnp.log1p(p), lengths)
    chunk = ops.expected_soft_attention(alpha, jnp.log1p(p), lengths, chunk=3)
    targets = jnp.full_like(lengths, p.shape[-2])
    lag = ops.differentiable_average_lagging(ops.expected_delays(alpha), lengths, targets)
    return jnp.stack([alpha, beta, chunk]) + lag[..., None, None]


def fused(p, lengths):
    return ops.expected_alignment(p, lengths, method="fused")


def differentiated(op):
    """p, lengths -> (sum of squares, gradient): every output matters to every number."""
    return jax.value_and_grad(lambda p, lengths: (op(p, lengths) ** 2).sum())


def batch():
    return jnp.asarray(probabilities(np.random.default_rng(0), (8, 2, 3, 5))), jnp.asarray(LENGTHS)


def assert_same(actual, expected):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=0, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("op", [chain, fused], ids=["exact", "fused"])
def test_vmap_and_shard_map(op):
    """The gradient of a sum over devices is that of one device, not a multiple of it."""
    alone, gradients = jax.jit(differentiated(op))(*batch())
    mesh = Mesh(np.array(jax.devices()[:4]), ("data",))

    def step(p, lengths):
        value, gradient = differentiated(op)(p, lengths)
        return jax.lax.psum(value, "data"), gradient

    out_specs = (PartitionSpec(), SHARED)
    mapped = jax.shard_map(step, mesh=mesh, in_specs=(SHARED, SHARED), out_specs=out_specs)
    value, gradient = jax.block_until_ready(jax.jit(mapped)(*batch()))
    assert_same(gradient, gradients)
    np.testing.assert_allclose(value, alone, rtol=1e-5)
    if op is fused:
        heads = jax.vmap(differentiated(fused), in_axes=(0, None))
        assert_same(jax.jit(jax.vmap(heads))(*batch())[1], gradients)


def test_lengths_may_be_constants_of_a_compiled_function():
    """Lengths that are known while tracing are checked there, and the check must not be traced."""
    p, lengths = batch()

    def aligned(p, lengths):
        return ops.preserve_mass(ops.expected_alignment(p, lengths), lengths)

    expected = jax.jit(aligned)(p, lengths)
    for constant in (LENGTHS, lengths):
        assert_same(jax.jit(lambda x: aligned(x, constant))(p), expected)  # noqa: B023


@pytest.mark.parametrize("method", [pytest.param("exact", marks=pytest.mark.slow), "fused"])
def test_shared_probabilities_and_own_lengths_under_shard_map(method):
    """What varies over devices through the lengths alone still gets its whole gradient."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("d",))
    spec = jax.sharding.PartitionSpec
    p, lengths = jnp.full((3, 4), 0.4), jnp.array([2, 4])

    def on_device(p, lengths):
        alpha = ops.expected_alignment(p, lengths[0], method=method)
        return jax.lax.psum((alpha * jnp.arange(1, 5)).sum(), "d")

    sharded = jax.shard_map(on_device, mesh=mesh, in_specs=(spec(), spec("d")), out_specs=spec())
    both = jax.vmap(lambda n, p: (ops.expected_alignment(p, n) * jnp.arange(1, 5)).sum(), (0, None))
    expected = jax.jit(jax.grad(lambda p: both(lengths, p).sum()))(p)
    np.testing.assert_allclose(jax.jit(jax.grad(sharded))(p, lengths), expected, rtol=1e-5)


@pytest.mark.parametrize(("who", "chunk"), [("alpha", None), ("energy", 2)])
def test_soft_attention_when_one_input_varies_under_shard_map(who, chunk):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("d",))
    own, shared = PartitionSpec("d"), PartitionSpec()
    varying = jax.random.uniform(jax.random.key(0), (2, 3, 4))
    constant = jax.random.uniform(jax.random.key(1), (3, 4))

    def attend(varying, constant):
        alpha, energy = (varying, constant) if who == "alpha" else (constant, varying)
        return ops.expected_soft_attention(alpha, energy, chunk=chunk)

    sharded = jax.shard_map(
        lambda x, y: attend(x[0], y)[None], mesh=mesh, in_specs=(own, shared), out_specs=own
    )
    expected = jax.jit(jax.vmap(attend, (0, None)))(varying, constant)
    np.testing.assert_allclose(jax.jit(sharded)(varying, constant), expected, atol=1e-6)


@pytest.mark.parametrize("method", ["exact", "fused"])
def test_eager_calls_compile_once(method):
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
    )
    p = jnp.full((2, 3, 11), 0.3)
    call = lambda: ops.expected_soft_attention(  # noqa: E731
        ops.expected_alignment(p, method=method), p, chunk=3
    )
    call()
    assert compiled, "the control: the first call compiles"
    compiled.clear()
    call()
    assert not compiled
