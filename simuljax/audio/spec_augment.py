"""SpecAugment (Park et al. 2019): random masks over time and frequency.

Per example of n real frames and D dimensions, for each mask:

    width ~ U{0 .. W},  start ~ U{0 .. n - width}    time, with W = min(T, floor(p n))
    width ~ U{0 .. W},  start ~ U{0 .. D - width}    frequency, with W = min(F, D)

Their time warping is left out, as it costs the most and, in their own ablation, gives the least.
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray, UInt32

from simuljax.config.fields import Checked, setting


@dataclass(frozen=True, kw_only=True)
class SpecAugment(Checked):
    """Number and width of the masks; by default the paper's LibriSpeech double (LD)."""

    frequency_masks: int = setting(2, help="Masks of frequencies.", low=0)
    frequency_width: int = setting(27, help="Width of a mask of frequencies (F).", low=0)
    time_masks: int = setting(2, help="Masks of time.", low=0)
    time_width: int = setting(100, help="Frames of a mask of time (T).", low=0)
    time_fraction: float = setting(
        1.0, help="Part of the example that a mask of time covers at most (p).", low=0, high=1
    )
    fill: Literal["mean", "zero"] = setting(
        "mean", help="Value under a mask: the mean of the dimension, or 0."
    )


def spec_augment(
    key: PRNGKeyArray | UInt32[Array, "2"],
    features: Float[ArrayLike, "B F D"],
    lengths: Int[ArrayLike, " B"],
    config: SpecAugment,
) -> Float[Array, "B F D"]:
    """Mask features differently in each example; padding stays as it is.

    An example's masks depend on the key, its place in the batch and its length: neither on what
    else is in the batch nor on how far it is padded.
    """
    features, lengths = jnp.asarray(features), jnp.asarray(lengths)
    keys = jax.vmap(lambda place: jax.random.fold_in(key, place))(jnp.arange(len(lengths)))
    return jax.vmap(lambda k, x, n: _augment(k, x, n, config))(keys, features, lengths)


def _augment(key: jax.Array, features: jax.Array, length: jax.Array, config: SpecAugment):
    size, dims = features.shape
    draws = jax.random.uniform(key, (config.time_masks + config.frequency_masks, 2))
    widest = jnp.minimum(config.time_width, jnp.floor(config.time_fraction * length))
    in_time = _stripes(draws[: config.time_masks], widest, length, size)
    widest = jnp.asarray(min(config.frequency_width, dims))
    in_frequency = _stripes(draws[config.time_masks :], widest, jnp.asarray(dims), dims)
    real = (jnp.arange(size) < length)[:, None]
    masked = (in_time[:, None] | in_frequency) & real
    fill = jnp.zeros((), features.dtype)
    if config.fill == "mean":
        total = jnp.where(real, features, 0).sum(0, dtype=jnp.float32)
        fill = (total / jnp.maximum(length, 1)).astype(features.dtype)
    return jnp.where(masked, fill, features)


def _stripes(
    draws: Float[Array, "masks 2"], widest: jax.Array, length: jax.Array, size: int
) -> Bool[Array, " size"]:
    """Return True inside any of the masks, all of which lie before `length`."""
    width = _up_to(widest, draws[:, 0])
    start = _up_to(length - width, draws[:, 1])
    position = jnp.arange(size)[:, None]
    return ((position >= start) & (position < start + width)).any(-1)


def _up_to(most: jax.Array, draws: Float[Array, " masks"]) -> Float[Array, " masks"]:
    """Map draws from [0, 1) to integers from 0 to `most`, inclusive."""
    return jnp.minimum(jnp.floor(draws * (most + 1)), most)
