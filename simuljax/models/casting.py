"""Cast parameters to the compute dtype once instead of at every step.

Training keeps float32; a layer of a bfloat16 model casts its weights whenever it is called. For
decoding, where reading the weights is most of the work, the cast is done beforehand. Results are
the same bit for bit: what is computed in float32 (norms, energies, triggers) is left alone.
"""

from collections.abc import Mapping
from typing import Any

import jax

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
