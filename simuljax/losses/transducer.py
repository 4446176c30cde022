"""The transducer's likelihood and expected delay (Graves 2012; Liu et al. 2021).

A path stands at (t, u): group t of the source, u labels written. It writes label u + 1 and stays in
its group, or takes the blank and goes on to the next:

    a[t, u] = log(exp(a[t-1, u] + blank[t-1, u]) + exp(a[t, u-1] + label[t, u-1])),    a[0, 0] = 0
    nll     = -(a[X-1, Y] + blank[X-1, Y])

with t and u from 0, X groups and Y labels. So every path ends with a blank after the last label in
the last group, and a group may hold any number of labels, all of them or none.

The scan runs over the diagonals t + u = n, whose nodes depend on those of n - 1 alone: G + U steps,
each over all groups at once. Nothing is subtracted, so scores of thousands and of minus infinity
are as good as others.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from simuljax.ops import arguments

NEVER = -1e30  # in place of -inf, whose differences are no numbers; 1e8 of them can be added
BEYOND: Any = {"constant_values": NEVER}


def transducer(
    blank_logp: Float[ArrayLike, "B G U1"],
    label_logp: Float[ArrayLike, "B G U"],
    groups: Int[ArrayLike, " B"],
    labels: Int[ArrayLike, " B"],
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """Return -log P of all paths, and the expected delay of a path.

    `blank_logp[:, t, u]` is the blank's log-probability after u labels in group t and
    `label_logp[:, t, u]` that of label u + 1; of each example the first `groups` [B] groups and
    `labels` [B] labels are real, end-of-sentence included. Label u in group t, both from 1, is late
    by max(t Y / X - u, 0) / Y; a path's delay is the sum over its labels, and the expectation is
    under the probability of paths given that they write these labels.

    The expected delay is the derivative of log Z in the direction in which each label's score
    grows with its delay, so it is computed as that, in forward mode: the log semiring's derivative
    is the expectation semiring. Its gradient is exact: that of the derivative. At each node the two
    ways in are weighed by a sigmoid of their difference and its complement, so no mass is lost,
    however far the scores are from 0.

    Scores of -inf are ways that do not exist. Where there is no path the value is inf, the delay
    and all gradients are 0; an example without groups has value and delay 0.
    """
    blank = arguments.floats("blank_logp", blank_logp, "BGU", leading=False)
    label = arguments.floats("label_logp", label_logp, "BGU", leading=False)
    batch, size, most = label.shape
    if blank.shape != (batch, size, most + 1):
        raise ValueError(
            f"blank_logp has shape {blank.shape} and label_logp {label.shape}; the blank has one "
            "more place than there are labels: [B, G, U + 1] and [B, G, U]."
        )
    if size == 0:
        raise ValueError("blank_logp has no groups; a batch needs room for 1, if only of padding.")
    groups = arguments.spread("groups", groups, (batch,), size)
    labels = arguments.spread("labels", labels, (batch,), most)
    blank, label = _real(blank, groups, labels + 1), _real(label, groups, labels)
    total, delay = jax.jvp(
        lambda label: log_partition(blank, label, groups, labels),
        (label,),
        (delays(groups, labels, label),),
    )
    possible = total > NEVER / 2
    nll = jnp.where(possible, -total, jnp.inf)
    return jnp.where(groups > 0, nll, 0), jnp.where(possible & (groups > 0), delay, 0)


def delays(
    groups: Int[Array, " B"], labels: Int[Array, " B"], like: Float[Array, "B G U"]
) -> Float[Array, "B G U"]:
    """Return how late each label would be in each group, as a share of the target's length."""
    _, size, most = like.shape
    x, y = (jnp.maximum(n, 1).astype(like.dtype)[:, None, None] for n in (groups, labels))
    group, label = jnp.arange(1, size + 1)[:, None], jnp.arange(1, most + 1)
    return jnp.maximum(group * y / x - label, 0) / y


def log_partition(
    blank: Float[Array, "B G U1"],
    label: Float[Array, "B G U"],
    groups: Int[Array, " B"],
    labels: Int[Array, " B"],
) -> Float[Array, " B"]:
    """Return log Z of all paths, with scores above minus infinity."""
    blanks, written = skew(blank), skew(jnp.pad(label, [(0, 0), (0, 0), (0, 1)], **BEYOND))
    start = jnp.where(jnp.arange(blank.shape[1]) == 0, 0, NEVER) + 0 * blank[:, :, 0]

    def diagonal(at: jax.Array, scores: Any) -> tuple[jax.Array, jax.Array]:
        blank, label = scores
        leaving = at + blank
        arriving = jnp.pad(leaving[:, :-1], [(0, 0), (1, 0)], **BEYOND)
        return log_add(arriving, at + label), leaving

    _, leaving = jax.lax.scan(diagonal, start, (blanks, written))
    last = jnp.maximum(groups - 1, 0)
    return leaving[last + labels, jnp.arange(len(groups)), last]


def skew(scores: Float[Array, "B G W"]) -> Float[Array, "N B G"]:
    """[n, b, t] = scores[b, t, n - t], the diagonals one after the other; never where outside."""
    batch, size, most = scores.shape
    count = size + most - 1
    rows = jnp.pad(scores, [(0, 0), (0, 0), (0, size)], **BEYOND)  # one more than there are
    shifted = jax.lax.collapse(rows, 1)[:, : size * count].reshape(batch, size, count)
    return jnp.moveaxis(shifted, 2, 0)


@jax.custom_jvp
def log_add(x: jax.Array, y: jax.Array) -> jax.Array:
    """log(exp(x) + exp(y)) of finite numbers, whose derivatives weigh x and y with a sum of 1."""
    return jnp.maximum(x, y) + jnp.log1p(jnp.exp(-jnp.abs(x - y)))


@log_add.defjvp
def _log_add_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    share = jax.nn.sigmoid(x - y)
    return log_add(x, y), share * dx + (1 - share) * dy


def _real(scores: jax.Array, groups: jax.Array, places: jax.Array) -> jax.Array:
    """Return scores within the lengths and above minus infinity; 0 elsewhere."""
    _, size, most = scores.shape
    real = jnp.arange(size)[:, None] < groups[:, None, None]
    real &= jnp.arange(most) < places[:, None, None]
    return jnp.maximum(jnp.where(real, scores, 0), NEVER)
