"""The parameters of a run: those of a checkpoint, the average of several, or an exported file.

`simuljax export` stores parameters as one safetensors file, in place of the checkpoints:

    params/decoder/embedding/embedding            int8 [V, D]
    params/decoder/embedding/embedding:scale      float32 [V, 1]
    params/decoder/norm/scale                     float32 [D]

As int8 or int7, kernels and embeddings are whole numbers with a scale for each output channel
(`simuljax.models.tensor_file`). The outputs of a kernel are its last axis; those of an embedding,
which is also the last layer of a decoder with tied weights, its rows. Of other parameters large
ones, such as Whisper's positions, are float16 and the rest float32. The header has a SHA-256 of all
that, so that a damaged file is noticed. Parameters in int7 are packed: `params.safetensors.gz`.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from simuljax.models.parameters import path_of
from simuljax.models.tensor_file import (
    LEVELS,
    dequantise,
    quantise,
    read_tensors,
    write_tensors,
)
from simuljax.parsing import parse_json
from simuljax.train.checkpoint import CHECKPOINTS, CheckpointError, Checkpoints, nearest

AVERAGED = "averaged"  # the directory of a run beside its checkpoints
PARTS = ("params", "statistics")  # of a state, which a translator computes with
Which = int | Literal["last", "best", "averaged"]
Stored = Literal["float32", "bfloat16", "int8", "int7"]
PARAMS_FILE = "params.safetensors"  # of an exported run
PACKED_FILE = PARAMS_FILE + ".gz"
INPUTS = {"kernel": -2, "embedding": -1}  # the axis that a scale is shared by
LARGE = 2**18


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Parameters and statistics of a run, and the steps they come from."""

    params: Any
    statistics: Any  # BatchNorm's; {} without one
    steps: tuple[int, ...]


def load(run: str | Path, which: Which = "best") -> Loaded:
    """Return the parameters of a run: the last, best or averaged ones, or those of a step.

    An export has one set of them, the last and the best. Parameters stored in another type become
    float32. The model need not be known. A damaged checkpoint causes a warning, and the next one is
    taken; if a step was asked for, it is an error that names other steps.
    """
    averaged = which == "averaged"
    if (exported := find_params(Path(run))) and which in ("best", "last"):
        state, steps = read_params(exported)
        return Loaded(**{part: state.get(part, {}) for part in PARTS}, steps=steps)
    checkpoints = Checkpoints(Path(run) / (AVERAGED if averaged else CHECKPOINTS))
    step = checkpoints.whole("last" if which == "averaged" else which)
    if step is None:
        hint = ": `--training.average N` has one written when the training ends" if averaged else ""
        raise CheckpointError(f"{checkpoints.directory} holds no checkpoint{hint}.")

    def widen(leaf: jax.Array) -> jax.Array:
        return leaf.astype(jnp.float32) if leaf.dtype == jnp.bfloat16 else leaf

    found = checkpoints.read(step, PARTS)
    origin = found.extra.get("steps", [step]) if averaged else [step]
    return Loaded(**jax.tree.map(widen, found.state), steps=tuple(origin))


def average_around_best(run: str | Path, n: int) -> tuple[int, ...]:
    """Write the average of the n checkpoints around the best of a run; return their steps.

    They are of the phase that the run is in. `load(run, "averaged")` finds the result.
    """
    checkpoints = Checkpoints(Path(run) / CHECKPOINTS)
    checkpoints.whole("best")  # says which are damaged; the average is of the others
    best = checkpoints.best()
    if best is None:
        raise CheckpointError(f"{checkpoints.directory} holds no checkpoint that was validated.")
    steps = nearest(checkpoints.scored(), best, n)
    written = Checkpoints(Path(run) / AVERAGED, keep_last=1, keep_best=0)
    written.discard_after(best - 1)
    written.save(best, average(checkpoints, steps), {"steps": steps})  # the same on all hosts
    written.close()
    return tuple(steps)


def average(checkpoints: Checkpoints, steps: Sequence[int]) -> dict[str, Any]:
    """Return the mean of parameters and statistics over steps, summed in float64.

    Their dtypes are kept. Integers have no mean, so they have to be equal in all.
    """

    def mean(path: tuple, *leaves: np.ndarray) -> np.ndarray:
        first = leaves[0]
        if jnp.issubdtype(first.dtype, jnp.floating):
            total = sum((leaf.astype(np.float64) for leaf in leaves), np.float64(0)) / len(leaves)
            return total.astype(first.dtype)
        if not all(np.array_equal(leaf, first) for leaf in leaves):
            raise ValueError(
                f"{path_of(path)!r} holds integers that differ among the checkpoints: no average."
            )
        return first

    states = [jax.device_get(checkpoints.read(step, PARTS).state) for step in steps]
    return jax.tree_util.tree_map_with_path(mean, *states)


def find_params(run: Path) -> Path | None:
    """Return the file of an exported run's parameters; None for a run with checkpoints."""
    return next((f for name in (PARAMS_FILE, PACKED_FILE) if (f := run / name).exists()), None)


def write_params(path: Path, state: Mapping[str, Any], steps: Sequence[int], dtype: Stored) -> None:
    """Write the parts of a state, "params" in this type and the rest in float32, as one file."""
    tensors: dict[str, np.ndarray] = {}
    for name, leaf in traverse_util.flatten_dict(dict(state), sep="/").items():
        tensors |= stored(
            name, np.asarray(leaf), dtype if name.startswith("params/") else "float32"
        )
    came = json.dumps(steps)
    write_tensors(path, tensors, {"steps": came, "sha256": digest(tensors, came)})


def digest(tensors: Mapping[str, np.ndarray], steps: str) -> str:
    """Return the SHA-256 of names, types, shapes and numbers."""
    found = hashlib.sha256(steps.encode("utf-8", "surrogatepass"))  # which JSON may hold
    for name, tensor in sorted(tensors.items()):
        kind = f"{name} {tensor.dtype.name} {tensor.shape}"
        found.update(kind.encode("utf-8", "surrogatepass"))
        found.update(tensor.tobytes())
    return found.hexdigest()


def stored(name: str, leaf: np.ndarray, dtype: Stored) -> dict[str, np.ndarray]:
    """Return the arrays that a parameter is stored as, by name."""
    inputs = INPUTS.get(name.rpartition("/")[2])
    if dtype == "bfloat16":
        return {name: leaf.astype(jnp.bfloat16)}
    if dtype == "float32" or inputs is None or leaf.ndim < 2:
        large = dtype in LEVELS and leaf.size >= LARGE
        return {name: leaf.astype(np.float16 if large else np.float32)}
    return quantise(name, leaf, inputs, LEVELS[dtype])


def read_params(path: Path) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Return the parts of a state, in float32, and the updates they come from."""
    tensors, told = read_tensors(path)
    if digest(tensors, str(told.get("steps"))) != told.get("sha256"):
        raise CheckpointError(f"{path} is damaged or of another tool: its digest is wrong")
    try:
        wide = {name: jnp.asarray(t, jnp.float32) for name, t in dequantise(tensors).items()}
        return traverse_util.unflatten_dict(wide, sep="/"), tuple(parse_json(told["steps"]))
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path} was not written by simuljax export: {error}") from error
