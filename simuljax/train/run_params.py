"""The parameters of a run: those of a checkpoint, of an export, or the average of several."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.models.parameters import path_of
from simuljax.train.checkpoint import (
    CHECKPOINTS,
    CheckpointError,
    Checkpoints,
    around_best,
    template_of,
)
from simuljax.train.stored import find_params, read_params

AVERAGED = "averaged"  # the directory of a run beside its checkpoints
PARTS = ("params", "statistics")  # of a state, which a translator computes with
Which = int | Literal["last", "best", "averaged"]


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Parameters and statistics of a run, and the steps they come from."""

    params: Any
    statistics: Any  # BatchNorm's; {} without one
    steps: tuple[int, ...]


def load(run: str | Path, which: Which = "best") -> Loaded:
    """Return the parameters of a run: the last, best or averaged ones, or those of a step.

    An export has one set of them, the last and the best (`simuljax.train.stored`). Parameters
    stored in another type become float32. The model need not be known. A damaged checkpoint causes
    a warning, and the next one is taken; if a step was asked for, it is an error that names other
    steps.
    """
    averaged = which == "averaged"
    if (exported := find_params(Path(run))) and which in ("best", "last"):
        state, steps = read_params(exported)
        return Loaded(**{part: state.get(part, {}) for part in PARTS}, steps=steps)
    checkpoints = Checkpoints(Path(run) / (AVERAGED if averaged else CHECKPOINTS))
    wanted = "last" if which == "averaged" else which
    step = wanted if isinstance(wanted, int) else checkpoints.whole(wanted)
    if step is None:
        hint = ": `--training.average N` has one written when the training ends" if averaged else ""
        raise CheckpointError(f"{checkpoints.directory} holds no checkpoint{hint}.")

    def widen(leaf: jax.Array) -> jax.Array:
        return leaf.astype(jnp.float32) if leaf.dtype == jnp.bfloat16 else leaf

    seal, parts, found = checkpoints.manifest(step), {}, None
    for part in PARTS:
        template = template_of(seal, part)
        found = checkpoints.restore(template, seal.step, part=part) if template else found
        parts[part] = jax.tree.map(widen, found.state) if template and found else {}
    origin = found.extra.get("steps", [seal.step]) if found and averaged else [seal.step]
    return Loaded(**parts, steps=tuple(origin))


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
    held = (checkpoints.restore(template, step, part=part) for step in steps)
    states = [{part: jax.device_get(each.state)} for each in held if each is not None]

    def mean(path: tuple, leaf: Any, *leaves: jax.Array) -> jax.Array:
        host = [np.asarray(each) for each in leaves]
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            total = sum((each.astype(np.float64) for each in host), np.float64(0)) / len(host)
        elif all(np.array_equal(each, host[0]) for each in host):
            total = host[0]
        else:
            raise ValueError(
                f"{path_of(path)!r} holds integers that differ among the checkpoints: no average."
            )
        return jax.device_put(total.astype(leaf.dtype), getattr(leaf, "sharding", None))

    return jax.tree_util.tree_map_with_path(mean, {part: template}, *states)[part]
