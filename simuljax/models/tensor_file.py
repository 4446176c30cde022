"""Tensors in a file: safetensors, and what every reader of weights shares.

safetensors: u64 length, a JSON header {name: {dtype, shape, data_offsets}}, the data.
"""

import itertools
import math
import mmap
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from simuljax.errors import SimuljaxError
from simuljax.parsing import ParseError, parse_json


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


def read_tensors(
    path: Path, types: Mapping[str, np.dtype] = FLOATS
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the tensors of a safetensors file, which have one of these types, and its metadata."""
    data = map_file(path)
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
