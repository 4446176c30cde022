"""Connectionist temporal classification (Graves et al. 2006) of a transcript, per example."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from simuljax.losses.cross_entropy import PerExample
from simuljax.losses.ctc_paths import log_likelihood
from simuljax.ops.recurrence import vary_alike


def ctc(
    logits: Float[Array, "B S C"],
    state_length: Int[Array, " B"],
    labels: Int[Array, "B L"],
    label_length: Int[Array, " B"],
) -> PerExample:
    """Return -log P of all paths that collapse to the labels, and the label count.

    The blank is the last class. An example whose labels do not fit into its states has no path:
    its value and its weight are 0.
    """
    with_blanks, skip = _between_blanks(labels, logits.shape[-1] - 1)
    log_probs = jax.nn.log_softmax(logits.astype(jnp.float32))
    emission = jnp.take_along_axis(log_probs, with_blanks[:, None], 2)
    possible = fits(state_length, labels, label_length)
    # What has no path is given one, so that its gradient, which does not count, is a number.
    states = jnp.where(possible, state_length, logits.shape[1])
    last = jnp.where(possible, 2 * label_length, 0)
    emission, skip, states, last = vary_alike(emission, skip, states, last)
    value = -log_likelihood(emission, skip, states, last)
    value = jnp.where(possible, value, 0)
    return value, jnp.where(possible, label_length, 0).astype(jnp.float32)


def _between_blanks(labels, blank):
    """Return labels between blanks, and where a path may skip a blank."""
    spaced = jnp.stack([jnp.full_like(labels, blank), labels], 2).reshape(len(labels), -1)
    with_blanks = jnp.pad(spaced, ((0, 0), (0, 1)), constant_values=blank)
    before = jnp.pad(with_blanks, ((0, 0), (2, 0)), constant_values=blank)[:, :-2]
    return with_blanks, (with_blanks != blank) & (with_blanks != before)


def fits(
    state_length: Int[Array, " B"], labels: Int[Array, "B L"], label_length: Int[Array, " B"]
) -> Bool[Array, " B"]:
    """Return True if a path exists: a state per label, and one between two equal labels."""
    both = jnp.arange(1, labels.shape[1]) < label_length[:, None]
    repeats = ((labels[:, 1:] == labels[:, :-1]) & both).sum(-1)
    return (label_length > 0) & (label_length + repeats <= state_length)
