"""A guard against a decoder that has caught itself in a loop."""

import jax
import jax.numpy as jnp

from simuljax.decode.options import Repetition


def repeated(recent: jax.Array, vocabulary: int, guard: Repetition) -> jax.Array:
    """bool [B, V]: tokens that would repeat themselves, or the tokens before, once too often.

    `recent` [B, R] are the last tokens, the latest last, with R = guard.window. With token c,
    the last n tokens stand (times + 1) times in a row if c = recent[-n] and the n (times + 1) - 1
    tokens before it have period n.
    """
    forbidden = jnp.zeros((recent.shape[0], vocabulary), bool)
    for n in range(1, guard.longest + 1):
        last = recent[:, recent.shape[1] - (n * (guard.times + 1) - 1) :]
        periodic = (last[:, n:] == last[:, : last.shape[1] - n]).all(-1)
        again = jax.nn.one_hot(last[:, last.shape[1] - n], vocabulary, dtype=bool)
        forbidden |= periodic[:, None] & again
    return forbidden
