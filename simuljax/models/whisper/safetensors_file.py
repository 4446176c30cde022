"""Hugging Face's files: u64 length, a JSON header {name: {dtype, shape, data_offsets}}, the data.

Names are translated to those of the original. A model in several files has an index,
`model.safetensors.index.json`, that says which tensor is in which.
"""

import json
import math
import re
import struct
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from simuljax.models.whisper.checkpoint import Checkpoint, WeightsError, array, map_file, take

_TYPES = {
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "BF16": np.dtype(jnp.bfloat16),
}

_RENAMED = [
    (r"^model\.", ""),
    (r"\.layers\.", ".blocks."),
    (r"self_attn\.", "attn."),
    (r"self_attn_layer_norm", "attn_ln"),
    (r"encoder_attn\.", "cross_attn."),
    (r"encoder_attn_layer_norm", "cross_attn_ln"),
    (r"final_layer_norm", "mlp_ln"),
    (r"fc1", "mlp.0"),
    (r"fc2", "mlp.2"),
    (r"q_proj", "query"),
    (r"k_proj", "key"),
    (r"v_proj", "value"),
    (r"out_proj", "out"),
    (r"embed_positions\.weight", "positional_embedding"),
    (r"embed_tokens", "token_embedding"),
    (r"^encoder\.layer_norm", "encoder.ln_post"),
    (r"^decoder\.layer_norm", "decoder.ln"),
]


def read_safetensors(path: Path) -> Checkpoint:
    """The tensors of one file, or of all that its index names."""
    paths = _parts(path) if path.name.endswith(".index.json") else [path]
    tensors = {name: tensor for part in paths for name, tensor in _read(part).items()}
    tied = "proj_out.weight"  # the embedding once more, in some files
    return Checkpoint(
        path=path, tensors={_original(name): t for name, t in tensors.items() if name != tied}
    )


def _original(name: str) -> str:
    for pattern, replacement in _RENAMED:
        name = re.sub(pattern, replacement, name)
    return name


def _parts(index: Path) -> list[Path]:
    document = _json(bytes(map_file(index)), index, 0)
    names = document.get("weight_map")
    if not isinstance(names, dict):
        raise WeightsError(index, 0, "the index has no weight_map")
    return [index.with_name(Path(str(name)).name) for name in sorted(set(names.values()))]


def _read(path: Path) -> dict[str, np.ndarray]:
    data = map_file(path)
    (length,) = struct.unpack("<Q", take(data, path, 0, 8, "the length of the header"))
    header = _json(bytes(take(data, path, 8, length, "the header")), path, 8)
    header.pop("__metadata__", None)
    return {name: _tensor(data, path, 8 + length, name, entry) for name, entry in header.items()}


def _json(text: bytes, path: Path, byte: int) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise WeightsError(path, byte, f"the header is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise WeightsError(path, byte, "the header is not a table of tensors")
    return document


def _tensor(data: memoryview, path: Path, base: int, name: str, entry: Any) -> np.ndarray:
    try:
        kind, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        size = math.prod(shape) * _TYPES[kind].itemsize
    except (KeyError, TypeError, ValueError) as error:
        raise WeightsError(path, 8, f"{name!r} is not a tensor of floats: {entry}") from error
    if end - start != size:
        raise WeightsError(path, base + start, f"{name!r} has {end - start} bytes, not {size}")
    return array(take(data, path, base + start, size, repr(name)), _TYPES[kind], shape)
