"""Load Whisper from OpenAI's, Hugging Face's and whisper.cpp's files.

ggml: sizes, mel filters, vocabulary, then tensors to the end of the file, all little-endian.

    u32 magic; 11 i32 sizes; i32 mels, i32 bins, f32 filters; i32 count, {u32 length, bytes}
    {i32 axes, i32 name length, i32 type, i32 sizes with the fastest first, name, data}

Types 0 and 1 are float32 and float16; the others are quantised.

safetensors: names are translated to those of the original. A model in several files has an index,
`model.safetensors.index.json`, that says which tensor is in which. Weights may be whole numbers
with scales, and positions of the encoder, which are sinusoids, may be left out (`export`).
"""

import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from jax import Array

from simuljax.errors import SimuljaxError
from simuljax.models.tensor_file import (
    GZIP,
    TYPES,
    WeightsError,
    array,
    dequantise,
    header_of,
    map_file,
    read_tensors,
    take,
)
from simuljax.models.torch_file import torch_tensors
from simuljax.models.whisper.config import (
    PUBLISHED,
    Config,
    Dimensions,
    Heads,
    later_half,
    published_name,
)
from simuljax.models.whisper.model import Model, Network
from simuljax.models.whisper.tokenizer import make_tokenizer, read_tiktoken, read_tokenizer_json
from simuljax.models.whisper.transcribe import Whisper
from simuljax.nn.layers import sinusoids
from simuljax.parsing import ParseError, parse_json


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """Tensors by the names of the original's state-dict: views of the file where they can be."""

    path: Path
    tensors: Mapping[str, np.ndarray]
    vocabulary: Sequence[bytes] | None = None  # in the order of the ids, where the file has it


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
    vocabulary = _ggml_vocabulary(reader)
    tensors = {}
    while reader.at < len(reader.data):
        name, tensor = _ggml_tensor(reader)
        tensors[name] = tensor
    return Checkpoint(path=path, tensors=tensors, vocabulary=vocabulary)


def _ggml_vocabulary(reader: _Reader) -> list[bytes]:
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
    tensors = {n: tensor for part in paths for n, tensor in read_tensors(part, TYPES)[0].items()}
    tied = "proj_out.weight"  # the embedding once more, in some files
    named = {_original(name): t for name, t in tensors.items() if name != tied}
    try:
        wide = dequantise(named)
    except ValueError as error:
        raise WeightsError(path, 0, f"{error}; copy it again") from None
    return Checkpoint(path=path, tensors=wide)


def _original(name: str) -> str:
    for pattern, replacement in _RENAMED:
        name = re.sub(pattern, replacement, name)
    return name


def _parts(index: Path) -> list[Path]:
    document = header_of(bytes(map_file(index)), index, 0)
    names = document.get("weight_map")
    if not isinstance(names, dict):
        raise WeightsError(index, 0, "the index has no weight_map")
    files = sorted({Path(str(name)).name for name in names.values()} - {""})
    return [index.with_name(name) for name in files]


