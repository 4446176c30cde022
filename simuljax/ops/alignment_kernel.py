"""The expected alignment as one accelerator kernel, forward and backward (Pallas, Triton).

A cell needs its left and its upper neighbour only, so the cells of an anti-diagonal are
independent. One program owns one [T, S] problem and gives every target row a lane; at step s
lane i works on the source block s - i, a few columns at a time, and hands its result to lane
i + 1 for the next step:

          block 0   block 1   block 2          s: the step at which a block is done
    row 0   s=0       s=1       s=2
    row 1   s=1       s=2       s=3            steps = rows + blocks - 1
    row 2   s=2       s=3       s=4

There is no parallel prefix, no decay product and no division: each lane runs the recurrence of
`expected_alignment` literally, in registers, and every input is read and every output written
exactly once. Lanes hand over through a small double buffer that stays in the cache.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

VECTOR = 4  # columns per load: 16 bytes a lane
TILES = 2  # loads per step
WIDTH = VECTOR * TILES  # columns a lane takes in one step
MAX_TARGETS = 1024  # a lane is a row, and this many lanes fit in a program


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _alignment(p, lengths, interpret, preserve=False):
    """Return alpha [N,T,S] of p [N,T,S]; columns at or beyond the length count as p = 0.

    lengths is None or [M], M dividing N: each length serves N / M problems in a row. With
    `preserve`, the last real column of a row also gets what the row lacks of 1.
    """
    return _forward(p, lengths, interpret, preserve, with_residual=False)


def _alignment_fwd(p, lengths, interpret, preserve):
    alpha, q = _forward(p, lengths, interpret, preserve, with_residual=True)
    return alpha, (p, lengths, q)


def _alignment_bwd(interpret, preserve, residual, cotangent):
    p, lengths, q = residual
    return _backward(p, lengths, q, cotangent, interpret, preserve), None


_alignment.defvjp(_alignment_fwd, _alignment_bwd)
# or each eager call would compile anew
fused_alignment = jax.jit(_alignment, static_argnums=(2, 3))


def _forward_kernel(length_ref, p_ref, alpha_ref, *rest, steps, blocks, interpret, preserve):
    """Compute q = carry + alpha[i-1,j];  alpha = p q;  carry = q - p q."""
    *q_ref, handover = rest
    lane = jax.lax.broadcasted_iota(jnp.int32, (handover.shape[-1],), 0)
    length = _length(length_ref)
    last = (p_ref.shape[1] if length is None else length) - 1

    def step(s, state):
        carry, lacks = state
        block = s - lane
        p = _only_real(_load(p_ref, lane, block), block, length)
        above = _receive(handover, s, lane, (block >= 0) & (block < blocks))
        above[0] = jnp.where((lane == 0) & (block == 0), 1.0, above[0])  # alpha[-1] = (1, 0, ...)
        alpha, q, kept = [], [], []
        for j, (p_j, above_j) in enumerate(zip(p, above, strict=True)):
            q.append(carry + above_j)
            alpha.append(p_j * q[-1])
            carry = q[-1] - alpha[-1]
            lacks = lacks - alpha[-1]
            kept.append(jnp.where(block * WIDTH + j == last, alpha[-1] + lacks, alpha[-1]))
        _store(alpha_ref, lane, block, kept if preserve else alpha)
        for ref in q_ref:
            _store(ref, lane, block, q)
        _hand_over(handover, s, lane, alpha, interpret)
        return carry, lacks

    zero = jnp.zeros(lane.shape, p_ref.dtype)
    jax.lax.fori_loop(0, steps, step, (zero, zero + 1))


def _backward_kernel(
    length_ref, p_ref, q_ref, g_ref, dp_ref, handover, *, steps, blocks, interpret, preserve
):
    """Compute A = g + Q[i+1,j];  d = A - Q[i,j+1];  dp = q d;  Q[i,j] = Q[i,j+1] + p d.

    With `preserve`, whatever a row gains its last real column loses: g - g[last] for g.
    """
    targets = p_ref.shape[0]
    lane = jax.lax.broadcasted_iota(jnp.int32, (handover.shape[-1],), 0)
    row = jnp.where(lane < targets, targets - 1 - lane, lane)
    length = _length(length_ref)
    last = (p_ref.shape[1] if length is None else length) - 1

    def step(s, state):
        carry, g_last = state
        block = blocks - 1 - (s - lane)
        p = _only_real(_load(p_ref, row, block), block, length)
        q, g = _load(q_ref, row, block), _load(g_ref, row, block)
        below = _receive(handover, s, lane, (block >= 0) & (block < blocks))
        dp, adjoint = [None] * WIDTH, [None] * WIDTH
        for j in reversed(range(WIDTH)):
            if preserve:
                g_last = jnp.where(block * WIDTH + j == last, g[j], g_last)
            d = g[j] - g_last + below[j] - carry
            dp[j] = q[j] * d
            carry = carry + p[j] * d
            adjoint[j] = carry
        _store(dp_ref, row, block, _only_real(dp, block, length))
        _hand_over(handover, s, lane, adjoint, interpret)
        return carry, g_last

    zero = jnp.zeros(lane.shape, p_ref.dtype)
    jax.lax.fori_loop(0, steps, step, (zero, zero))


def _cells(ref, row, block):
    """Return index arrays and mask of each lane's WIDTH columns, VECTOR at a time.

    The mask depends on the static shape alone: a bound known only at run time would keep the
    compiler from loading VECTOR columns at once.
    """
    for tile in range(TILES):
        offset = jax.lax.broadcasted_iota(jnp.int32, (row.size, VECTOR), 1) + tile * VECTOR
        column = (block * WIDTH)[:, None] + offset
        rows = jnp.broadcast_to(row[:, None], column.shape)
        inside = (rows < ref.shape[0]) & (column >= 0) & (column < ref.shape[1])
        yield ref.at[rows, column], inside


def _load(ref, row, block):
    """Load each lane's columns as WIDTH vectors over lanes; 0 outside the array."""
    columns = []
    for cells, inside in _cells(ref, row, block):
        tile = plt.load(cells, mask=inside, other=0.0)
        columns += [c.reshape(row.shape) for c in jnp.split(tile, VECTOR, axis=1)]
    return columns


