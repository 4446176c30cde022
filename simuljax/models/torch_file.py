"""Read the tensors of a `.pt` file without running what is in it.

It is a zip of one pickle, which names tensors, and one file for each one's numbers. A pickle is a
program, and PyTorch's loader runs it. This reader knows four words: an ordered dict, a tensor, a
storage of floats, and where that storage lies. It refuses anything else before doing it.
"""

import io
import math
import pickle
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np

from simuljax.models.tensor_file import WeightsError, array, map_file, take

_STORAGES = {
    "HalfStorage": np.dtype("<f2"),
    "FloatStorage": np.dtype("<f4"),
    "DoubleStorage": np.dtype("<f8"),
    "BFloat16Storage": np.dtype(jnp.bfloat16),
}
_ZIP_HEADER = 30  # bytes before a member's name


_PythonUnpickler: Any = pickle._Unpickler  # pyright: ignore[reportAttributeAccessIssue]


class _Unpickler(_PythonUnpickler):
    """Turns the pickle into dicts of arrays, or refuses it.

    Python's own version: the one in C allocates what a number in the file (LONG_BINPUT) says.
    """

    dispatch: ClassVar[dict[int, Any]] = dict(_PythonUnpickler.dispatch)

    def __init__(self, archive: "_Archive", others: Literal["refuse", "skip"] = "refuse"):
        super().__init__(io.BytesIO(archive.member("data.pkl")))
        self.archive, self.others = archive, others

    def find_class(self, module_name: str, global_name: str) -> Any:
        match module_name, global_name:
            case "collections", "OrderedDict":
                return OrderedDict
            case "torch._utils", "_rebuild_tensor_v2":
                return _torch_tensor
            case "torch", name if name in _STORAGES:
                return _STORAGES[name]
        if self.others == "skip":
            return _Other
        raise self.archive.refusal(
            "data.pkl", f"asks for {module_name}.{global_name}, which weights have no use for"
        )

    def persistent_load(self, pid: Any) -> Any:
        match pid:
            case ("storage", np.dtype() as dtype, str(key), _, int(count)):
                return self.archive.numbers(key, dtype, count)
        if self.others == "skip":
            return _Other()
        raise self.archive.refusal("data.pkl", f"names a storage as {pid!r}")

    def load_build(self) -> None:
        """Set attributes of a dict, as PyTorch does; an array or a dtype must not change."""
        if isinstance(self.stack[-2], _Other):
            self.stack.pop()
            return
        if not isinstance(self.stack[-2], OrderedDict):
            raise pickle.UnpicklingError("sets the state of something else than a dict")
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build
    for code in (pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.EXT1, pickle.EXT2, pickle.EXT4):
        del dispatch[code[0]]  # of no use here; the first allocates what a number says


class _Other:
    """Stands for anything that is no tensor of floats: it takes all and does nothing."""

    def __new__(cls, *_: Any) -> "_Other":
        return super().__new__(cls)

    def __init__(self, *_: Any):
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, _: Any) -> None:
        """Take an item of a list."""

    add = append


def _torch_tensor(
    storage: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
) -> Any:
    """Build a tensor from PyTorch's arguments; those after the strides are about gradients."""
    if isinstance(storage, _Other):
        return storage
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    outside = min(offset, *shape, *strides, 0) < 0 or last >= len(storage)
    if outside or math.prod(shape) > len(storage):  # a stride of 0 repeats
        raise pickle.UnpicklingError(f"a tensor {shape} that its storage does not hold")
    strides = tuple(s * storage.itemsize for s in strides)
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, strides, writeable=False)


class _Archive:
    """The members of the zip; they are stored, not compressed."""

    def __init__(self, path: Path):
        self.path, self.data = path, map_file(path)
        try:
            self.zip = zipfile.ZipFile(path)
        except Exception as error:  # a broken archive fails in as many ways as there are
            problem = f"no zip archive ends here ({error}); copy the file again"
            raise WeightsError(path, len(self.data), problem) from error
        names = [name for name in self.zip.namelist() if name.endswith("/data.pkl")]
        if len(names) != 1:
            raise WeightsError(path, 0, "a zip archive, but without the data.pkl of PyTorch")
        self.root = names[0].removesuffix("data.pkl")

    def info(self, name: str) -> zipfile.ZipInfo:
        try:
            return self.zip.getinfo(self.root + name)
        except KeyError as error:
            raise WeightsError(self.path, 0, f"the archive has no {self.root}{name}") from error

    def refusal(self, name: str, problem: str) -> WeightsError:
        info = self.info(name)
        return WeightsError(self.path, info.header_offset, f"{info.filename} {problem}")

    def member(self, name: str) -> bytes:
        if self.info(name).compress_type != zipfile.ZIP_STORED:
            raise self.refusal(name, "is compressed, which PyTorch's never are")
        try:
            return self.zip.read(self.info(name))
        except Exception as error:
            raise self.refusal(name, f"is damaged: {error}") from error

    def numbers(self, key: str, dtype: np.dtype, count: int) -> np.ndarray:
        """Return the storage of that key, where it lies in the file."""
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


def read_state_dict(path: Path) -> dict[str, np.ndarray]:
    """Return the tensors under "model" of a training checkpoint, as fairseq saves them.

    Options, optimiser and whatever else it holds are passed over: no name in it is looked up.
    """
    if bytes(map_file(path)[:4]) != b"PK\x03\x04":
        problem = "this is no .pt file of PyTorch 1.6 or later; load and save it with a later one"
        raise WeightsError(path, 0, problem)
    return torch_tensors(path, "model", "skip")


def torch_tensors(
    path: Path, entry: str, others: Literal["refuse", "skip"]
) -> dict[str, np.ndarray]:
    """Return the tensors under this entry, or of a bare state-dict."""
    archive = _Archive(path)
    try:
        document = _Unpickler(archive, others).load()
    except WeightsError:
        raise
    except Exception as error:  # a broken pickle fails in as many ways as there are
        raise archive.refusal("data.pkl", f"cannot be read: {error!r}") from error
    if not isinstance(document, Mapping):
        raise archive.refusal("data.pkl", f"holds a {type(document).__name__}, not tensors by name")
    state = document.get(entry, document)
    entries = state.items() if isinstance(state, Mapping) else ()
    return {k: v for k, v in entries if isinstance(k, str) and isinstance(v, np.ndarray)}
