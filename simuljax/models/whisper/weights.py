"""Read the weights of Whisper from OpenAI's, Hugging Face's and whisper.cpp's files.

`.pt`: a zip of one pickle, which names tensors, and one file for each one's numbers. A pickle is a
program, and PyTorch's loader runs it. This reader knows four words: an ordered dict, a tensor, a
storage of floats, and where that storage lies. It refuses anything else before doing it.

ggml: sizes, mel filters, vocabulary, then tensors to the end of the file, all little-endian.

    u32 magic; 11 i32 sizes; i32 mels, i32 bins, f32 filters; i32 count, {u32 length, bytes}
    {i32 axes, i32 name length, i32 type, i32 sizes with the fastest first, name, data}

Types 0 and 1 are float32 and float16; the others are quantised.

safetensors: u64 length, a JSON header {name: {dtype, shape, data_offsets}}, the data. Names are
translated to those of the original. A model in several files has an index,
`model.safetensors.index.json`, that says which tensor is in which.
"""

import io
import itertools
import math
import mmap
import pickle
import re
import struct
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from jax import Array

from simuljax.errors import SimuljaxError
from simuljax.models.whisper.config import Config, Dimensions
from simuljax.models.whisper.model import Network
from simuljax.parsing import ParseError, parse_json


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


def read_torch(path: Path) -> Checkpoint:
    """Return the tensors of a checkpoint of OpenAI's, or of a bare state-dict."""
    return Checkpoint(path=path, tensors=_torch_tensors(path, "model_state_dict", "refuse"))


def read_state_dict(path: Path) -> dict[str, np.ndarray]:
    """Return the tensors under "model" of a training checkpoint, as fairseq saves them.

    Options, optimiser and whatever else it holds are passed over: no name in it is looked up.
    """
    if bytes(map_file(path)[:4]) != b"PK\x03\x04":
        problem = "this is no .pt file of PyTorch 1.6 or later; load and save it with a later one"
        raise WeightsError(path, 0, problem)
    return _torch_tensors(path, "model", "skip")


def _torch_tensors(
    path: Path, entry: str, others: Literal["refuse", "skip"]
) -> dict[str, np.ndarray]:
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


MAGIC = 0x67676D6C
_GGML_TYPES = {0: np.dtype("<f4"), 1: np.dtype("<f2")}
_LONGEST_NAME, _MOST_TOKENS = 256, 1 << 20  # beyond, the file is something else


class _Reader:
    """A position in the bytes of one file."""

    def __init__(self, path: Path):
        self.path, self.data, self.at = path, map_file(path), 0

    def bytes(self, size: int, what: str) -> memoryview:
        taken = take(self.data, self.path, self.at, size, what)
        self.at += size
        return taken

    def numbers(self, count: int, what: str) -> tuple[int, ...]:
        return struct.unpack(f"<{count}i", self.bytes(4 * count, what))

    def count(self, what: str, most: int) -> int:
        """Return the next integer, which must lie in [0, most]."""
        start = self.at
        (number,) = self.numbers(1, what)
        if not 0 <= number <= most:
            raise WeightsError(self.path, start, f"{what} is {number}, not 0 to {most}")
        return number


def read_ggml(path: Path) -> Checkpoint:
    """Return tensors and vocabulary of a file in float16 or float32."""
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
    while reader.at < len(reader.data):
        name, tensor = _ggml_tensor(reader)
        tensors[name] = tensor
    return Checkpoint(path=path, tensors=tensors, vocabulary=vocabulary)


def _vocabulary(reader: _Reader) -> list[bytes]:
    count = reader.count("the size of the vocabulary", _MOST_TOKENS)
    lengths = (reader.count(f"the length of token {i}", 1 << 16) for i in range(count))
    return [bytes(reader.bytes(length, f"token {i}")) for i, length in enumerate(lengths)]


