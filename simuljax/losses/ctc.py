"""Connectionist temporal classification (Graves et al. 2006) of a transcript, per example.

The probability of all paths through CTC's lattice, and which states they pass.

    alpha[t,u] = e[t,u] + log(exp alpha[t-1,u] + exp alpha[t-1,u-1] + skip[u] exp alpha[t-1,u-2])
    beta[t,u]  = log(exp b[t+1,u] + exp b[t+1,u+1] + skip[u+2] exp b[t+1,u+2]),   b = beta + e
    d log P / d e[t,u] = exp(alpha[t,u] + beta[t,u] - log P)

u counts labels with blanks around them, e are their log-probabilities. On a GPU, a scan starts
several kernels for each of hundreds of states; there a sentence is one program of one kernel, with
a lane for every u, which asks its neighbours through a small buffer.

Dimension key: B sentences, T states, U.
"""

import functools
from typing import Literal

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt
from jaxtyping import Array, Bool, Float, Int

from simuljax.losses.decoder_losses import PerExample
from simuljax.ops.alignment import vary_alike

NEVER = -1e30  # log 0, without its NaNs
Way = Literal["auto", "scan", "kernel", "interpret"]


def log_likelihood(
    emission: Float[Array, "B T U"],
    skip: Bool[Array, "B U"],
    lengths: Int[Array, " B"],
    last: Int[Array, " B"],
    way: Way = "auto",
) -> Float[Array, " B"]:
    """log P of emissions e; `skip` where u-2 leads to u; paths end at `last` or the u before it.

    `auto` is the kernel on a GPU and a scan elsewhere; `interpret` is the kernel where there is no
    GPU. A sentence must have a path, and a state.
    """
    if way == "auto":
        way = "kernel" if jax.default_backend() == "gpu" else "scan"
    return jnp.asarray(_likelihood(emission, skip, lengths, last, way))


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _likelihood(emission, skip, lengths, last, way):
    return _ends(_forward(emission, skip, way), lengths, last)


def _with_residual(emission, skip, lengths, last, way):
    alpha = _forward(emission, skip, way)
    found = _ends(alpha, lengths, last)
    return found, (emission, skip, lengths, last, alpha, found)


def _posterior(way, residual, cotangent):
    emission, skip, lengths, last, alpha, found = residual
    beta = _backward(emission, skip, lengths, last, way)
    return cotangent[:, None, None] * jnp.exp(alpha + beta - found[:, None, None]), None, None, None


_likelihood.defvjp(_with_residual, _posterior)


def _ends(alpha, lengths, last):
    """log P: a path ends with the last label or the blank after it."""
    at_end = jnp.take_along_axis(alpha, (lengths - 1)[:, None, None], 1)[:, 0]
    both = jnp.take_along_axis(at_end, jnp.stack([jnp.maximum(last - 1, 0), last], 1), 1)
    return jnp.logaddexp(both[:, 0], both[:, 1])


def _forward(emission, skip, way):
    if way != "scan":
        return _call(_forward_kernel, way, (skip, emission))

    def step(alpha, e):
        alpha = e + _log_add(alpha, _shift(alpha, 1), jnp.where(skip, _shift(alpha, 2), NEVER))
        return alpha, alpha

    first = jnp.where(jnp.arange(emission.shape[2]) < 2, emission[:, 0], NEVER)
    _, rest = jax.lax.scan(step, first, emission[:, 1:].swapaxes(0, 1))
    return jnp.concatenate([first[:, None], rest.swapaxes(0, 1)], 1)


def _backward(emission, skip, lengths, last, way):
    if way != "scan":
        return _call(_backward_kernel, way, (skip, emission), (lengths, last))
    u, skipped = jnp.arange(emission.shape[2]), _shift(skip, -2, False)
    end = jnp.where((u == last[:, None]) | (u == last[:, None] - 1), 0.0, NEVER)

    def step(after, given):
        e, t = given
        beta = _log_add(after, _shift(after, -1), jnp.where(skipped, _shift(after, -2), NEVER))
        beta = jnp.where((t < lengths - 1)[:, None], beta, NEVER)
        beta = jnp.where((t == lengths - 1)[:, None], end, beta)
        return beta + e, beta

    times, start = jnp.arange(emission.shape[1]), jnp.full_like(emission[:, 0], NEVER)
    given = (emission.swapaxes(0, 1), times)
    return jax.lax.scan(step, start, given, reverse=True)[1].swapaxes(0, 1)


