"""Parameters: first values, shapes, paths, and the cast to the compute dtype.

Training keeps float32; a layer of a bfloat16 model casts its weights whenever it is called. For
decoding, where reading the weights is most of the work, the cast is done beforehand. Results are
the same bit for bit: what is computed in float32 (norms, energies, triggers) is left alone.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from simuljax.config.model import ModelConfig
from simuljax.models.joint import JointModel
from simuljax.nn.layers import STATISTICS

FLOAT32 = ("trigger",)  # layers that compute in float32


def cast_weights(params: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """Cast weights and biases of linear layers, and embeddings, to `dtype`."""
    weights = ("kernel", "embedding", *(["bias"] if "kernel" in params else []))

    def cast(name: str, part: Any) -> Any:
        if isinstance(part, Mapping):
            return part if name in FLOAT32 else cast_weights(part, dtype)
        return part.astype(dtype) if name in weights else part

    return {name: cast(name, part) for name, part in params.items()}


def weight_bytes(params: Any) -> int:
    """Return the memory of parameters in bytes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))


FRAMES, TOKENS = 64, 4  # parameters do not depend on them


@functools.partial(jax.jit, static_argnums=0)
def initialise(model: JointModel, key: Array) -> tuple[Any, Any]:
    """Return the parameters of the whole model, and BatchNorm statistics ({} without one)."""
    width = dataclasses.replace(model.config.width, unroll=False)  # the same, sooner compiled
    model = JointModel(dataclasses.replace(model.config, width=width))

    def touch(model: JointModel) -> None:
        c, k = model.config, jnp.int32(1)
        prefix = jnp.zeros((1, TOKENS), jnp.int32)
        if c.speech is not None:
            features = jnp.zeros((1, FRAMES, c.features), jnp.float32)
            encoded = model.encode_speech(features, jnp.array([FRAMES]), train=False)
            words = jnp.zeros(encoded.states.shape[:2], jnp.int32)
            encoded = dataclasses.replace(encoded, words=words)
            labels = jnp.zeros((1, FRAMES), jnp.int32)
            model.decode(prefix, encoded, model.speech_decisions(encoded, labels), k, train=False)
        if c.text is not None:
            encoded = model.encode_text(prefix, jnp.array([TOKENS]), train=False)
            model.decode(prefix, encoded, model.text_decisions(encoded), k, train=False)

    variables = nn.init(touch, model)({"params": key})
    return variables["params"], variables.get(STATISTICS, {})


def path_of(keys: tuple) -> str:
    """Return the path of a parameter, "decoder/layer/norm/scale"."""
    return jax.tree_util.keystr(keys, simple=True, separator="/")


def by_path(params: Mapping) -> dict[str, jax.Array]:
    """Return the parameters by their paths."""
    return {path_of(keys): leaf for keys, leaf in jax.tree_util.tree_leaves_with_path(params)}


@functools.lru_cache(maxsize=8)
def shapes(model: ModelConfig) -> tuple[Any, Any]:
    """Return the shapes of parameters and BatchNorm's statistics."""
    key = jax.eval_shape(lambda: jax.random.key(0, impl="rbg"))
    return jax.eval_shape(functools.partial(initialise, JointModel(model)), key)


def parameter_count(model: ModelConfig) -> int:
    """Return the number of parameters."""
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes(model)[0]))