def _ggml_tensor(reader: _Reader) -> tuple[str, np.ndarray]:
    start = reader.at
    axes = reader.count("the number of a tensor's axes", 4)
    name_length = reader.count("the length of a tensor's name", _LONGEST_NAME)
    (kind,) = reader.numbers(1, "the type of a tensor")
    sizes = [reader.count("the size of a tensor", 1 << 24) for _ in range(axes)]
    name = bytes(reader.bytes(name_length, "the name of a tensor")).decode("utf-8", "replace")
    if kind not in _GGML_TYPES:
        raise WeightsError(
            reader.path, start, f"{name!r} is quantised (type {kind}); take the f16 or f32 model"
        )
    data = reader.bytes(math.prod(sizes) * _GGML_TYPES[kind].itemsize, name)
    tensor = array(data, _GGML_TYPES[kind], sizes[::-1])
    if not tensor.size:
        raise WeightsError(reader.path, start, f"{name} is empty")
    return name, tensor[:, 0] if name.endswith("bias") and tensor.ndim == 2 else tensor


FLOATS = {  # of safetensors
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
    """Return the tensors of one file, or of all that its index names."""
    paths = _parts(path) if path.name.endswith(".index.json") else [path]
    tensors = {name: tensor for part in paths for name, tensor in read_tensors(part)[0].items()}
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
    files = sorted({Path(str(name)).name for name in names.values()} - {""})
    return [index.with_name(name) for name in files]


def read_tensors(
    path: Path, types: Mapping[str, np.dtype] = FLOATS
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the tensors of a safetensors file, which have one of these types, and its metadata."""
    data = map_file(path)
    (length,) = struct.unpack("<Q", take(data, path, 0, 8, "the length of the header"))
    header = _json(bytes(take(data, path, 8, length, "the header")), path, 8)
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


def _json(text: bytes, path: Path, byte: int) -> dict[str, Any]:
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


# The files of a directory that weights are looked for in, best first.
_IN_DIRECTORY = (
    "model.safetensors",
    "model.safetensors.index.json",
    "*.safetensors",
    "*.pt",
    "ggml*.bin",
)


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read a `.pt`, `.safetensors` or ggml file, known by how it begins; or a directory."""
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
    """Return the sizes by the shapes of the tensors; heads are of 64, as in every published one."""
    shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    try:
        if empty := [name for name, shape in shapes.items() if 0 in shape]:
            raise ValueError(f"{empty[0]} is empty")
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
    except (KeyError, ValueError, IndexError) as error:
        problem = f"these are not weights of Whisper: {len(shapes)} tensors, but {error}"
        raise WeightsError(checkpoint.path, 0, problem) from error


def _layers(shapes: Mapping[str, Any], part: str) -> int:
    matches = [re.match(rf"{part}\.blocks\.(\d+)\.", name) for name in shapes]
    numbers = {int(match[1]) for match in matches if match}
    if not numbers or numbers != {*range(len(numbers))}:
        raise ValueError(f"the {part} has {len(numbers)} blocks up to {max(numbers, default=0)}")
    return len(numbers)


def parameters(checkpoint: Checkpoint, config: Config) -> dict[str, Any]:
    """Return the parameters: weights in the model's dtype, norms and positions in float32."""
    sizes, key = config.dimensions, jax.random.key(0)
    mel = jax.ShapeDtypeStruct((1, 2, sizes.mels), jnp.float32)
    tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    shapes = jax.eval_shape(Network(config).init, key, mel, tokens)["params"]
    wanted: dict[str, Any] = traverse_util.flatten_dict(shapes, sep="/")
    names = {path: _originals(path, sizes) for path in wanted}
    _check_names(checkpoint, {name for group in names.values() for name in group})
    made = {
        path: _parameter(checkpoint, path, names[path], wanted[path], config) for path in wanted
    }
    return traverse_util.unflatten_dict(made, sep="/")


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
    """Return the original's names of a parameter: one, or one for each layer of the encoder."""
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
) -> Array:
    """Return a parameter; the axes of linear maps and convolutions are turned round."""
    is_weight = path.endswith("kernel")
    arrays = [checkpoint.tensors[name] for name in names]
    arrays = [tensor.T if is_weight else tensor for tensor in arrays]
    value = np.stack(arrays) if ".layers." in path.replace("/", ".") else arrays[0]
    if value.shape != leaf.shape:
        problem = f"{names[0]} gives a parameter {value.shape}, where {leaf.shape} is wanted"
        raise WeightsError(checkpoint.path, 0, problem)
    exact = "norm" in path or path.endswith("positions")
    return jnp.asarray(value, jnp.float32 if exact else config.dtype)
