"""Decoder outputs: a struct for a whole pass, and one for a step."""

import flax.struct
import jax

from simuljax.nn.monotonic import Reading
from simuljax.nn.transformer import LayerStep


@flax.struct.dataclass
class Decoded:
    """Logits of every target position, and the alignment of each layer."""

    logits: jax.Array  # [B, T, V]
    reading: Reading  # a leading axis over layers


@flax.struct.dataclass
class Attempt:
    """The output of T more targets, and the state to keep if they are written."""

    logits: jax.Array  # [B, T, V]
    layers: LayerStep  # a leading axis over layers
