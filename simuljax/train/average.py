"""The average of several checkpoints, which translates a little better than any of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.train.checkpoint import CHECKPOINTS, CheckpointError, Checkpoints
from simuljax.train.manifest import around_best, template_of

AVERAGED = "averaged"  # the directory of a run beside its checkpoints
PARTS = ("params", "statistics")  # of a state, which a translator computes with

Which = int | Literal["last", "best", "averaged"]


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Parameters and statistics of a run, and the steps they come from."""

    params: Any
    statistics: Any  # BatchNorm's; {} without one
    steps: tuple[int, ...]


def average_around_best(run: str | Path, n: int) -> tuple[int, ...]:
    """Write the average of the n checkpoints around the best of a run; return their steps.

    They are of the phase that the run is in. `load(run, "averaged")` finds the result.
    """
    checkpoints = Checkpoints(Path(run) / CHECKPOINTS)
    checkpoints.whole("best")  # says which are damaged; the average is of the others
    best = checkpoints.best()
    if best is None or n < 1:
        raise CheckpointError(
            f"{n} checkpoints around the best: {checkpoints.directory} has "
            f"{'none that was validated' if best is None else 'some'}; n must be 1 or more."
        )
    steps = around_best(checkpoints.scored(), best, n)
    seal = checkpoints.manifest(best)
    held = {part: average(checkpoints, steps, template_of(seal, part), part=part) for part in PARTS}
    written = Checkpoints(Path(run) / AVERAGED, keep_last=1, keep_best=0)
    written.discard_after(best - 1)
    written.save(best, jax.tree.map(np.asarray, held), {"steps": steps})  # the same on all hosts
    written.close()
    return tuple(steps)


def load(run: str | Path, which: Which = "best") -> Loaded:
    """Return the parameters of a run: the last, best or averaged ones, or those of a step.

    Parameters stored as bfloat16 (`simuljax.serve.export`) become float32 again. The model need not
    be known. A damaged checkpoint causes a warning, and the next one is taken; if a step was asked
    for, it is an error that names other steps.
    """
    averaged = which == "averaged"
    checkpoints = Checkpoints(Path(run) / (AVERAGED if averaged else CHECKPOINTS))
    wanted = "last" if which == "averaged" else which
    step = wanted if isinstance(wanted, int) else checkpoints.whole(wanted)
    if step is None:
        hint = ": `--training.average N` has one written when the training ends" if averaged else ""
        raise CheckpointError(f"{checkpoints.directory} holds no checkpoint{hint}.")
    seal, parts, found = checkpoints.manifest(step), {}, None
    for part in PARTS:
        template = template_of(seal, part)
        found = checkpoints.restore(template, seal.step, part=part) if template else found
        parts[part] = jax.tree.map(widened, found.state) if template and found else {}
    origin = found.extra.get("steps", [seal.step]) if found and averaged else [seal.step]
    return Loaded(**parts, steps=tuple(origin))


def widened(leaf: jax.Array) -> jax.Array:
    """Return an array in the precision that models compute with."""
    return leaf.astype(jnp.float32) if leaf.dtype == jnp.bfloat16 else leaf


def average(
    checkpoints: Checkpoints, steps: Sequence[int], template: Any, *, part: str = "params"
) -> Any:
    """Return the mean over steps of one part of their states, summed in float64.

    The template is that part's: its shardings place the result, and its dtypes are kept. Integers
    have no mean, so they have to be equal in all.
    """
    if not steps:
        raise ValueError("There is no average of no checkpoints: give at least one step.")
    if not jax.tree.leaves(template):
        return template
    total: dict[str, Any] = {}
    for step in steps:
        held = checkpoints.restore(template, step, part=part)
        assert held is not None  # a named step is restored or refused
        host = {part: jax.tree.map(wide, held.state)}
        total = jax.tree_util.tree_map_with_path(add, total, host) if total else host
    return jax.tree.map(lambda leaf, sum_: place(leaf, sum_, len(steps)), template, total[part])


def wide(leaf: jax.Array) -> np.ndarray:
    """Return the array on the host, in float64 unless it is an integer."""
    array = np.asarray(leaf)
    return array.astype(np.float64) if jax.numpy.issubdtype(leaf.dtype, np.floating) else array


def add(path: tuple, total: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Add numbers; equal integers stay as they are."""
    if total.dtype == np.float64:
        return total + more
    if not np.array_equal(total, more):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        raise ValueError(f"{name!r} holds integers that differ among the checkpoints: no average.")
    return total


def place(leaf: Any, total: np.ndarray, count: int) -> jax.Array:
    """Return the mean in the template's dtype and on its devices."""
    mean = total / count if total.dtype == np.float64 else total
    return jax.device_put(mean.astype(leaf.dtype), getattr(leaf, "sharding", None))
