"""Selection probabilities: the probability of a WRITE rather than a READ."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from simuljax.ops import arguments

PADDED_ENERGY = -1e8  # finite: an infinite one would turn into NaN in the gradient
CONVENTIONS = ("stacl", "papi")


def monotonic_energy(
    query: Float[ArrayLike, "*batch T D"],
    key: Float[ArrayLike, "*batch S D"],
    bias: ArrayLike = 0.0,
) -> Float[Array, "*batch T S"]:
    """Return e[i,j] = q[i] . k[j] / sqrt(D) + bias, accumulated in float32."""
    query, key = jnp.asarray(query), jnp.asarray(key)
    arguments.has_axes("query", query, "TD", leading=True)
    if query.shape[:-2] != key.shape[:-2] or query.shape[-1:] != key.shape[-1:]:
        raise ValueError(
            f"key has shape {key.shape} and query {query.shape}; they must share [..., D]."
        )
    accumulate = jnp.promote_types(jnp.result_type(query, key), jnp.float32)
    dots = jnp.einsum("...td,...sd->...ts", query, key, preferred_element_type=accumulate)
    return dots * query.shape[-1] ** -0.5 + bias


def selection_probability(
    energy: Float[ArrayLike, "*batch T S"],
    lengths: Int[ArrayLike, "*prefix"] | None = None,
    *,
    key: PRNGKeyArray | None = None,
    noise: float = 1.0,
) -> Float[Array, "*batch T S"]:
    """Return p = sigmoid(e + n), n ~ Normal(0, noise^2) with a key, and 0 at padded positions.

    The noise of training pushes energies away from 0, so that p is nearly 0 or 1 when decisions
    are taken without it (Raffel et al. 2017).
    """
    energy = arguments.floats("energy", energy, "TS")
    real = arguments.real_positions("lengths", lengths, energy.shape[:-2], energy.shape[-1])
    if key is not None:
        energy = energy + noise * jax.random.normal(key, energy.shape, energy.dtype)
    energy = jnp.where(real[..., None, :], energy, PADDED_ENERGY)
    return jax.nn.sigmoid(energy)


def wait_k_probability(
    k: ArrayLike, targets: int, sources: int, *, convention: str = "stacl"
) -> Float[Array, "T S"]:
    """Return p[i,j] = 1 where j - i >= k - 1, else 0: step i needs i + k decision points.

    Convention `stacl` (Ma et al. 2019): the first write follows k units. `papi` (Papi et al.
    2022): it follows k + 1. k may be traced.
    """
    arguments.one_of("convention", convention, CONVENTIONS)
    if jnp.ndim(k) or not jnp.issubdtype(jnp.result_type(k), jnp.integer):
        raise ValueError(f"k is {k}; it must be one whole number (vmap over several).")
    if arguments.is_known(k) and np.asarray(k) < 1:
        raise ValueError(f"k is {k}; wait-k reads at least 1 unit before it writes.")
    wait = jnp.asarray(k) + (convention == "papi")
    lead = jnp.arange(sources)[None, :] - jnp.arange(targets)[:, None]
    return (lead >= wait - 1).astype(jnp.float32)
