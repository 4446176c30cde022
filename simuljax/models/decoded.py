"""What every kind of decoder gives: a struct for a whole pass, and one for a step."""

import flax.struct
import jax

from simuljax.nn.monotonic import Reading
from simuljax.nn.transformer import LayerStep


@flax.struct.dataclass
class Decoded:
    """What the decoder says of every target position, and where each layer read for it."""

    logits: jax.Array  # [B, T, V]
    reading: Reading  # a leading axis over layers


@flax.struct.dataclass
class Attempt:
    """What the decoder would write after T more targets, and what has to be kept if it does."""

    logits: jax.Array  # [B, T, V]
    layers: LayerStep  # a leading axis over layers
