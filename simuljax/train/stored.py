"""Parameters in one safetensors file: how `simuljax export` stores a model that is given away.

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
from pathlib import Path
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from simuljax.models.tensor_file import (
    LEVELS,
    dequantise,
    quantise,
    read_tensors,
    write_tensors,
)
from simuljax.parsing import parse_json
from simuljax.train.checkpoint import CheckpointError

Stored = Literal["float32", "bfloat16", "int8", "int7"]
PARAMS_FILE = "params.safetensors"  # of an exported run, in place of its checkpoints
PACKED_FILE = PARAMS_FILE + ".gz"
INPUTS = {"kernel": -2, "embedding": -1}  # the axis that a scale is shared by
LARGE = 2**18


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
