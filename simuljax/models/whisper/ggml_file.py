"""The files of whisper.cpp: sizes, mel filters, vocabulary, then tensors to the end of the file.

    u32 magic; 11 i32 sizes; i32 mels, i32 bins, f32 filters; i32 count, {u32 length, bytes}
    {i32 axes, i32 name length, i32 type, i32 sizes with the fastest first, name, data}

Numbers are little-endian. Types 0 and 1 are float32 and float16; the others are quantised.
"""

import math
import struct
from pathlib import Path

import numpy as np

from simuljax.models.whisper.checkpoint import Checkpoint, WeightsError, array, map_file, take

MAGIC = 0x67676D6C
_TYPES = {0: np.dtype("<f4"), 1: np.dtype("<f2")}
_LONGEST_NAME, _MOST_TOKENS = 256, 1 << 20  # beyond, the file is something else


class _Reader:
    """Walks through the bytes of one file."""

    def __init__(self, path: Path):
        self.path, self.data, self.at = path, map_file(path), 0

    def bytes(self, size: int, what: str) -> memoryview:
        """The next bytes."""
        taken = take(self.data, self.path, self.at, size, what)
        self.at += size
        return taken

    def numbers(self, count: int, what: str) -> tuple[int, ...]:
        """The next 32-bit integers."""
        return struct.unpack(f"<{count}i", self.bytes(4 * count, what))

    def count(self, what: str, most: int) -> int:
        """The next integer, which must lie in [0, most]."""
        start = self.at
        (number,) = self.numbers(1, what)
        if not 0 <= number <= most:
            raise WeightsError(self.path, start, f"{what} is {number}, not 0 to {most}")
        return number

    @property
    def left(self) -> int:
        """Bytes to the end."""
        return len(self.data) - self.at


def read_ggml(path: Path) -> Checkpoint:
    """Tensors and vocabulary of a file in float16 or float32."""
    reader = _Reader(path)
    magic = reader.numbers(1, "the magic number")[0]
    if magic != MAGIC:
        raise WeightsError(path, 0, f"begins with {magic:#x}, not with ggml's {MAGIC:#x}")
    reader.numbers(11, "the sizes of the model")
    mels = reader.count("the number of mel filters", 1024)
    bins = reader.count("the number of their bins", 1 << 16)
    reader.bytes(4 * mels * bins, "the mel filters")
    vocabulary = _vocabulary(reader)
    tensors = {}
    while reader.left:
        name, tensor = _tensor(reader)
        tensors[name] = tensor
    return Checkpoint(path=path, tensors=tensors, vocabulary=vocabulary)


def _vocabulary(reader: _Reader) -> list[bytes]:
    count = reader.count("the size of the vocabulary", _MOST_TOKENS)
    lengths = (reader.count(f"the length of token {i}", 1 << 16) for i in range(count))
    return [bytes(reader.bytes(length, f"token {i}")) for i, length in enumerate(lengths)]


def _tensor(reader: _Reader) -> tuple[str, np.ndarray]:
    start = reader.at
    axes = reader.count("the number of a tensor's axes", 4)
    name_length = reader.count("the length of a tensor's name", _LONGEST_NAME)
    (kind,) = reader.numbers(1, "the type of a tensor")
    sizes = [reader.count("the size of a tensor", 1 << 24) for _ in range(axes)]
    name = bytes(reader.bytes(name_length, "the name of a tensor")).decode("utf-8", "replace")
    if kind not in _TYPES:
        raise WeightsError(
            reader.path, start, f"{name!r} is quantised (type {kind}); take the f16 or f32 model"
        )
    data = reader.bytes(math.prod(sizes) * _TYPES[kind].itemsize, name)
    tensor = array(data, _TYPES[kind], sizes[::-1])
    return name, tensor[:, 0] if name.endswith("bias") and tensor.ndim == 2 else tensor
