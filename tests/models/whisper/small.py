"""A Whisper of random numbers, small enough to compile in a moment, and files that hold one."""

import io
import json
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
import pytest

from simuljax.models.whisper.config import Config, Dimensions
from simuljax.models.whisper.model import Model, Network
from simuljax.models.whisper.tokenizer import Tokenizer
from tests.helpers.models import random_parameters

Dtype = Literal["float32", "bfloat16"]

MERGES = (b" t", b"he", b" the", b" a", b"in", b"er", b"\xe3\x81", b"\xe3\x81\x82", b"ing", b" s")
TOKENS = [bytes([byte]) for byte in range(256)] + list(MERGES)
TOKENIZER = Tokenizer(tokens=TOKENS)
TINY = Path(__file__).parents[3] / ".." / "shared" / "data" / "weights" / "whisper-tiny"
GGML = TINY / "ggml-tiny.bin"
needs_tiny = pytest.mark.skipif(
    not GGML.exists(), reason="Whisper tiny is not among the shared data (weights/whisper-tiny)"
)


def small_config(positions=20, dtype: Dtype = "float32", layers=2, tokens=40):
    return Config(
        dimensions=Dimensions(
            width=16,
            heads=2,
            audio_layers=2,
            text_layers=layers,
            vocabulary=TOKENIZER.size,
            mels=80,
            audio_positions=positions,
            text_positions=tokens,
        ),
        alignment_heads=((layers - 1, 0), (layers - 1, 1)),
        dtype=dtype,
    )


def small_model(positions=20, seed=0, dtype: Dtype = "float32", layers=2, tokens=40):
    config = small_config(positions, dtype, layers, tokens)
    mel, tokens = jnp.zeros((1, 4, 80)), jnp.zeros((1, 1), jnp.int32)
    params = random_parameters(Network(config), mel, tokens, seed=seed)["params"]
    return Model(params=params, config=config)


def random_tensors(sizes, dtype=np.float16, seed=0):
    """By the names of the original, with what each is shaped like there."""
    random = np.random.default_rng(seed)
    width = sizes.width
    shapes = {
        "encoder.conv1.weight": (width, sizes.mels, 3),
        "encoder.conv1.bias": (width,),
        "encoder.conv2.weight": (width, width, 3),
        "encoder.conv2.bias": (width,),
        "encoder.positional_embedding": (sizes.audio_positions, width),
        "decoder.positional_embedding": (sizes.text_positions, width),
        "decoder.token_embedding.weight": (sizes.vocabulary, width),
        **norm("encoder.ln_post", width),
        **norm("decoder.ln", width),
    }
    for part, layers in (("encoder", sizes.audio_layers), ("decoder", sizes.text_layers)):
        for layer in range(layers):
            shapes |= block(f"{part}.blocks.{layer}", width, cross=part == "decoder")
    return {name: random.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def norm(name, width):
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def block(name, width, *, cross):
    shapes = {**norm(f"{name}.attn_ln", width), **norm(f"{name}.mlp_ln", width)}
    shapes |= {f"{name}.mlp.0.weight": (4 * width, width), f"{name}.mlp.0.bias": (4 * width,)}
    shapes |= {f"{name}.mlp.2.weight": (width, 4 * width), f"{name}.mlp.2.bias": (width,)}
    for attention in ("attn", "cross_attn") if cross else ("attn",):
        for part in ("query", "key", "value", "out"):
            shapes[f"{name}.{attention}.{part}.weight"] = (width, width)
            if part != "key":
                shapes[f"{name}.{attention}.{part}.bias"] = (width,)
    return shapes | (norm(f"{name}.cross_attn_ln", width) if cross else {})


def ggml_bytes(tensors, tokens=TOKENS, *, kinds=None):
    """As whisper.cpp lays them out: the biases of convolutions have two axes."""
    out = io.BytesIO()
    out.write(struct.pack("<I11i", 0x67676D6C, *range(11)))
    out.write(struct.pack("<2i", 80, 201) + bytes(4 * 80 * 201))
    out.write(struct.pack("<i", len(tokens)))
    for token in tokens:
        out.write(struct.pack("<I", len(token)) + token)
    for name, tensor in tensors.items():
        shape = (*tensor.shape, 1) if "conv" in name and tensor.ndim == 1 else tensor.shape
        kind = (kinds or {}).get(name, {np.dtype("f4"): 0, np.dtype("f2"): 1}[tensor.dtype])
        out.write(struct.pack("<3i", len(shape), len(name), kind))
        out.write(struct.pack(f"<{len(shape)}i", *shape[::-1]) + name.encode() + tensor.tobytes())
    return out.getvalue()


def safetensors_bytes(tensors):
    """By the names of the original; `golden.npz` has a file of Hugging Face with its own."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data, size = [], 0
    for name, tensor in tensors.items():
        kind = {np.dtype("f4"): "F32", np.dtype("f2"): "F16"}[tensor.dtype]
        header[name] = {
            "dtype": kind,
            "shape": list(tensor.shape),
            "data_offsets": [size, size + tensor.nbytes],
        }
        data.append(tensor.tobytes())
        size += tensor.nbytes
    text = json.dumps(header).encode()
    return b"".join([struct.pack("<Q", len(text)), text, *data])


class Global:
    """Pickles as a name that the reader has to look up, as PyTorch's own classes do."""

    def __init__(self, module, name):
        self.module, self.name = module, name


class Call:
    """Pickles as a call of such a name."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments


class Storage:
    """Pickles as a reference to numbers that lie elsewhere in the archive."""

    def __init__(self, key, array):
        kind = {np.dtype("f4"): "FloatStorage", np.dtype("f2"): "HalfStorage"}[array.dtype]
        self.id = ("storage", Global("torch", kind), key, "cpu", array.size)


PythonPickler: Any = pickle._Pickler  # the one whose methods can be replaced


class TorchPickler(PythonPickler):
    """Python's own pickler, in protocol 2 like PyTorch's files, for the three things above."""

    def save(self, obj, save_persistent_id=True):
        match obj:
            case Global():
                self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
            case Call():
                self.save(obj.function)
                self.save(obj.arguments)
                self.write(pickle.REDUCE)
            case Storage():
                self.save(obj.id)
                self.write(pickle.BINPERSID)
            case _:
                super().save(obj, save_persistent_id)


def torch_bytes(tensors, *, extra=None, entry="model_state_dict", compression=zipfile.ZIP_STORED):
    """`{"dims": ..., entry: {name: tensor}}` as `torch.save` writes it."""
    rebuild = Global("torch._utils", "_rebuild_tensor_v2")
    state = {}
    for key, (name, tensor) in enumerate(tensors.items()):
        strides = tuple(s // tensor.itemsize for s in tensor.strides)
        hooks = Call(Global("collections", "OrderedDict"))
        storage = Storage(str(key), tensor)
        state[name] = Call(rebuild, storage, 0, tensor.shape, strides, False, hooks)
    document = {"dims": {"n_mels": 80}, entry: state} | (extra or {})
    out, pickled = io.BytesIO(), io.BytesIO()
    TorchPickler(pickled, 2).dump(document)
    with zipfile.ZipFile(out, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickled.getvalue())
        for key, tensor in enumerate(tensors.values()):
            archive.writestr(f"archive/data/{key}", tensor.tobytes())
        archive.writestr("archive/version", "3\n")
    return out.getvalue()
