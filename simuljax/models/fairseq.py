"""Parameters of fairseq's models, by the names they have here.

    joint speech and text   encoder.spch_encoder.*  encoder.text_encoder.*  decoder.spch_decoder.*
    speech (s2t)            encoder.subsample.*     encoder.transformer_layers.*        decoder.*
    text (transformer)      encoder.embed_tokens    encoder.layers.*                    decoder.*

Layers are Transformer layers with the norm first and one after the last, as here; others are
refused. A speech encoder's last layers are those shared with text, as in Tang et al. 2021. The
decisions of monotonic heads start from the queries and keys of ordinary cross-attention.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simuljax.models.tensor_file import WeightsError, read_torch

_ATTENTION = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}
_LAYER = {
    **{f"self_attn.{theirs}": f"heads/{ours}" for theirs, ours in _ATTENTION.items()},
    **{f"encoder_attn.{theirs}": f"cross/heads/{ours}" for theirs, ours in _ATTENTION.items()},
    "self_attn_layer_norm": "attention_norm",
    "encoder_attn_layer_norm": "cross_norm",
    "final_layer_norm": "forward_norm",
    "fc1": "feed_forward/inner",
    "fc2": "feed_forward/outer",
}
# Where a part of the model is if the tensor after it is there; the first that fits.
_SPEECH = ("encoder.spch_encoder.encoder.", "encoder.spch_encoder.", "encoder.")
_TEXT = ("encoder.text_encoder.", "encoder.")
_DECODER = ("decoder.spch_decoder.", "decoder.text_decoder.", "decoder.")
EMBEDDINGS = ("text/embedding/embedding", "decoder/embedding/embedding")

Arrays = dict[str, np.ndarray]  # by our paths


@dataclass(frozen=True, kw_only=True, eq=False)
class _State:
    """The tensors of a file, and which of them have been used."""

    path: Path
    tensors: Mapping[str, np.ndarray]
    used: set[str]

    def prefix(self, places: tuple[str, ...], has: str) -> str | None:
        return next((place for place in places if place + has in self.tensors), None)

    def take(self, name: str, into: str) -> Arrays:
        """Return weight and bias of an embedding, a linear map, a convolution or a norm."""
        kind = "embedding" if into.endswith("embedding") else "kernel"
        weight = "scale" if into.endswith("norm") else kind
        found = {f"{name}.weight": f"{into}/{weight}", f"{name}.bias": f"{into}/bias"}
        found = {theirs: ours for theirs, ours in found.items() if theirs in self.tensors}
        self.used.update(found)
        values = ((ours, np.asarray(self.tensors[t], np.float32)) for t, ours in found.items())
        return {ours: value.T if ours.endswith("kernel") else value for ours, value in values}

    def layers(self, prefix: str, self_norm: str = "attention_norm") -> list[Arrays]:
        """Return the layers under a prefix, which must be of one kind."""
        found = (re.match(rf"{re.escape(prefix)}(\d+)\.", name) for name in self.tensors)
        numbers = sorted({int(match[1]) for match in found if match})
        made: list[Arrays] = [{} for _ in numbers]
        for layer, number in zip(made, numbers, strict=True):
            for name, into in (_LAYER | {"self_attn_layer_norm": self_norm}).items():
                layer |= self.take(f"{prefix}{number}.{name}", into)
        shapes = [{path: value.shape for path, value in layer.items()} for layer in made]
        if numbers != [*range(len(numbers))] or any(each != shapes[0] for each in shapes):
            problem = f"the layers under {prefix} are not {len(numbers)} of one kind"
            raise WeightsError(self.path, 0, f"{problem}; the file is damaged or of another model")
        norm = re.sub(r"\w+\.$", "layer_norm", prefix)
        if made and f"{norm}.weight" not in self.tensors:
            problem = f"the layers under {prefix} have no {norm} after them: their norms come last"
            raise WeightsError(self.path, 0, f"{problem}; train with normalize_before=True")
        return made


def load_fairseq(path: Path, own: Mapping[str, Any]) -> Arrays:
    """Return the parameters of a checkpoint by paths of a model that has the parameters `own`.

    Tensors of no use here are among them, under "fairseq". Embeddings are those of the
    checkpoint's own dictionary.
    """
    tensors, _ = read_torch(path, "model")  # options and optimiser are of no use
    state = _State(path=path, tensors=tensors, used=set())
    made = _text(state, own) | _speech(state, own) | _decoder(state)
    if not made:
        some = ", ".join([*state.tensors][:3]) or "none"
        raise WeightsError(path, 0, f"these are no weights of fairseq's translators: {some}")
    rest = sorted(state.tensors.keys() - state.used)
    return made | {f"fairseq/{name}": np.asarray(state.tensors[name]) for name in rest}


def _speech(state: _State, own: Mapping[str, Any]) -> Arrays:
    prefix = state.prefix(_SPEECH, "subsample.conv_layers.0.weight")
    if prefix is None:
        return {}
    made = state.take(f"{prefix}layer_norm", "speech/norm")
    for number in range(2):
        into = f"speech/subsampling/conv{number}"
        made |= state.take(f"{prefix}subsample.conv_layers.{number}", into)
    parts = ("speech/below", "speech/above", "shared")
    return made | _split(state.layers(f"{prefix}transformer_layers."), parts, own)


def _text(state: _State, own: Mapping[str, Any]) -> Arrays:
    prefix = state.prefix(_TEXT, "embed_tokens.weight")
    if prefix is None:
        return {}
    made = state.take(f"{prefix}layer_norm", "text/norm")
    made |= state.take(f"{prefix}embed_tokens", "text/embedding")
    return made | _split(state.layers(f"{prefix}layers."), ("text/stack", "shared"), own)


def _decoder(state: _State) -> Arrays:
    prefix = state.prefix(_DECODER, "layers.0.fc1.weight")
    if prefix is None:
        return {}
    made = state.take(f"{prefix}layer_norm", "decoder/norm")
    made |= state.take(f"{prefix}embed_tokens", "decoder/embedding")
    stack = _stacked("decoder", state.layers(f"{prefix}layers.", "self_norm"))
    decide = {
        path.replace("/heads/", "/decide_"): value
        for path, value in stack.items()
        if re.search(r"/cross/heads/(query|key)/", path)
    }
    return made | stack | decide


def _split(layers: list[Arrays], parts: tuple[str, ...], own: Mapping[str, Any]) -> Arrays:
    """Give each part of the model as many layers as it has; the last part takes the last ones."""
    made, start = {}, 0
    for part in parts:
        in_part = (v.shape[0] for path, v in own.items() if path.startswith(f"{part}/layer/"))
        size = next(in_part, 0)
        if part == parts[-1]:
            start = max(start, len(layers) - size)
        made |= _stacked(part, layers[start : start + size])
        start += size
    return made


def _stacked(part: str, layers: list[Arrays]) -> Arrays:
    names = layers[0] if layers else ()
    return {f"{part}/layer/{name}": np.stack([each[name] for each in layers]) for name in names}
