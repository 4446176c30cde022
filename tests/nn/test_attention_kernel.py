"""cuDNN's attention gives what plain attention in float32 gives, to half precision; on CUDA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.nn.attention import attend_masked

ON_CUDA = jax.default_backend() == "gpu"


@pytest.mark.skipif(not ON_CUDA, reason="cuDNN's kernel needs a CUDA device")
@pytest.mark.parametrize("targets, sources", [(48, 304), (24, 152)])
def test_masked_attention_and_its_gradient(targets: int, sources: int) -> None:
    rows, heads, width = 96, 4, 64
    keys = jax.random.split(jax.random.key(0), 4)
    query = jax.random.normal(keys[0], (rows, targets, heads, width))
    key, value = (jax.random.normal(k, (rows, sources, heads, width)) for k in keys[1:3])
    cotangent = jax.random.normal(keys[3], query.shape)
    first = np.random.default_rng(0).integers(0, sources - 1, (rows, 1))
    position = np.arange(sources)
    mask = jnp.asarray((position >= first) & (position < first + 200))[:, None, None]

    def attend(dtype: str, given: tuple[jax.Array, ...]) -> list[jax.Array]:
        def loss(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
            attended = attend_masked(q, k, v, mask).astype(jnp.float32)
            return (attended * cotangent).sum(), attended

        cast = [x.astype(dtype) for x in given]
        gradients, attended = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))(*cast)
        return [attended, *(g.astype(jnp.float32) for g in gradients)]

    given = tuple(x.astype(jnp.bfloat16).astype(jnp.float32) for x in (query, key, value))
    with jax.default_matmul_precision("highest"):
        wanted = attend("float32", given)
    for found, exact in zip(attend("bfloat16", given), wanted, strict=True):
        assert float(jnp.linalg.norm(found - exact) / jnp.linalg.norm(exact)) < 0.02
