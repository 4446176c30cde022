"""Connectionist temporal classification (Graves et al. 2006) of a transcript, per example."""

import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from simuljax.losses.cross_entropy import PerExample


def ctc(
    logits: Float[Array, "B S C"],
    state_length: Int[Array, " B"],
    labels: Int[Array, "B L"],
    label_length: Int[Array, " B"],
) -> PerExample:
    """-log of the summed probability of every path that collapses to the labels; label count.

    The blank is the last class. An example whose labels do not fit into its states has no path:
    its value and its weight are 0.
    """
    classes = logits.shape[-1]
    padded = jnp.arange(logits.shape[1]) >= state_length[:, None]
    unlabelled = jnp.arange(labels.shape[1]) >= label_length[:, None]
    value = optax.ctc_loss(
        logits.astype(jnp.float32),
        padded.astype(jnp.float32),
        labels,
        unlabelled.astype(jnp.float32),
        blank_id=classes - 1,
    )
    possible = fits(state_length, labels, label_length)
    value = jnp.where(possible, value, 0)
    return value, jnp.where(possible, label_length, 0).astype(jnp.float32)


def fits(
    state_length: Int[Array, " B"], labels: Int[Array, "B L"], label_length: Int[Array, " B"]
) -> Bool[Array, " B"]:
    """Whether there is a path: a state for each label and one between two equal ones."""
    both = jnp.arange(1, labels.shape[1]) < label_length[:, None]
    repeats = ((labels[:, 1:] == labels[:, :-1]) & both).sum(-1)
    return (label_length > 0) & (label_length + repeats <= state_length)
