"""The network together with its parameters, as one pytree that compiled functions take."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from simuljax.models.whisper.config import Config, Heads
from simuljax.models.whisper.model import Network, Written
from simuljax.nn.attention import Past

Heard = tuple[Past, ...]  # keys and values of a window's states, for every layer


@flax.struct.dataclass
class Model:
    """Parameters are leaves; the configuration is part of the structure."""

    params: dict[str, Any]
    config: Config = flax.struct.field(pytree_node=False)

    @property
    def network(self) -> Network:
        """The module that the parameters are of."""
        return Network(self.config)

    def encode(self, mel: jax.Array) -> jax.Array:
        """[B, F, mels] -> [B, F / 2, D]."""
        return self._apply("encode", mel)

    def remember(self, states: jax.Array) -> Heard:
        """Return keys and values that the decoder attends to."""
        return self._apply("remember", states)

    def write(
        self, tokens: jax.Array, written: Written, heard: Heard, heads: Heads = ()
    ) -> tuple[jax.Array, Written, Any]:
        """T more tokens [R, T]: states, the cache, and the energies of heads. See `Decoder`."""
        return self._apply("write", tokens, written, heard, heads)

    def logits(self, states: jax.Array) -> jax.Array:
        """[..., D] -> float32 [..., V]."""
        return self._apply("logits", states)

    def _apply(self, method: str, *given: Any) -> Any:
        """float32 means float32 on every device; some would round to fewer bits unless told."""
        exact = self.config.dtype == "float32"
        with jax.default_matmul_precision("highest" if exact else "default"):
            return self.network.apply({"params": self.params}, *given, method=method)


def rows_of(heard: Heard) -> int:
    """Return the number of windows."""
    return heard[0].key.shape[0]


def no_padding(rows: int) -> jax.Array:
    """For tokens that all begin in the first column."""
    return jnp.zeros(rows, jnp.int32)
