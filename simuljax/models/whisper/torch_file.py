"""OpenAI's `.pt`: a zip of one pickle, which names tensors, and one file for each one's numbers.

A pickle is a program, and PyTorch's loader runs it. This one knows four words: an ordered dict, a
tensor, a storage of floats, and where that storage lies. Whatever else a file asks for is refused
before anything of it is done.
"""

import io
import pickle
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from simuljax.models.whisper.checkpoint import Checkpoint, WeightsError, array, map_file, take

_STORAGES = {
    "HalfStorage": np.dtype("<f2"),
    "FloatStorage": np.dtype("<f4"),
    "DoubleStorage": np.dtype("<f8"),
    "BFloat16Storage": np.dtype(jnp.bfloat16),
}
_ZIP_HEADER = 30  # bytes before a member's name


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """A type of storage."""

    dtype: np.dtype


class _Unpickler(pickle.Unpickler):
    """Turns the pickle into dicts of arrays, or refuses it."""

    def __init__(self, archive: "_Archive"):
        super().__init__(io.BytesIO(archive.member("data.pkl")))
        self.archive = archive

    def find_class(self, module_name: str, global_name: str) -> Any:
        match module_name, global_name:
            case "collections", "OrderedDict":
                return OrderedDict
            case "torch._utils", "_rebuild_tensor_v2":
                return _tensor
            case "torch", name if name in _STORAGES:
                return _Kind(dtype=_STORAGES[name])
        raise self.archive.refusal(
            "data.pkl", f"asks for {module_name}.{global_name}, which weights have no use for"
        )

    def persistent_load(self, pid: Any) -> np.ndarray:
        match pid:
            case ("storage", _Kind(dtype=dtype), str(key), _, int(count)):
                return self.archive.numbers(key, dtype, count)
        raise self.archive.refusal("data.pkl", f"names a storage as {pid!r}")


def _tensor(
    storage: np.ndarray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
) -> np.ndarray:
    """The arguments are PyTorch's; those after the strides are about gradients."""
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if min(offset, *shape, *strides, 0) < 0 or last >= len(storage):
        raise pickle.UnpicklingError(f"a tensor {shape} that its storage does not hold")
    strides = tuple(s * storage.itemsize for s in strides)
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, strides, writeable=False)


class _Archive:
    """The members of the zip; they are stored, not compressed."""

    def __init__(self, path: Path):
        self.path, self.data = path, map_file(path)
        try:
            self.zip = zipfile.ZipFile(path)
        except zipfile.BadZipFile as error:
            problem = f"no zip archive ends here ({error}); copy the file again"
            raise WeightsError(path, len(self.data), problem) from error
        names = [name for name in self.zip.namelist() if name.endswith("/data.pkl")]
        if len(names) != 1:
            raise WeightsError(path, 0, "a zip archive, but without the data.pkl of PyTorch")
        self.root = names[0].removesuffix("data.pkl")

    def info(self, name: str) -> zipfile.ZipInfo:
        """Where a member is."""
        try:
            return self.zip.getinfo(self.root + name)
        except KeyError as error:
            raise WeightsError(self.path, 0, f"the archive has no {self.root}{name}") from error

    def refusal(self, name: str, problem: str) -> WeightsError:
        """An error about a member."""
        info = self.info(name)
        return WeightsError(self.path, info.header_offset, f"{info.filename} {problem}")

    def member(self, name: str) -> bytes:
        """All bytes of a member, checked against its checksum."""
        try:
            return self.zip.read(self.info(name))
        except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
            raise self.refusal(name, f"is damaged: {error}") from error

    def numbers(self, key: str, dtype: np.dtype, count: int) -> np.ndarray:
        """The storage of that key, where it lies in the file."""
        info = self.info(f"data/{key}")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != count * dtype.itemsize:
            raise self.refusal(f"data/{key}", f"is not {count} stored numbers of {dtype}")
        at, what = info.header_offset, info.filename
        header = bytes(take(self.data, self.path, at, _ZIP_HEADER, what))
        names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        data = take(self.data, self.path, at + _ZIP_HEADER + names, info.file_size, what)
        if zlib.crc32(data) != info.CRC:
            raise self.refusal(f"data/{key}", "has another checksum than the archive says")
        return array(data, dtype, (count,))


def read_torch(path: Path) -> Checkpoint:
    """The tensors of a checkpoint of OpenAI's, or of a bare state-dict."""
    archive = _Archive(path)
    try:
        document = _Unpickler(archive).load()
    except WeightsError:
        raise
    except Exception as error:  # a broken pickle fails in as many ways as there are
        raise archive.refusal("data.pkl", f"cannot be read: {error!r}") from error
    if not isinstance(document, Mapping):
        raise archive.refusal("data.pkl", f"holds a {type(document).__name__}, not tensors by name")
    state = document.get("model_state_dict", document)
    tensors = {k: v for k, v in state.items() if isinstance(v, np.ndarray)}
    return Checkpoint(path=path, tensors=tensors)
