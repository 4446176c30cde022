"""Pre-decision: the encoder states at which a decision is taken (Ma et al. 2020)."""

from numbers import Integral

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from simuljax.ops import arguments

POOLINGS = ("average", "last")


def fixed_triggers(lengths: Int[ArrayLike, " B"], size: int, step: int) -> Bool[Array, "B size"]:
    """Return True at every `step`-th state and at the last real one."""
    _at_least_one("step", step)
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
    _at_least_one("step", step)
    lengths = _batch_lengths(lengths, size)
    ends = (jnp.arange(_windows(size, step)) + 1) * step
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
    _at_least_one("step", step)
    states = arguments.floats("states", states, "BSD", leading=False)
    batch, size, width = states.shape
    if kind == "last":
        return jnp.take_along_axis(states, window_ends(lengths, size, step)[..., None], axis=1)
    real = jnp.arange(size) < _batch_lengths(lengths, size, batch)
    shape, pad = (batch, _windows(size, step), step), _windows(size, step) * step - size
    members = jnp.where(real[..., None], states, 0)
    members = jnp.pad(members, [(0, 0), (0, pad), (0, 0)]).reshape(*shape, width)
    count = jnp.pad(real, [(0, 0), (0, pad)]).reshape(shape).sum(-1)
    return members.sum(2) / jnp.maximum(count, 1)[..., None].astype(states.dtype)


def place_on_triggers(
    p: Float[ArrayLike, "B *heads T W"], lengths: Int[ArrayLike, " B"], size: int, step: int
) -> Float[Array, "B *heads T size"]:
    """Put p of each window on the window's last real state, and 0 on the others."""
    p = arguments.floats("p", p, "BTW")
    triggers = fixed_triggers(lengths, size, step)
    if p.shape[0] != triggers.shape[0] or p.shape[-1] != _windows(size, step):
        raise ValueError(
            f"p has shape {p.shape}; {triggers.shape[0]} lengths and {size} states in windows of"
            f" {step} need [{triggers.shape[0]}, ..., T, {_windows(size, step)}]."
        )
    triggers = triggers.reshape(triggers.shape[0], *(1,) * (p.ndim - 2), size)
    return jnp.where(triggers, jnp.repeat(p, step, axis=-1)[..., :size], 0)


def _windows(size: int, step: int) -> int:
    return -(-size // step)


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


def _at_least_one(name: str, value: int) -> None:
    if not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} is {value}; it must be a whole number from 1.")
