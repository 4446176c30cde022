"""Long short-term memory (Hochreiter & Schmidhuber 1997; Gers et al. 2000).

    i, f, g, o = W x[t] + U h[t-1] + b
    c[t] = sigmoid(f) c[t-1] + sigmoid(i) tanh(g)
    h[t] = sigmoid(o) tanh(c[t])

The products are computed in the type of the network and everything else in float32: what a cell
adds up over hundreds of steps does not fit into 8 bits.
"""

from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jax import Array

from simuljax.nn.layers import real
from simuljax.ops.alignment import vary_alike


@flax.struct.dataclass
class Cell:
    """The state of an LSTM."""

    hidden: Array  # h, [..., units]
    memory: Array  # c, the same


def blank(shape: tuple[int, ...], like: Array) -> Cell:
    """Return the state before the first step; `like` says over which devices it will vary."""
    zeros, _ = vary_alike(jnp.zeros(shape, jnp.float32), like)
    return Cell(hidden=zeros, memory=zeros)


def advance(gates: Array, before: Cell) -> Cell:
    """Take one step, given W x + U h + b [..., 4 units]."""
    i, f, g, o = jnp.split(gates.astype(jnp.float32), 4, -1)
    memory = jax.nn.sigmoid(f) * before.memory + jax.nn.sigmoid(i) * jnp.tanh(g)
    return Cell(hidden=jax.nn.sigmoid(o) * jnp.tanh(memory), memory=memory)


def remembering(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """Return initial biases [4 units]: 1 for the forget gate, 0 for the rest."""
    del key
    return jnp.repeat(jnp.array([0, 1, 0, 0], dtype), shape[0] // 4)


class LSTMCell(nn.Module):
    """An LSTM step; x and h go through one matrix product."""

    units: int
    dtype: str = "float32"

    @nn.compact
    def __call__(self, x: Array, before: Cell, given: Array | float = 0.0) -> Cell:
        """Take a step; `given` [B, 4 units] is the precomputed part of the gates."""
        both = jnp.concatenate([x, before.hidden.astype(x.dtype)], -1)
        gates = nn.Dense(4 * self.units, dtype=self.dtype, bias_init=remembering, name="gates")
        return advance(gates(both) + given, before)


class BidirectionalLSTM(nn.Module):
    """[B, S, D] -> [B, S, 2 units]: states of both directions; 0 where padded.

    W x of all steps and both directions is one product before the loop. A step in the loop does so
    little that a GPU spends its time on starting it, so both directions take it together: the
    first at t, the second at S - 1 - t. Where x is padded, a cell stays at 0. So the second
    direction begins afresh at the last frame of each row, and padding has no influence.
    """

    units: int
    dtype: str = "float32"

    @nn.compact
    def __call__(self, x: Array, lengths: Array) -> Array:
        (batch, steps, _), units = x.shape, self.units
        project = nn.Dense(8 * units, dtype=self.dtype, bias_init=_both, name="inputs")
        first = nn.initializers.lecun_normal(batch_axis=0)
        kernel = self.param("kernel", first, (2, units, 4 * units)).astype(self.dtype)
        gates = _turned(jnp.moveaxis(project(x).reshape(batch, steps, 2, -1), 0, 2))
        kept = jnp.broadcast_to(real(lengths, steps).T[:, None], (steps, 2, batch))
        kept = _turned(kept)[..., None]

        def step(cell: Cell, given: tuple[Array, Array]) -> tuple[Cell, Array]:
            gates, kept = given
            hidden = cell.hidden.astype(kernel.dtype)
            back = jnp.einsum("xbu,xug->xbg", hidden, kernel, preferred_element_type=jnp.float32)
            cell = jax.tree.map(lambda a: jnp.where(kept, a, 0), advance(gates + back, cell))
            return cell, cell.hidden.astype(self.dtype)

        start = blank((2, batch, units), gates)
        _, hidden = jax.lax.scan(step, start, (gates, kept))
        return jnp.moveaxis(_turned(hidden), 2, 0).reshape(batch, steps, 2 * units)


def _turned(x: Array) -> Array:
    """Return [S, 2, ...] with the second direction in reverse order."""
    return jnp.stack([x[:, 0], x[::-1, 1]], 1)


def _both(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """Return `remembering` for two directions [8 units]."""
    return jnp.tile(remembering(key, (shape[0] // 2,), dtype), 2)
