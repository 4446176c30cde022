"""Features of a model: filterbanks, with optional pitch, normalised over the training set.

Features at decoding that differ from those at training (another normalisation, another filterbank)
do not fail: they translate badly. So the configuration and the statistics travel together, as
`features.json` beside a model, and a decoder that computes other features is an error.
"""

from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, ArrayLike, Float, Int, Real

from simuljax.audio import filterbank, pitch
from simuljax.audio.filterbank import Filterbank, FrameState, without_fixed
from simuljax.audio.pitch import PitchState
from simuljax.config.fields import ConfigError, from_json, setting, write_json
from simuljax.errors import SimuljaxError
from simuljax.parsing import parse_json


@dataclass(frozen=True, kw_only=True)
class Features:
    """80 filterbanks, or these with pitch: the 83 dimensions of Nguyen et al. 2021.

    Whisper's log-mel has a scale of its own: its statistics change nothing.
    """

    filterbank: Filterbank = setting(Filterbank(), help="Filterbank.")
    pitch: bool = setting(False, help="Add the three dimensions of pitch.")

    def __post_init__(self) -> None:
        if self.pitch and self.filterbank.kind == "whisper":
            raise ConfigError("pitch is True; its frames are not those of Whisper's log-mel")

    @property
    def dims(self) -> int:
        return self.filterbank.bins + (pitch.DIMS if self.pitch else 0)


@struct.dataclass
class FeatureState:
    """The stream states of both kinds of feature."""

    filterbank: FrameState
    pitch: PitchState | None


def extract(samples: Real[ArrayLike, "*batch N"], config: Features) -> Float[Array, "*batch F D"]:
    """Extract features of whole recordings: int16 samples, or float in [-1, 1]."""
    bank = filterbank.filterbank(samples, config.filterbank)
    if not config.pitch:
        return bank
    return jnp.concatenate([bank, pitch.pitch(samples)], -1)


def init_stream(config: Features, batch_shape: tuple[int, ...] = ()) -> FeatureState:
    """Return the state before the first sample."""
    return FeatureState(
        filterbank=filterbank.init_stream(config.filterbank, batch_shape),
        pitch=pitch.init_stream(batch_shape) if config.pitch else None,
    )


def stream_step(
    state: FeatureState,
    samples: Real[ArrayLike, "*batch C"],
    length: Int[ArrayLike, "*batch"] | None = None,
    *,
    config: Features,
) -> tuple[FeatureState, Float[Array, "*batch F D"], Int[Array, "*batch"]]:
    """Return state, features and their real count, after C more samples of which `length` are real.

    F depends on C alone; features beyond the real ones are zeros. Whatever the chunks, the real
    features together are those that `extract` gives for the whole recording.
    """
    bank, features, count = filterbank.stream_step(
        state.filterbank, samples, length, config=config.filterbank
    )
    if state.pitch is None:
        return FeatureState(filterbank=bank, pitch=None), features, count
    tones, more, _ = pitch.stream_step(state.pitch, samples, length)
    features = jnp.concatenate([features, more], -1)
    return FeatureState(filterbank=bank, pitch=tones), features, count


FILE_NAME = "features.json"
_CONSTANT = 1e-5  # a dimension that varies less, for its size, does not vary: it is rounding


class FeatureError(SimuljaxError):
    """A statistics file that cannot be used, or not for these features."""


@struct.dataclass
class Statistics:
    """Mean and standard deviation of every dimension over a training set."""

    mean: jax.Array | np.ndarray  # [D] float32
    std: jax.Array | np.ndarray  # [D] float32, 1 for a dimension that does not vary
    frames: int | jax.Array  # an array only while traced


