"""Content of a weights file of any format, and the error for files without it."""

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simuljax.errors import SimuljaxError


class WeightsError(SimuljaxError):
    """A file cannot be used as weights of Whisper: which, at which byte, and what is wrong."""

    def __init__(self, path: Path, byte: int, problem: str):
        super().__init__(f"{path}, byte {byte}: {problem}")
        self.path = path
        self.byte = byte


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """Tensors by the names of the original's state-dict, as they are stored: views of the file."""

    path: Path
    tensors: Mapping[str, np.ndarray]
    vocabulary: Sequence[bytes] | None = None  # in the order of the ids, where the file has it


def map_file(path: Path) -> memoryview:
    """The bytes of a file, read when they are looked at."""
    if not path.is_file():
        raise WeightsError(path, 0, "there is no such file")
    if path.stat().st_size == 0:
        raise WeightsError(path, 0, "the file is empty")
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def take(data: memoryview, path: Path, start: int, size: int, what: str) -> memoryview:
    """`size` bytes from `start` on, or an error that says what they should have been."""
    if size < 0 or start < 0:
        raise WeightsError(path, max(start, 0), f"{what} would have {size} bytes at {start}")
    if start + size > len(data):
        left = max(len(data) - start, 0)
        raise WeightsError(
            path, start, f"{what} has {size} bytes, but the file ends after {left}; copy it again"
        )
    return data[start : start + size]


def array(data: memoryview, dtype: np.dtype, shape: Sequence[int]) -> np.ndarray:
    """A view of bytes as an array."""
    return np.frombuffer(data, dtype).reshape(tuple(shape))
