"""Tensors in a file: safetensors, and what every reader of weights shares.

safetensors: u64 length, a JSON header {name: {dtype, shape, data_offsets}}, the data. The file may
be packed by gzip as a whole (`.safetensors.gz`).

A weight w may be stored as whole numbers q by output channel c, whose inputs are i:

    scale_c = max_i |w_ic| / levels,   q_ic = round(w_ic / scale_c),   w_ic is read as scale_c q_ic

q is the int8 tensor NAME, scale the float32 tensor NAME:scale. There are 127 levels of int8 and 63
of int7, which is stored as int8 too and becomes smaller when it is packed.
"""

import itertools
import json
import math
import mmap
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from simuljax.errors import SimuljaxError
from simuljax.parsing import ParseError, parse_json, unpack_gzip


class WeightsError(SimuljaxError):
    """A file cannot be used as weights: which, at which byte, and what is wrong."""

    def __init__(self, path: Path, byte: int, problem: str):
        super().__init__(f"{path}, byte {byte}: {problem}")
        self.path = path
        self.byte = byte


def map_file(path: Path) -> memoryview:
    """Return the bytes of a file, read when they are looked at."""
    if not path.is_file():
        raise WeightsError(path, 0, "there is no such file")
    if path.stat().st_size == 0:
        raise WeightsError(path, 0, "the file is empty")
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


GZIP = b"\x1f\x8b\x08"  # how a gzip file begins


def unpacked(path: Path) -> memoryview:
    """Return the bytes of a file, which gzip may have packed."""
    data = map_file(path)
    if data[: len(GZIP)] != GZIP:
        return data
    try:
        return memoryview(unpack_gzip(bytes(data)))
    except ParseError as error:
        raise WeightsError(path, 0, f"{error}; copy it again") from None


def take(data: memoryview, path: Path, start: int, size: int, what: str) -> memoryview:
    """Return `size` bytes from `start` on, or raise an error that says what they should be."""
    if size < 0 or start < 0:
        raise WeightsError(path, max(start, 0), f"{what} would have {size} bytes at {start}")
    if start + size > len(data):
        left = max(len(data) - start, 0)
        raise WeightsError(
            path, start, f"{what} has {size} bytes, but the file ends after {left}; copy it again"
        )
    return data[start : start + size]


def array(data: memoryview, dtype: np.dtype, shape: Sequence[int]) -> np.ndarray:
    """Return a view of bytes as an array."""
    return np.frombuffer(data, dtype).reshape(tuple(shape))


FLOATS = {  # of safetensors
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "BF16": np.dtype(jnp.bfloat16),
}

TYPES = FLOATS | {"I8": np.dtype("i1")}
SCALE = ":scale"
LEVELS = {"int8": 127, "int7": 63}


def write_tensors(
    path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]
) -> None:
    """Write a safetensors file; pack it where the name ends in .gz."""
    names = {kind: name for name, kind in TYPES.items()}
    header, data, end = {}, [], 0
    for name, tensor in sorted(tensors.items(), key=lambda item: -item[1].itemsize):  # aligned
        start, end = end, end + tensor.nbytes
        place = {"dtype": names[tensor.dtype], "data_offsets": [start, end]}
        header[name] = place | {"shape": tensor.shape}
        data.append(tensor.tobytes())
    text = json.dumps(header | {"__metadata__": dict(metadata)}).encode()
    text += b" " * (-len(text) % 8)
    whole = b"".join([len(text).to_bytes(8, "little"), text, *data])
    path.write_bytes(packed(whole) if path.suffix == ".gz" else whole)


def packed(data: bytes) -> bytes:
    """Return a gzip file of numbers: their sequence is noise, so a code for each byte is all."""
    coder = zlib.compressobj(level=9, wbits=31, memLevel=9, strategy=zlib.Z_HUFFMAN_ONLY)
    return coder.compress(data) + coder.flush()


def quantise(name: str, leaf: np.ndarray, inputs: int, levels: int) -> dict[str, np.ndarray]:
    """Return the whole numbers and the scales of a weight, by name; `inputs` is an axis."""
    scale = np.abs(leaf).max(inputs, keepdims=True).astype(np.float32) / levels
    whole = np.rint(leaf / np.where(scale > 0, scale, 1)).astype(np.int8)
    return {name: whole, name + SCALE: scale}


def dequantise(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the tensors without scales: whole numbers times theirs; others as they are."""
    wide = {name: tensor for name, tensor in tensors.items() if not name.endswith(SCALE)}
    for name in tensors.keys() - wide.keys():
        scale, of = tensors[name], name.removesuffix(SCALE)
        if of not in wide or not _is_scale(scale.shape, wide[of].shape):
            raise ValueError(f"{name!r} {scale.shape} is the scale of no such tensor")
        wide[of] = wide[of] * scale
    if whole := [name for name, tensor in wide.items() if tensor.dtype == np.int8]:
        raise ValueError(f"{whole[0]!r} is of whole numbers, without a scale")
    return wide


def _is_scale(scale: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    return len(scale) == len(whole) and all(s in (1, n) for s, n in zip(scale, whole, strict=True))


def read_tensors(
    path: Path, types: Mapping[str, np.dtype] = FLOATS
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the tensors of a safetensors file, which have one of these types, and its metadata."""
    data = unpacked(path)
    (length,) = struct.unpack("<Q", take(data, path, 0, 8, "the length of the header"))
    header = header_of(bytes(take(data, path, 8, length, "the header")), path, 8)
    metadata = header.pop("__metadata__", {})
    tensors = {
        name: _safetensors_tensor(data, path, 8 + length, name, entry, types)
        for name, entry in header.items()
    }
    spans = sorted((*entry["data_offsets"], name) for name, entry in header.items())
    for (_, end, one), (start, stop, other) in itertools.pairwise(spans):
        if start < end and start < stop:
            raise WeightsError(path, 8 + length + start, f"{one!r} and {other!r} overlap")
    return tensors, metadata if isinstance(metadata, dict) else {}


def header_of(text: bytes, path: Path, byte: int) -> dict[str, Any]:
    """Return a JSON object that begins at this byte of a file."""
    try:
        document = parse_json(text)
    except ParseError as error:
        raise WeightsError(path, byte, f"the header is {error}") from None
    if not isinstance(document, dict):
        raise WeightsError(path, byte, "the header is not a table of tensors")
    return document


def _safetensors_tensor(
    data: memoryview, path: Path, base: int, name: str, entry: Any, types: Mapping[str, np.dtype]
) -> np.ndarray:
    try:
        kind, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        if any(type(n) is not int or n < 0 for n in (*shape, start, end)):
            raise ValueError("sizes and offsets must be whole numbers from 0 on")
        size = math.prod(shape) * types[kind].itemsize
    except (KeyError, TypeError, ValueError) as error:
        problem = f"{name!r} is not a tensor of floats: {entry!r:.200}"
        raise WeightsError(path, 8, problem) from error
    if end - start != size:
        raise WeightsError(path, base + start, f"{name!r} has {end - start} bytes, not {size}")
    return array(take(data, path, base + start, size, repr(name)), types[kind], shape)
