"""The count of products against sums done by hand."""

import functools

import jax
import jax.numpy as jnp
import pytest

from simuljax.config.model import Monotonic
from simuljax.train.flops import forward_flops, peak_flops
from simuljax.train.loop import compile_update
from simuljax.train.step import CompiledUpdate, Replicas
from tests.train import runs, small


def test_products_and_convolutions() -> None:
    left, right = jnp.ones((5, 3, 4)), jnp.ones((5, 4, 7))
    assert forward_flops(jax.lax.batch_matmul, left, right) == 2 * 5 * 3 * 4 * 7
    image, kernel = jnp.ones((2, 6, 10)), jnp.ones((8, 6, 3))
    convolve = lambda x, k: jax.lax.conv(x, k, (2,), "SAME")  # noqa: E731
    assert forward_flops(convolve, image, kernel) == 2 * (2 * 8 * 5) * (6 * 3)


def test_loops_count_as_often_as_they_run() -> None:
    def layers(x):
        body = jax.checkpoint(lambda x, w: (jnp.tanh(x @ w), None))
        return jax.lax.scan(body, x, jnp.ones((6, 4, 4)))[0]

    one = 2 * 3 * 4 * 4
    assert forward_flops(layers, jnp.ones((3, 4))) == 6 * one
    assert forward_flops(jax.jit(jax.vmap(layers)), jnp.ones((2, 3, 4))) == 2 * 6 * one
    choice = lambda x: jax.lax.cond(x.sum() > 0, layers, lambda x: x, x)  # noqa: E731
    assert forward_flops(choice, jnp.ones((3, 4))) == 6 * one


def test_an_update_counts_all_devices_and_all_batches(driver: CompiledUpdate) -> None:
    few, many = (small.batch(rows=rows, seconds=0.1) for rows in (4, 8))
    assert driver.flops([many]) == pytest.approx(2 * driver.flops([few]), rel=0.01)
    assert driver.flops([few, many]) == driver.flops([few]) + driver.flops([many])
    width, tokens = runs.MODEL.width, 4 * 7
    layer = 4 * width.model**2 + 2 * width.model * width.hidden  # at the least, of the decoder
    assert driver.flops([few]) > 6 * layer * tokens


@pytest.mark.slow
def test_what_is_only_watched_does_not_count() -> None:
    """DAR's perplexity has products of its own, which no update makes."""
    model = small.translator(monotonic=Monotonic(attention="hard"))
    driver = compile_update(model, [runs.training()], small.HEARD)
    spread, few = Replicas(mesh=driver.replicas.mesh, parallelism="shard_map"), small.batch()
    terms, watched = (
        forward_flops(spread.wrap(each), driver.template(), few)
        for each in (functools.partial(driver.model.validate, watch=False), driver.model.validate)
    )
    assert watched > terms
    assert driver.flops([few]) == 3 * terms * driver.replicas.count


def test_peaks() -> None:
    peaks = {
        "NVIDIA H100 80GB HBM3": 989e12,
        "NVIDIA A100-SXM4-40GB": 312e12,
        "Tesla V100-SXM2-16GB": 125e12,
        "TPU v5 lite": 197e12,
        "TPU v5p": 459e12,
        "TPU v5": 459e12,
        "cpu": None,
    }
    assert {kind: peak_flops(kind) for kind in peaks} == peaks
