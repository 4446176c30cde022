"""Decisions: the states at which one is taken, and the probability of a WRITE (Ma et al. 2020)."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from simuljax.ops import arguments

POOLINGS = ("average", "last")


def fixed_triggers(lengths: Int[ArrayLike, " B"], size: int, step: int) -> Bool[Array, "B size"]:
    """Return True at every `step`-th state and at the last real one."""
    arguments.at_least_one("step", step)
    lengths = _batch_lengths(lengths, size)
    position = jnp.arange(size)
    return (position < lengths) & (((position + 1) % step == 0) | (position == lengths - 1))


def label_triggers(
    labels: Int[ArrayLike, "B S"], lengths: Int[ArrayLike, " B"] | None
) -> Bool[Array, "B S"]:
    """Return True where the aligned word (or phoneme) changes, and at the last real state.

    State j > 0 triggers when label(j) != label(j-1). Label 0 is silence and carries the label
    before it, so a pause belongs to the word it follows; leading silence has none and does not
    trigger, the onset of the first word after it does.
    """
    labels = jnp.asarray(labels)
    arguments.has_axes("labels", labels, "BS")
    batch, size = labels.shape
    lengths, position = _batch_lengths(lengths, size, batch), jnp.arange(size)
    spoken_at = jax.lax.cummax(jnp.where(labels != 0, position, -1), axis=1)
    carried = jnp.take_along_axis(labels, jnp.maximum(spoken_at, 0), axis=1)
    carried = jnp.where(spoken_at < 0, 0, carried)
    changed = jnp.pad(carried[:, 1:] != carried[:, :-1], [(0, 0), (1, 0)])
    return (position < lengths) & (changed | (position == lengths - 1))


def window_ends(lengths: Int[ArrayLike, " B"], size: int, step: int) -> Int[Array, "B W"]:
    """Return the index of the last real state of each window of `step` states."""
    arguments.at_least_one("step", step)
    lengths = _batch_lengths(lengths, size)
    ends = (jnp.arange(-(-size // step)) + 1) * step
    return jnp.maximum(jnp.minimum(ends, lengths) - 1, 0)


def pool_windows(
    states: Float[ArrayLike, "B S D"],
    lengths: Int[ArrayLike, " B"],
    step: int,
    *,
    kind: str = "average",
) -> Float[Array, "B W D"]:
    """Pool each window into one state: the mean of its real states, or the last of them."""
    arguments.one_of("kind", kind, POOLINGS)
    arguments.at_least_one("step", step)
    states = arguments.floats("states", states, "BSD", leading=False)
    batch, size, width = states.shape
    if kind == "last":
        return jnp.take_along_axis(states, window_ends(lengths, size, step)[..., None], axis=1)
    real = jnp.arange(size) < _batch_lengths(lengths, size, batch)
    windows = -(-size // step)
    shape, pad = (batch, windows, step), windows * step - size
    members = jnp.where(real[..., None], states, 0)
    members = jnp.pad(members, [(0, 0), (0, pad), (0, 0)]).reshape(*shape, width)
    count = jnp.pad(real, [(0, 0), (0, pad)]).reshape(shape).sum(-1)
    return members.sum(2) / jnp.maximum(count, 1)[..., None].astype(states.dtype)


def _batch_lengths(lengths, size: int, batch: int | None = None) -> jax.Array:
    """Return lengths [B] as a column, checked against the padded size and the known batch."""
    if lengths is not None:
        lengths = jnp.asarray(lengths)
        if lengths.ndim != 1 or batch not in (None, lengths.shape[0]):
            expected = "[B]" if batch is None else f"[{batch}]"
            raise ValueError(f"lengths has shape {lengths.shape}, but needs {expected}.")
        batch = lengths.shape[0]
    if batch is None:
        raise ValueError("lengths is None; give [B], or how many there are is not known.")
    return arguments.spread("lengths", lengths, (batch,), size)[:, None]


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
