"""The average of several checkpoints, which translates a little better than any of them."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from simuljax.train.checkpoint import Checkpoints


def around_best(steps: Sequence[int], best: int, n: int) -> list[int]:
    """The n saved steps nearest to the best, itself among them; the earlier of two as near."""
    if best not in steps:
        raise ValueError(f"The best step {best} is not among the saved steps {sorted(steps)}.")
    if not 1 <= n <= len(steps):
        raise ValueError(
            f"Cannot take {n} checkpoints around step {best}: {len(steps)} are saved "
            f"({sorted(steps)}). Take fewer, or keep more of them while training."
        )
    return sorted(sorted(steps, key=lambda step: (abs(step - best), step))[:n])


def average(
    checkpoints: Checkpoints, steps: Sequence[int], template: Any, *, part: str = "params"
) -> Any:
    """The mean over the steps of one part of their states, summed in float64.

    The template is that part's: its shardings place the result, and its dtypes are kept. Integers
    have no mean, so they have to be equal in all.
    """
    if not steps:
        raise ValueError("There is no average of no checkpoints: give at least one step.")
    total: dict[str, Any] = {}
    for step in steps:
        held = checkpoints.restore(template, step, part=part)
        assert held is not None  # a named step is restored or refused
        host = {part: jax.tree.map(wide, held.state)}
        total = jax.tree_util.tree_map_with_path(add, total, host) if total else host
    return jax.tree.map(lambda leaf, sum_: place(leaf, sum_, len(steps)), template, total[part])


def wide(leaf: jax.Array) -> np.ndarray:
    """The array on the host, in float64 unless it counts something."""
    array = np.asarray(leaf)
    return array.astype(np.float64) if jax.numpy.issubdtype(leaf.dtype, np.floating) else array


def add(path: tuple, total: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Adds numbers; integers stay as they are if they are the same."""
    if total.dtype == np.float64:
        return total + more
    if not np.array_equal(total, more):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        raise ValueError(f"{name!r} holds integers that differ among the checkpoints: no average.")
    return total


def place(leaf: Any, total: np.ndarray, count: int) -> jax.Array:
    """The mean in the template's dtype and on its devices."""
    mean = total / count if total.dtype == np.float64 else total
    return jax.device_put(mean.astype(leaf.dtype), getattr(leaf, "sharding", None))