def _log_add(a, b, c):
    highest = jnp.maximum(jnp.maximum(a, b), c)
    return highest + jnp.log(jnp.exp(a - highest) + jnp.exp(b - highest) + jnp.exp(c - highest))


def _shift(x, by, outside=NEVER):
    """x[u - by] at u."""
    size, edge = x.shape[-1], jnp.full_like(x[..., : abs(by)], outside)
    parts = [edge, x[..., : size - by]] if by > 0 else [x[..., -by:], edge]
    return jnp.concatenate(parts, -1)[..., :size]


def _forward_kernel(skip_ref, e_ref, alpha_ref, buffer, *, interpret):
    lane, inside, skip = _lanes(skip_ref, buffer)

    def step(t, alpha):
        one, two = _neighbours(buffer, t, lane, alpha, -1, interpret)
        reached = _log_add(alpha, one, jnp.where(skip != 0, two, NEVER))
        e = plt.load(e_ref.at[t, lane], mask=inside, other=0.0)
        alpha = e + jnp.where(t == 0, jnp.where(lane < 2, 0.0, NEVER), reached)
        plt.store(alpha_ref.at[t, lane], alpha, mask=inside)
        return alpha

    jax.lax.fori_loop(0, e_ref.shape[0], step, jnp.full(lane.shape, NEVER))


def _backward_kernel(length_ref, last_ref, skip_ref, e_ref, beta_ref, buffer, *, interpret):
    lane, inside, _ = _lanes(skip_ref, buffer)
    states, labels = e_ref.shape
    skip = plt.load(skip_ref.at[lane + 2], mask=lane + 2 < labels, other=0)
    length, last = length_ref[()], last_ref[()]
    end = jnp.where((lane == last) | (lane == last - 1), 0.0, NEVER)

    def step(s, after):
        t = states - 1 - s
        one, two = _neighbours(buffer, s, lane, after, 1, interpret)
        beta = _log_add(after, one, jnp.where(skip != 0, two, NEVER))
        beta = jnp.where(t < length - 1, beta, jnp.where(t == length - 1, end, NEVER))
        plt.store(beta_ref.at[t, lane], beta, mask=inside)
        return beta + plt.load(e_ref.at[t, lane], mask=inside, other=NEVER)

    jax.lax.fori_loop(0, states, step, jnp.full(lane.shape, NEVER))


def _lanes(skip_ref, buffer):
    lane = jax.lax.broadcasted_iota(jnp.int32, (buffer.shape[-1],), 0)
    inside = lane < skip_ref.shape[0]
    return lane, inside, plt.load(skip_ref.at[lane], mask=inside, other=0)


def _neighbours(buffer, step, lane, value, side, interpret):
    """Return the lanes one and two to that side; nothing comes from beyond the edge."""
    plt.store(buffer.at[step & 1, lane], value)
    if not interpret:  # the interpreter runs in order and knows no barrier
        plt.debug_barrier()
    for away in (side, 2 * side):
        there = lane + away
        known = (there >= 0) & (there < buffer.shape[-1])
        yield plt.load(buffer.at[step & 1, jnp.where(known, there, 0)], mask=known, other=NEVER)


def _call(kernel, way, tables, scalars=()):
    skip, emission = tables[0].astype(jnp.int32), tables[1]
    sentences, states, labels = emission.shape
    lanes = max(pl.next_power_of_2(labels), 32)
    struct = functools.partial(
        jax.ShapeDtypeStruct,
        dtype=emission.dtype,
        manual_axis_type=jax.typeof(emission).manual_axis_type,
    )
    one = pl.BlockSpec((None,), lambda i: (i,))
    lattice = pl.BlockSpec((None, states, labels), lambda i: (i, 0, 0))
    found, _ = pl.pallas_call(
        functools.partial(kernel, interpret=way == "interpret"),
        grid=(sentences,),
        in_specs=[one] * len(scalars) + [pl.BlockSpec((None, labels), lambda i: (i, 0)), lattice],
        out_specs=[lattice, pl.BlockSpec((None, 2, lanes), lambda i: (i, 0, 0))],
        out_shape=[struct(emission.shape), struct((sentences, 2, lanes))],
        compiler_params=plt.CompilerParams(num_warps=min(lanes // 32, 16), num_stages=1),
        interpret=way == "interpret",
        name=kernel.__name__.strip("_"),
    )(*scalars, skip, emission)
    return found


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