# The files of a directory that weights are looked for in, best first.
_IN_DIRECTORY = (
    "model.safetensors",
    "model.safetensors.index.json",
    "*.safetensors",
    "*.safetensors.gz",
    "*.pt",
    "ggml*.bin",
)


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read a `.pt`, `.safetensors(.gz)` or ggml file, known by how it begins; or a directory."""
    path = _weights_in(Path(path))
    start = bytes(map_file(path)[:9])
    if start[:4] == MAGIC.to_bytes(4, "little"):
        return read_ggml(path)
    if start[:4] == b"PK\x03\x04":
        return Checkpoint(path=path, tensors=torch_tensors(path, "model_state_dict", "refuse"))
    if start[8:] == b"{" or start.startswith(GZIP) or path.name.endswith(".index.json"):
        return read_safetensors(path)
    raise WeightsError(path, 0, f"begins with {start!r}: neither a .pt, safetensors nor ggml file")


def _weights_in(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = [file for pattern in _IN_DIRECTORY for file in sorted(path.glob(pattern))]
    if not found:
        raise WeightsError(path, 0, f"the directory has none of {', '.join(_IN_DIRECTORY)}")
    return found[0]


SINUSOIDS = "encoder.positional_embedding"  # not learnt


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
            **({"audio_positions": shapes[SINUSOIDS][0]} if SINUSOIDS in shapes else {}),
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
    missing = sorted(wanted - checkpoint.tensors.keys() - {SINUSOIDS})
    strange = sorted(checkpoint.tensors.keys() - wanted)
    if missing or strange:
        problem = f"tensors missing: {missing[:4]}; of no use: {strange[:4]}"
        raise WeightsError(checkpoint.path, 0, f"not the tensors of this model; {problem}")


def _parameter(
    checkpoint: Checkpoint, path: str, names: list[str], leaf: jax.ShapeDtypeStruct, config: Config
) -> Array:
    """Return a parameter; the axes of linear maps and convolutions are turned round."""
    if names == [SINUSOIDS] and SINUSOIDS not in checkpoint.tensors:
        return sinusoids(jnp.arange(leaf.shape[0]), leaf.shape[1])
    is_weight = path.endswith("kernel")
    arrays = [checkpoint.tensors[name] for name in names]
    arrays = [tensor.T if is_weight else tensor for tensor in arrays]
    value = np.stack(arrays) if ".layers." in path.replace("/", ".") else arrays[0]
    if value.shape != leaf.shape:
        problem = f"{names[0]} gives a parameter {value.shape}, where {leaf.shape} is wanted"
        raise WeightsError(checkpoint.path, 0, problem)
    exact = "norm" in path or path.endswith("positions")
    return jnp.asarray(value, jnp.float32 if exact else config.dtype)


_VOCABULARIES = ("*.tiktoken", "tokenizer.json", "vocab.json")


def load(
    path: str | Path,
    *,
    dtype: Literal["float32", "bfloat16"] = "float32",
    name: str | None = None,
    vocabulary: str | Path | None = None,
) -> Whisper:
    """Load a model from OpenAI's `.pt`, Hugging Face's safetensors (or a directory), or ggml.

    The sizes are those of the tensors. `name` (such as "large-v2") says which heads tell the times
    of words where sizes do not; else the file's name does, a `generation_config.json` beside it, or
    all heads of the later half of the decoder serve. The vocabulary is the one in the file (ggml),
    the one given, or a `.tiktoken`, `tokenizer.json` or `vocab.json` beside the weights.
    """
    checkpoint = read_checkpoint(path)
    sizes = dimensions_of(checkpoint)
    known = name or published_name(sizes, str(checkpoint.path))
    if known is not None and known not in PUBLISHED:
        raise SimuljaxError(
            f"{known!r} is not a published Whisper; name one of {', '.join(PUBLISHED)}"
        )
    if known:
        heads, multilingual = PUBLISHED[known].alignment_heads, None
    else:
        heads, multilingual = _generation(checkpoint.path, sizes)
    config = Config(
        dimensions=sizes, alignment_heads=heads, dtype=dtype, name=known or _name(checkpoint.path)
    )
    return Whisper(
        model=Model(params=parameters(checkpoint, config), config=config),
        tokenizer=make_tokenizer(
            _vocabulary(checkpoint, vocabulary), sizes.vocabulary, multilingual=multilingual
        ),
    )


def _generation(weights: Path, sizes: Dimensions) -> tuple[Heads, bool | None]:
    """Return the alignment heads, and True for a multilingual model, as the file beside it says."""
    file = weights.with_name("generation_config.json")
    if not file.is_file():
        return later_half(sizes), None
    try:
        found = parse_json(file.read_bytes())
        heads, many = found.get("alignment_heads"), found.get("is_multilingual")
        if many is not None and type(many) is not bool:
            raise TypeError(f"is_multilingual is {many!r:.60}")
        chosen = tuple((int(layer), int(head)) for layer, head in heads or ())
    except (ParseError, AttributeError, TypeError, ValueError, OverflowError) as error:
        raise SimuljaxError(f"{file} is damaged: {error}; remove or mend it") from None
    layers, heads_each = range(sizes.text_layers), range(sizes.head_count)
    if any(layer not in layers or head not in heads_each for layer, head in chosen):
        raise SimuljaxError(f"{file} names a head of alignment_heads that the model lacks")
    return chosen or later_half(sizes), many


def _name(path: Path) -> str:
    """Return the name of a file without its kind; of a file that is called model, its folder's."""
    name = path.name.removesuffix(".gz").removesuffix(".safetensors").removesuffix(path.suffix)
    return path.absolute().parent.name if name == "model" else name


def _vocabulary(checkpoint: Checkpoint, given: str | Path | None) -> Sequence[bytes]:
    if given is None and checkpoint.vocabulary:
        return checkpoint.vocabulary
    beside = [f for p in _VOCABULARIES for f in sorted(checkpoint.path.parent.glob(p))]
    files = [Path(given)] if given else beside
    if not files:
        problem = f"no vocabulary in the file, and none of {', '.join(_VOCABULARIES)} beside it"
        raise WeightsError(checkpoint.path, 0, f"{problem}; give one with vocabulary=")
    read = read_tiktoken if files[0].suffix == ".tiktoken" else read_tokenizer_json
    return read(files[0])
