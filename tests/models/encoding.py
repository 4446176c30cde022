"""What the tests of encoders that normalise over a batch have in common."""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from simuljax.config.model import Width
from tests.oracles.checks import everything_finite, float32

AXIS = "replicas"
TINY = Width(model=8, hidden=12, heads=2, dropout=0.0)
HALF = Width(model=8, hidden=12, heads=2, dropout=0.0, dtype="bfloat16")
FEATURES = 10

# Nearly all the time of these tests is compilation, and half of that is optimisation.
quick_jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def speech(frames: int, rows: int = 4, seed: int = 0) -> np.ndarray:
    return float32(np.random.default_rng(seed).normal(size=(rows, frames, FEATURES)))


def shapes_of(model: nn.Module, x: np.ndarray, lengths: np.ndarray) -> Any:
    """Of the variables that it begins with."""
    key = jax.random.key(0)
    return jax.eval_shape(lambda: model.init(key, x, lengths, None, train=False))


def random_variables(model: nn.Module, x: np.ndarray, lengths: np.ndarray) -> dict[str, Any]:
    """Random parameters and statistics; initial ones have biases of 0 and hide mistakes."""
    made, rng = shapes_of(model, x, lengths), np.random.default_rng(1)
    params, statistics = made["params"], made["statistics"]
    return {
        "params": jax.tree.map(lambda a: float32(rng.normal(0, 0.4, a.shape)), params),
        "statistics": jax.tree.map(lambda a: float32(rng.uniform(0.5, 2, a.shape)), statistics),
    }


@partial(quick_jit, static_argnames="model")
def evaluated(model, variables, features, lengths) -> Any:
    return model.apply(variables, features, lengths, None, train=False)


@partial(quick_jit, static_argnames="model")
def trained(model, variables, features, lengths) -> Any:
    return model.apply(variables, features, lengths, None, train=True, mutable=["statistics"])


def assert_everything_learns(gradients: Any) -> None:
    assert everything_finite(gradients)
    for path, gradient in jax.tree.leaves_with_path(gradients):
        name = jax.tree_util.keystr(path)
        # Softmax does not see a constant: the keys' bias of a Transformer layer cannot learn.
        if "['key']['bias']" not in name:
            assert np.abs(gradient).max() > 1e-5, f"{name} does not learn"


def on_four_devices(gradients: Callable[..., tuple[Any, Any]], *batch: Any) -> tuple[Any, Any]:
    """`gradients(variables, x, lengths)` where each has a quarter: their sum, and statistics."""

    def replica(variables, x, lengths):
        found, statistics = gradients(variables, x, lengths)
        return jax.lax.psum(found, AXIS), statistics

    mesh = Mesh(np.array(jax.devices()[:4]), (AXIS,))
    specs = {"in_specs": (P(), P(AXIS), P(AXIS)), "out_specs": P()}
    many = quick_jit(jax.shard_map(replica, mesh=mesh, check_vma=False, **specs))
    return jax.device_get(many(*batch))


def assert_half_precision_is_near(encoder: Callable[[Width], nn.Module], *batch: Any) -> Any:
    """bfloat16 computes and float32 remembers; the encoding in half precision."""
    variables, x, lengths = batch
    only_float32 = {jnp.dtype(jnp.float32)}
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes_of(encoder(HALF), x, lengths))} == (
        only_float32
    )
    encoded, new = trained(encoder(HALF), variables, x, lengths)
    assert encoded.states.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(new)} == only_float32
    exact, _ = trained(encoder(TINY), variables, x, lengths)
    assert np.abs(exact.states - encoded.states.astype(np.float32)).mean() < 0.05
    return encoded