@struct.dataclass
class FeatureRecord:
    """The features that a model was trained on."""

    features: Features = struct.field(pytree_node=False)
    statistics: Statistics


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """Sums in float64 over frames, added in any order."""

    count: int
    total: Float[np.ndarray, " D"]
    squares: Float[np.ndarray, " D"]

    @classmethod
    def empty(cls, dims: int) -> "Moments":
        """Return the sums over no frames."""
        return cls(count=0, total=np.zeros(dims), squares=np.zeros(dims))

    def add(self, features: Float[ArrayLike, "*frames D"]) -> "Moments":
        """Add these frames, all of which must be real: cut padding off first."""
        rows = np.asarray(features, np.float64)
        rows = rows.reshape(-1, rows.shape[-1])
        if not np.isfinite(rows).all():
            raise ValueError("features holds NaN or infinity; check the recording it is of.")
        return Moments(
            count=self.count + len(rows),
            total=self.total + rows.sum(0),
            squares=self.squares + np.square(rows).sum(0),
        )

    def statistics(self) -> Statistics:
        """Return mean and standard deviation; 1 for a dimension that does not vary."""
        if self.count == 0:
            raise ValueError("there are no frames to take statistics of.")
        mean = self.total / self.count
        std = np.sqrt(np.maximum(self.squares / self.count - np.square(mean), 0))
        std = np.where(std > _CONSTANT * np.maximum(1, np.abs(mean)), std, 1)
        return Statistics(
            mean=mean.astype(np.float32), std=std.astype(np.float32), frames=self.count
        )


def neutral(dims: int) -> Statistics:
    """Return statistics that change nothing."""
    mean, std = np.zeros(dims, np.float32), np.ones(dims, np.float32)
    return Statistics(mean=mean, std=std, frames=0)


def normalise(
    features: Float[ArrayLike, "*batch D"], statistics: Statistics
) -> Float[Array, "*batch D"]:
    """Scale each dimension to mean 0 and variance 1 over the training set. Padding changes too."""
    features = jnp.asarray(features)
    if features.shape[-1:] != statistics.mean.shape:
        raise ValueError(
            f"features has shape {features.shape}; the statistics are of"
            f" {statistics.mean.shape[-1]} dimensions."
        )
    return (features - jnp.asarray(statistics.mean)) / jnp.asarray(statistics.std)


def features_of(
    samples: Real[ArrayLike, "*batch N"], features: Features, statistics: Statistics
) -> Float[Array, "*batch F D"]:
    """Extract and normalise features of whole recordings: the one way from samples to a model."""
    return normalise(extract(samples, features), statistics)


extract_features = jax.jit(features_of, static_argnums=1)  # compiled once per shape


def save_features(path: str | Path, record: FeatureRecord) -> None:
    """Write the file atomically."""
    mean, std = record.statistics.mean, record.statistics.std
    if np.shape(mean) != (record.features.dims,):
        raise FeatureError(
            f"statistics of shape {np.shape(mean)} do not go with features of"
            f" {record.features.dims} dimensions."
        )
    values = {
        "frames": int(record.statistics.frames),
        "mean": np.asarray(mean).tolist(),
        "std": np.asarray(std).tolist(),
    }
    write_json(Path(path), {"features": record.features, "statistics": values})


def load_features(path: str | Path) -> FeatureRecord:
    """Read the record from the file."""
    try:
        values = parse_json(Path(path).read_bytes())
        held, stored = dict(values["features"]), values["statistics"]
        held["filterbank"] = without_fixed(held.get("filterbank", {}))
        features = from_json(Features, held, "features")
        mean, std = (np.array(stored[name], np.float32) for name in ("mean", "std"))
        if mean.shape != (features.dims,):
            raise ValueError(f"it has {mean.size} means for {features.dims} dimensions")
        if mean.shape != std.shape or not np.isfinite(mean).all() or not (std > 0).all():
            raise ValueError("mean and std must be as long as each other, finite, std positive.")
        statistics = Statistics(mean=mean, std=std, frames=int(stored["frames"]))
    except FileNotFoundError as error:
        raise FeatureError(f"{path} is not there; it is written beside a model.") from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        what = f"no entry {error}" if isinstance(error, KeyError) else str(error)
        raise FeatureError(f"{path} is damaged or no file of statistics: {what}") from error
    return FeatureRecord(features=features, statistics=statistics)
