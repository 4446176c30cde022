"""The fused kernel as a compiled module: one kernel forward, one backward, on CUDA.

Lowering for a CUDA device needs none, so the count is held everywhere; running it is only
possible where there is one.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax import ops
from simuljax.ops.alignment_kernel import fused_alignment
from tests.oracles.alignment import expected_alignment as oracle
from tests.oracles.alignment import preserve_mass

KERNEL = "custom_call @__gpu$xla.gpu.triton"
ON_CUDA = jax.default_backend() == "gpu"
needs_cuda = pytest.mark.skipif(not ON_CUDA, reason="needs a CUDA device")


def lower_for_cuda(function, *shapes):
    device = jax.sharding.AbstractDevice(device_kind="NVIDIA H200", num_cores=None, platform="gpu")
    mesh = jax.sharding.AbstractMesh((), (), abstract_device=device)
    with jax.sharding.use_abstract_mesh(mesh):
        return jax.jit(function).trace(*shapes).lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize("preserve", [False, True])
@pytest.mark.parametrize("shape", [(3, 1, 1), (1, 200, 333)])
def test_one_kernel_forward_and_one_backward(shape, preserve):
    p, lengths = jax.ShapeDtypeStruct(shape, jnp.float32), jax.ShapeDtypeStruct(shape[:1], "int32")

    def forward(p, lengths):
        return fused_alignment(p, lengths, False, preserve)

    def both(p, lengths, cotangent):
        return jax.vjp(lambda p: forward(p, lengths), p)[1](cotangent)

    assert lower_for_cuda(forward, p, lengths).count(KERNEL) == 1
    assert lower_for_cuda(both, p, lengths, p).count(KERNEL) == 2


def test_auto_says_what_it_takes_and_why():
    choice = ops.explain_method("auto", (8, 64, 64))
    assert choice.method == ("fused" if ON_CUDA else "exact")
    assert ("CUDA" in choice.reason) and ops.explain_method("fused", (1, 1)).reason == "asked for"


@needs_cuda
@pytest.mark.parametrize(
    "shape", [(4, 64, 64), (4, 1, 7), (4, 3, 1), (4, 200, 333), (2, 128, 1500)]
)
@pytest.mark.parametrize("deviation", [1.0, 8.0])
@pytest.mark.parametrize("align", [ops.expected_alignment, ops.preserved_alignment])
def test_the_kernel_on_the_device(shape, deviation, align):
    key, cotangent_key = jax.random.split(jax.random.key(shape[-1]))
    p = jax.nn.sigmoid(deviation * jax.random.normal(key, shape))
    p = jnp.where(p < 0.02, 0, jnp.where(p > 0.98, 1, p))
    lengths = jnp.maximum(shape[-1] - 5 * jnp.arange(shape[0]), 1)
    cotangent = jax.random.normal(cotangent_key, shape)

    def both(method):
        alpha, pull = jax.vjp(lambda p: align(p, lengths, method=method), p)
        return alpha, pull(cotangent)[0]

    (alpha, gradient), (_, expected) = both("fused"), both("exact")
    truth = np.stack([oracle(np.asarray(x), int(n)) for x, n in zip(p, lengths, strict=True)])
    if align is ops.preserved_alignment:
        rows = zip(truth, lengths, strict=True)
        truth = np.stack([preserve_mass(row, int(n)) for row, n in rows])
    assert np.abs(alpha - truth).max() <= 2e-6
    assert np.abs(gradient - expected).max() <= 1e-5 * np.abs(expected).max()


@needs_cuda
@pytest.mark.parametrize("check_vma", [True, False])
def test_transformations_on_the_device(check_vma):
    p = jax.nn.sigmoid(jax.random.normal(jax.random.key(0), (2, 3, 5, 9)))
    lengths = jnp.array([9, 4])

    def total(p, lengths):
        return (ops.expected_alignment(p, lengths, method="fused") ** 2).sum()

    expected = jax.grad(total)(p, lengths)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
    spec = jax.sharding.PartitionSpec("d")
    sharded = jax.shard_map(
        jax.grad(total), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=check_vma
    )
    for transformed in (
        jax.jit(sharded),
        jax.vmap(jax.grad(total)),
        jax.grad(jax.checkpoint(total)),
    ):
        np.testing.assert_allclose(transformed(p, lengths), expected, atol=1e-6)
    np.testing.assert_allclose(jax.pmap(jax.grad(total))(p[None], lengths[None])[0], expected)
