"""From a file of weights to the parameters of `model.Network`, whichever the format."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from simuljax.models.whisper.checkpoint import Checkpoint, WeightsError, map_file
from simuljax.models.whisper.config import Config, Dimensions
from simuljax.models.whisper.ggml_file import MAGIC, read_ggml
from simuljax.models.whisper.model import Network
from simuljax.models.whisper.safetensors_file import read_safetensors
from simuljax.models.whisper.torch_file import read_torch

# The files of a directory that weights are looked for in, best first.
_IN_DIRECTORY = (
    "model.safetensors",
    "model.safetensors.index.json",
    "*.safetensors",
    "*.pt",
    "ggml*.bin",
)


def read_checkpoint(path: str | Path) -> Checkpoint:
    """A `.pt`, `.safetensors` or ggml file, told apart by what they begin with; or a directory."""
    path = _weights_in(Path(path))
    start = bytes(map_file(path)[:9])
    if start[:4] == MAGIC.to_bytes(4, "little"):
        return read_ggml(path)
    if start[:4] == b"PK\x03\x04":
        return read_torch(path)
    if start[8:] == b"{" or path.name.endswith(".index.json"):
        return read_safetensors(path)
    raise WeightsError(path, 0, f"begins with {start!r}: neither a .pt, safetensors nor ggml file")


def _weights_in(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = [file for pattern in _IN_DIRECTORY for file in sorted(path.glob(pattern))]
    if not found:
        raise WeightsError(path, 0, f"the directory has none of {', '.join(_IN_DIRECTORY)}")
    return found[0]


def dimensions_of(checkpoint: Checkpoint) -> Dimensions:
    """The sizes that the shapes of the tensors tell; heads are of 64, as in every published one."""
    shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    try:
        width, mels, _ = shapes["encoder.conv1.weight"]
        return Dimensions(
            width=width,
            mels=mels,
            audio_layers=_layers(shapes, "encoder"),
            text_layers=_layers(shapes, "decoder"),
            vocabulary=shapes["decoder.token_embedding.weight"][0],
            audio_positions=shapes["encoder.positional_embedding"][0],
            text_positions=shapes["decoder.positional_embedding"][0],
        )
    except (KeyError, ValueError) as error:
        problem = f"these are not weights of Whisper: {len(shapes)} tensors, but {error}"
        raise WeightsError(checkpoint.path, 0, problem) from error


def _layers(shapes: Mapping[str, Any], part: str) -> int:
    numbers = [re.match(rf"{part}\.blocks\.(\d+)\.", name) for name in shapes]
    return 1 + max((int(number[1]) for number in numbers if number), default=-1)


def parameters(checkpoint: Checkpoint, config: Config) -> dict[str, Any]:
    """The parameters: weights in what the model computes in, norms and positions in float32."""
    wanted: dict[str, Any] = traverse_util.flatten_dict(_shapes(config), sep="/")
    names = {path: _originals(path, config.dimensions) for path in wanted}
    _check_names(checkpoint, {name for group in names.values() for name in group})
    made = {
        path: _parameter(checkpoint, path, names[path], wanted[path], config) for path in wanted
    }
    return traverse_util.unflatten_dict(made, sep="/")


def _shapes(config: Config) -> dict[str, Any]:
    """Parameters by shape alone."""
    sizes = config.dimensions
    mel = jax.ShapeDtypeStruct((1, 2, sizes.mels), jnp.float32)
    tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    return jax.eval_shape(Network(config).init, jax.random.key(0), mel, tokens)["params"]


_NAMES = {
    "self_norm": "attn_ln",
    "cross_norm": "cross_attn_ln",
    "forward_norm": "mlp_ln",
    "attention": "attn",
    "cross": "cross_attn",
    "forward/inner": "mlp.0",
    "forward/outer": "mlp.2",
    "encoder/norm": "encoder.ln_post",
    "decoder/norm": "decoder.ln",
    "positions": "positional_embedding",
    "embedding/embedding": "token_embedding.weight",
    "kernel": "weight",
    "scale": "weight",
}


def _originals(path: str, sizes: Dimensions) -> list[str]:
    """The original's names of one of our parameters: one, or one for each layer of the encoder."""
    name = re.sub(r"/layers_(\d+)/", r"/blocks.\1/", path)
    for ours, theirs in _NAMES.items():
        name = re.sub(rf"(?<![a-z_.]){ours}(?![a-z_])", theirs, name)
    name = name.replace("/", ".")
    if ".layers." not in name:
        return [name]
    return [name.replace(".layers.", f".blocks.{i}.") for i in range(sizes.audio_layers)]


def _check_names(checkpoint: Checkpoint, wanted: set[str]) -> None:
    missing = sorted(wanted - checkpoint.tensors.keys())
    strange = sorted(checkpoint.tensors.keys() - wanted)
    if missing or strange:
        problem = f"tensors missing: {missing[:4]}; of no use: {strange[:4]}"
        raise WeightsError(checkpoint.path, 0, f"not the tensors of this model; {problem}")


def _parameter(
    checkpoint: Checkpoint, path: str, names: list[str], leaf: jax.ShapeDtypeStruct, config: Config
) -> jax.Array:
    """One of ours: the last axis first becomes the first last in linear maps and convolutions."""
    is_weight = path.endswith("kernel")
    arrays = [checkpoint.tensors[name] for name in names]
    arrays = [tensor.T if is_weight else tensor for tensor in arrays]
    value = np.stack(arrays) if ".layers." in path.replace("/", ".") else arrays[0]
    if value.shape != leaf.shape:
        problem = f"{names[0]} gives a parameter {value.shape}, where {leaf.shape} is wanted"
        raise WeightsError(checkpoint.path, 0, problem)
    exact = "norm" in path or path.endswith("positions")
    return jnp.asarray(value, jnp.float32 if exact else config.dtype)
