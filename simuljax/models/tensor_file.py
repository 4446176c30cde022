"""Read and write files of weights: safetensors, exported runs, and PyTorch's `.pt` (read alone).

safetensors: u64 length, a JSON header {name: {dtype, shape, data_offsets}}, the data. The file may
be packed by gzip as a whole (`.safetensors.gz`).

A weight w may be stored as whole numbers q by output channel c, whose inputs are i:

    scale_c = max_i |w_ic| / levels,   q_ic = round(w_ic / scale_c),   w_ic is read as scale_c q_ic

q is the int8 tensor NAME, scale the float32 tensor NAME:scale. There are 127 levels of int8 and 63
of int7, which is stored as int8 too and becomes smaller when it is packed.

An exported run has its parameters by their paths, "params/decoder/norm/scale". Of those stored as
int8 or int7, kernels and embeddings are whole numbers. The outputs of a kernel are its last axis;
those of an embedding, which is also the last layer of a decoder with tied weights, its rows. Other
large ones, such as Whisper's positions, are float16 and the rest float32. The header has a SHA-256
of all that, so that a damaged file is noticed.

`.pt`: a zip of one pickle, which names tensors, and one file for each one's numbers. A pickle is a
program, and PyTorch's loader runs it. This reader knows an ordered dict, a tensor, and a storage of
floats. In place of anything else it puts an object that does nothing, and says what was asked for.
"""

import hashlib
import io
import json
import math
import mmap
import pickle
import struct
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from simuljax.errors import SimuljaxError
from simuljax.parsing import ParseError, parse_json, unpack_gzip

Tensors = dict[str, np.ndarray]
Stored = Literal["float32", "bfloat16", "int8", "int7"]

GZIP = b"\x1f\x8b\x08"  # how a gzip file begins
ZIP = b"PK\x03\x04"
TYPES = {  # of safetensors
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "BF16": np.dtype(jnp.bfloat16),
    "I8": np.dtype("i1"),
}
SCALE = ":scale"
LEVELS = {"int8": 127, "int7": 63}
INPUTS = {"kernel": -2, "embedding": -1}  # the axis that a scale is shared by
LARGE = 2**18


class WeightsError(SimuljaxError):
    """A file cannot be used as weights: which, at which byte, and what is wrong."""

    def __init__(self, path: Path, byte: int | None, problem: str):
        super().__init__(f"{path}{'' if byte is None else f', byte {byte}'}: {problem}")
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
    if start + size > len(data):
        left = max(len(data) - start, 0)
        raise WeightsError(
            path, start, f"{what} has {size} bytes, but the file ends after {left}; copy it again"
        )
    return data[start : start + size]


def read_header(text: bytes, path: Path, byte: int) -> dict[str, Any]:
    """Return the JSON object that begins at this byte of a file."""
    try:
        document = parse_json(text)
    except ParseError as error:
        raise WeightsError(path, byte, f"the header is {error}") from None
    if not isinstance(document, dict):
        raise WeightsError(path, byte, "the header is not a table of tensors")
    return document


