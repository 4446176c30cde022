"""Small training states whose content follows from their step, and comparison bit by bit."""

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax


@flax.struct.dataclass
class State:
    step: jax.Array
    params: dict
    statistics: dict
    optimiser: optax.OptState


def state_of(step: int, *, vocabulary: int = 11, rows: int = 400) -> State:
    """The state that a run has at a step; every element depends on the step."""
    generator = np.random.default_rng(step)
    params = {
        "embedding": {"embedding": jnp.asarray(generator.normal(size=(vocabulary, 4)), "float32")},
        "encoder": {
            "kernel": jnp.asarray(generator.normal(size=(rows, 30)), jnp.bfloat16),
            "steps": jnp.full((3,), step, jnp.int32),
            "odd": jnp.asarray([np.nan, -0.0, np.inf, 1e-45, step], jnp.float32),
        },
    }
    rate = optax.linear_schedule(0.0, 1e-3, 10)
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate))
    return State(
        step=jnp.int32(step),
        params=params,
        statistics={"norm": {"mean": jnp.full((3,), step, jnp.float32)}},
        optimiser=optimiser.init(params),
    )


def assert_same_bits(got: object, wanted: object) -> None:
    """The same structure, shapes, dtypes and bits."""
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