def _store(ref, row, block, columns):
    for tile, (cells, inside) in enumerate(_cells(ref, row, block)):
        plt.store(cells, _interleave(columns[tile * VECTOR : (tile + 1) * VECTOR]), mask=inside)


def _length(length_ref):
    return None if length_ref is None else length_ref[()]


def _only_real(columns, block, length):
    """Set columns at or beyond the problem's own length to 0."""
    if length is None:
        return columns
    return [jnp.where(block * WIDTH + j < length, x, 0.0) for j, x in enumerate(columns)]


def _interleave(columns):
    """Join vectors c0..c3 over lanes into [lanes, 4]; the kernel language joins two at a time."""
    if len(columns) == 1:
        return columns[0][:, None]
    even, odd = _interleave(columns[0::2]), _interleave(columns[1::2])
    joined = jnp.concatenate([even[..., None], odd[..., None]], axis=-1)
    return joined.reshape(columns[0].size, len(columns))


def _hand_over(buffer, s, lane, columns, interpret):
    for j, column in enumerate(columns):
        plt.store(buffer.at[s & 1, j, lane], column)
    if not interpret:  # the interpreter runs in order and knows no barrier
        plt.debug_barrier()


def _receive(buffer, s, lane, alive):
    """Read the value that the previous lane passed on one step ago; 0 for lane 0 and before."""
    neighbour, alive = jnp.maximum(lane - 1, 0), alive & (lane > 0)
    return [
        plt.load(buffer.at[(s + 1) & 1, j, neighbour], mask=alive, other=0.0) for j in range(WIDTH)
    ]


def _forward(p, lengths, interpret, preserve, *, with_residual):
    kernel = functools.partial(_forward_kernel, preserve=preserve)
    alpha, *q, _ = _call(kernel, interpret, lengths, (p,), 2 if with_residual else 1)
    return (alpha, *q) if with_residual else alpha


def _backward(p, lengths, q, cotangent, interpret, preserve):
    kernel = functools.partial(_backward_kernel, preserve=preserve)
    dp, _ = _call(kernel, interpret, lengths, (p, q, cotangent), 1)
    return dp


def _call(kernel, interpret, lengths, inputs, n_outputs):
    varying = tuple(jax.typeof(inputs[0]).manual_axis_type.varying)
    if interpret and varying:
        return _call_on_all_shards(varying, kernel, lengths, inputs, n_outputs)
    n, targets, sources = inputs[0].shape
    lanes, blocks = max(pl.next_power_of_2(targets), 32), pl.cdiv(sources, WIDTH)
    whole = pl.BlockSpec((None, targets, sources), lambda i: (i, 0, 0))
    buffer = (2, WIDTH, lanes)
    struct = functools.partial(
        jax.ShapeDtypeStruct,
        dtype=inputs[0].dtype,
        manual_axis_type=jax.typeof(inputs[0]).manual_axis_type,
    )
    return pl.pallas_call(
        functools.partial(kernel, steps=targets + blocks - 1, blocks=blocks, interpret=interpret),
        grid=(n,),
        in_specs=[_one_length(n, lengths), *[whole] * len(inputs)],
        out_specs=[whole] * n_outputs + [pl.BlockSpec((None, *buffer), lambda i: (i, 0, 0, 0))],
        out_shape=[struct((n, targets, sources))] * n_outputs + [struct((n, *buffer))],
        compiler_params=plt.CompilerParams(num_warps=min(lanes // 32, 16), num_stages=1),
        interpret=interpret,
        name=kernel.func.__name__.strip("_"),
    )(lengths, *inputs)


def _one_length(n, lengths):
    """Return the block spec that gives problem i its length."""
    if lengths is None:
        return None
    serves = np.int32(n // lengths.size)
    return pl.BlockSpec((None,), lambda i: (jax.lax.div(i, serves),))


def _call_on_all_shards(axes, kernel, lengths, inputs, n_outputs):
    """Pallas' interpreter cannot follow values that vary over mesh axes (`shard_map` with
    `check_vma`), so there, and there only, every device computes all shards and keeps its own."""
    shard, shards = jax.lax.axis_index(axes), jax.lax.axis_size(axes)

    def gather(x):
        mine = (jnp.arange(shards) == shard).reshape(-1, *(1,) * x.ndim)
        everyones = jax.lax.psum(jnp.where(mine, x, jnp.zeros_like(x)), axes)
        return everyones.reshape(-1, *x.shape[1:])

    lengths, inputs = jax.tree.map(gather, (lengths, inputs))
    outputs = _call(kernel, True, lengths, inputs, n_outputs)
    return [out.reshape(shards, -1, *out.shape[1:])[shard] for out in outputs]