def read_tensors(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """Return the tensors of a safetensors file and its metadata."""
    data = map_file(path)
    if data[: len(GZIP)] == GZIP:
        try:
            data = memoryview(unpack_gzip(bytes(data)))
        except ParseError as error:
            raise WeightsError(path, 0, f"{error}; copy it again") from None
    (length,) = struct.unpack("<Q", take(data, path, 0, 8, "the length of the header"))
    header = read_header(bytes(take(data, path, 8, length, "the header")), path, 8)
    metadata, base = header.pop("__metadata__", {}), 8 + length
    tensors, spans = {}, []
    for name, entry in header.items():
        dtype, shape, start, end = _check_entry(path, base, name, entry)
        numbers = take(data, path, base + start, end - start, repr(name))
        tensors[name] = np.frombuffer(numbers, dtype).reshape(shape)
        spans += [(start, end, name)] if end > start else []
    for (_, end, one), (start, _, other) in pairwise(sorted(spans)):
        if start < end:
            raise WeightsError(path, base + start, f"{one!r} and {other!r} overlap")
    return tensors, metadata if isinstance(metadata, dict) else {}


def _check_entry(path: Path, base: int, name: str, entry: Any) -> tuple[np.dtype, list, int, int]:
    """Return type, shape, start and end of a tensor in the data."""
    try:
        dtype, shape, (start, end) = TYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        if any(type(n) is not int or n < 0 for n in (*shape, start, end)):
            raise ValueError("sizes and offsets must be whole numbers from 0 on")
    except (KeyError, TypeError, ValueError) as error:
        problem = f"{name!r} is not a tensor of floats: {entry!r:.200}"
        raise WeightsError(path, 8, problem) from error
    size = math.prod(shape) * dtype.itemsize
    if end - start != size or len(shape) > 64:  # axes that NumPy knows
        raise WeightsError(path, base + start, f"{name!r} has {end - start} bytes, not {size}")
    return dtype, shape, start, end


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


def quantise(name: str, leaf: np.ndarray, inputs: int, levels: int) -> Tensors:
    """Return the whole numbers and the scales of a weight, by name; `inputs` is an axis."""
    scale = np.abs(leaf).max(inputs, keepdims=True).astype(np.float32) / levels
    whole = np.rint(leaf / np.where(scale > 0, scale, 1)).astype(np.int8)
    return {name: whole, name + SCALE: scale}


def dequantise(tensors: Mapping[str, np.ndarray]) -> Tensors:
    """Return the tensors without scales: whole numbers times theirs; others as they are."""
    wide = {name: tensor for name, tensor in tensors.items() if not name.endswith(SCALE)}
    for name in tensors.keys() - wide.keys():
        scale, of = tensors[name], name.removesuffix(SCALE)
        shape = wide[of].shape if of in wide else None
        if shape is None or any(s not in (1, n) for s, n in zip_longest(scale.shape, shape)):
            raise ValueError(f"{name!r} {scale.shape} is the scale of no such tensor")
        wide[of] = wide[of] * scale
    if whole := [name for name, tensor in wide.items() if tensor.dtype == np.int8]:
        raise ValueError(f"{whole[0]!r} is of whole numbers, without a scale")
    return wide


def write_params(path: Path, state: Mapping[str, Any], steps: Sequence[int], dtype: Stored) -> None:
    """Write the parts of a state, "params" in this type and the rest in float32, as one file."""
    tensors: dict[str, np.ndarray] = {}
    for name, leaf in traverse_util.flatten_dict(dict(state), sep="/").items():
        kind = dtype if name.startswith("params/") else "float32"
        tensors |= stored(name, np.asarray(leaf), kind)
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
        raise WeightsError(path, None, "damaged or of another tool: the digest is wrong")
    try:
        wide = {name: jnp.asarray(t, jnp.float32) for name, t in dequantise(tensors).items()}
        return traverse_util.unflatten_dict(wide, sep="/"), tuple(parse_json(told["steps"]))
    except (ValueError, TypeError, KeyError) as error:
        raise WeightsError(path, None, f"not written by simuljax export: {error}") from error


def read_torch(path: Path, entry: str) -> tuple[Tensors, list[str]]:
    """Return the tensors under this entry of a `.pt` file, or of a bare state-dict.

    Return also the names that the file asks for and this reader does not know.
    """
    if bytes(map_file(path)[: len(ZIP)]) != ZIP:
        problem = "this is no .pt file of PyTorch 1.6 or later; load and save it with a later one"
        raise WeightsError(path, 0, problem)
    try:
        archive = zipfile.ZipFile(path)
    except Exception as error:  # a broken archive fails in as many ways as there are
        problem = f"no zip archive ends here ({error}); copy the file again"
        raise WeightsError(path, path.stat().st_size, problem) from error
    with archive:
        unpickler = _Unpickler(archive, path.stat().st_size)
        try:
            document = unpickler.load()
        except Exception as error:  # and so does a broken pickle
            problem = f"this pickle of PyTorch cannot be read: {error!r}; copy it again"
            raise WeightsError(path, unpickler.at, problem) from error
    state = document.get(entry, document) if isinstance(document, Mapping) else None
    entries = state.items() if isinstance(state, Mapping) else ()
    tensors = {k: v for k, v in entries if isinstance(k, str) and isinstance(v, np.ndarray)}
    return tensors, unpickler.unknown


_PythonUnpickler: Any = pickle._Unpickler  # pyright: ignore[reportAttributeAccessIssue]


class _Unpickler(_PythonUnpickler):
    """Turns the pickle into dicts of arrays.

    Python's own version: the one in C allocates what a number in the file (LONG_BINPUT) says.
    """

    dispatch: ClassVar[dict[int, Any]] = dict(_PythonUnpickler.dispatch)
    del dispatch[pickle.BYTEARRAY8[0]]  # the only one here that does so too

    def __init__(self, archive: zipfile.ZipFile, size: int):
        self.archive, self.size, self.at = archive, size, 0
        self.storages: dict[str, bytes] = {}
        self.unknown: list[str] = []

    def load(self) -> Any:
        members = self.archive.infolist()
        held = sum(max(member.file_size, member.compress_size) for member in members)
        if held > self.size or any(member.compress_type for member in members):
            raise ValueError("an archive that is compressed, which PyTorch's never are")
        (self.name,) = [name for name in self.archive.namelist() if name.endswith("/data.pkl")]
        super().__init__(io.BytesIO(self.read_member(self.name)))
        return super().load()

    def read_member(self, name: str) -> bytes:
        """Return a file of the archive, whose checksum `zipfile` compares."""
        self.at = self.archive.getinfo(name).header_offset
        return self.archive.read(name)

    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) not in _KNOWN:
            self.unknown.append(f"{module_name}.{global_name}")
        return _KNOWN.get((module_name, global_name), _Other)

    def persistent_load(self, pid: Any) -> Any:
        match pid:
            case ("storage", np.dtype() as dtype, str(key), *_):
                if key not in self.storages:
                    place = self.name.removesuffix("data.pkl") + f"data/{key}"
                    self.storages[key] = self.read_member(place)
                return np.frombuffer(self.storages[key], dtype)
        return _Other()

    def load_build(self) -> None:
        """Leave out the state of an object: attributes of a dict, or of what is not known."""
        self.stack.pop()

    dispatch[pickle.BUILD[0]] = load_build


class _Other:
    """Stands for anything that is no tensor of floats: it takes all and does nothing."""

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


_KNOWN: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _torch_tensor,
    ("torch", "HalfStorage"): TYPES["F16"],
    ("torch", "FloatStorage"): TYPES["F32"],
    ("torch", "DoubleStorage"): TYPES["F64"],
    ("torch", "BFloat16Storage"): TYPES["BF16"],
}
