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
    ZIP,
    WeightsError,
    dequantise,
    map_file,
    read_header,
    read_tensors,
    read_torch,
    take,
)
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
    """Tensors by the names of the original's state-dict."""

    path: Path
    tensors: Mapping[str, np.ndarray]
    vocabulary: Sequence[bytes] | None = None  # in the order of the ids, where the file has it


GGML = struct.pack("<I", 0x67676D6C)
_GGML_TYPES = {0: TYPES["F32"], 1: TYPES["F16"]}


class _Reader:
    """A position in the bytes of a ggml file."""

    def __init__(self, path: Path):
        self.path, self.data, self.at = path, map_file(path), 0

    def bytes(self, size: int, what: str) -> memoryview:
        self.at += size
        return take(self.data, self.path, self.at - size, size, what)

    def count(self, what: str, most: int) -> int:
        """Return the next integer, which must lie in [0, most]."""
        (number,) = struct.unpack("<i", self.bytes(4, what))
        if not 0 <= number <= most:
            raise WeightsError(self.path, self.at - 4, f"{what} is {number}, not 0 to {most}")
        return number

    def tensor(self) -> tuple[str, np.ndarray]:
        start = self.at
        axes = self.count("the number of a tensor's axes", 4)
        name_length = self.count("the length of a tensor's name", 256)
        kind = self.count("the type of a tensor", 1 << 16)
        sizes = [self.count("the size of a tensor", 1 << 24) for _ in range(axes)]
        name = bytes(self.bytes(name_length, "the name of a tensor")).decode("utf-8", "replace")
        if kind not in _GGML_TYPES:
            problem = f"{name!r} is quantised (type {kind}); take the f16 or f32 model"
            raise WeightsError(self.path, start, problem)
        numbers = self.bytes(math.prod(sizes) * _GGML_TYPES[kind].itemsize, name)
        tensor = np.frombuffer(numbers, _GGML_TYPES[kind]).reshape(sizes[::-1])
        if not tensor.size:
            raise WeightsError(self.path, start, f"{name} is empty")
        return name, tensor[:, 0] if name.endswith("bias") and tensor.ndim == 2 else tensor


def read_ggml(path: Path) -> Checkpoint:
    """Return tensors and vocabulary of a file in float16 or float32."""
    reader = _Reader(path)
    reader.bytes(12 * 4, "the magic number and the sizes of the model")
    mels = reader.count("the number of mel filters", 1024)
    bins = reader.count("the number of their bins", 1 << 16)
    reader.bytes(4 * mels * bins, "the mel filters")
    vocabulary, tensors = [], {}
    for i in range(reader.count("the size of the vocabulary", 1 << 20)):
        length = reader.count(f"the length of token {i}", 1 << 16)
        vocabulary.append(bytes(reader.bytes(length, f"token {i}")))
    while reader.at < len(reader.data):
        name, tensor = reader.tensor()
        tensors[name] = tensor
    return Checkpoint(path=path, tensors=tensors, vocabulary=vocabulary)


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
    paths = [path]
    if path.name.endswith(".index.json"):
        files = read_header(bytes(map_file(path)), path, 0).get("weight_map")
        if not isinstance(files, dict):
            raise WeightsError(path, 0, "the index has no weight_map")
        paths = [path.with_name(n) for n in {Path(str(file)).name for file in files.values()} if n]
    named = {}
    for part in sorted(paths):
        for name, tensor in read_tensors(part)[0].items():
            if name != "proj_out.weight":  # the embedding once more, in some files
                named[_original(name)] = tensor
    try:
        return Checkpoint(path=path, tensors=dequantise(named))
    except ValueError as error:
        raise WeightsError(path, 0, f"{error}; copy it again") from None


def _original(name: str) -> str:
    for pattern, replacement in _RENAMED:
        name = re.sub(pattern, replacement, name)
    return name


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
    path = Path(path)
    if path.is_dir():
        found = [file for pattern in _IN_DIRECTORY for file in sorted(path.glob(pattern))]
        if not found:
            raise WeightsError(path, 0, f"the directory has none of {', '.join(_IN_DIRECTORY)}")
        path = found[0]
    start = bytes(map_file(path)[:9])
    if start.startswith(GGML):
        return read_ggml(path)
    if start.startswith(ZIP):
        tensors, unknown = read_torch(path, "model_state_dict")
        if unknown:
            problem = f"data.pkl asks for {unknown[0]}, which weights have no use for"
            raise WeightsError(path, 0, problem)
        return Checkpoint(path=path, tensors=tensors)
    if start[8:] == b"{" or start.startswith(GZIP) or path.name.endswith(".index.json"):
        return read_safetensors(path)
    raise WeightsError(path, 0, f"begins with {start!r}: neither a .pt, safetensors nor ggml file")


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
    sizes, tensors = config.dimensions, checkpoint.tensors
    mel = jax.ShapeDtypeStruct((1, 2, sizes.mels), jnp.float32)
    tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    shapes = jax.eval_shape(Network(config).init, jax.random.key(0), mel, tokens)["params"]
    wanted: dict[str, Any] = traverse_util.flatten_dict(shapes, sep="/")
    names = {path: _originals(path, sizes) for path in wanted}
    known = {name for group in names.values() for name in group}
    missing, strange = sorted(known - tensors.keys() - {SINUSOIDS}), sorted(tensors.keys() - known)
    if missing or strange:
        problem = f"tensors missing: {missing[:4]}; of no use: {strange[:4]}"
        raise WeightsError(checkpoint.path, 0, f"not the tensors of this model; {problem}")
    made = {
        path: _parameter(checkpoint, path, names[path], leaf.shape, config.dtype)
        for path, leaf in wanted.items()
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


def _parameter(
    checkpoint: Checkpoint, path: str, names: list[str], shape: tuple[int, ...], dtype: str
) -> Array:
    """Return a parameter; the axes of linear maps and convolutions are turned round."""
    if names == [SINUSOIDS] and SINUSOIDS not in checkpoint.tensors:
        return sinusoids(jnp.arange(shape[0]), shape[1])
    arrays = [checkpoint.tensors[name] for name in names]
    arrays = [tensor.T if path.endswith("kernel") else tensor for tensor in arrays]
    value = np.stack(arrays) if "/layers/" in path else arrays[0]
    if value.shape != shape:
        problem = f"{names[0]} gives a parameter {value.shape}, where {shape} is wanted"
        raise WeightsError(checkpoint.path, 0, problem)
    exact = "norm" in path or path.endswith("positions")
    return jnp.asarray(value, jnp.float32 if exact else dtype)


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
    name = known or _name(checkpoint.path)
    config = Config(dimensions=sizes, alignment_heads=heads, dtype=dtype, name=name)
    tokens = _vocabulary(checkpoint, vocabulary)
    return Whisper(
        model=Model(params=parameters(checkpoint, config), config=config),
        tokenizer=make_tokenizer(tokens, sizes.vocabulary, multilingual=multilingual),
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
