"""Features of a model: filterbanks, with optional pitch."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, ArrayLike, Float, Int, Real

from simuljax.audio import filterbank, pitch
from simuljax.audio.filterbank import Filterbank, FilterbankState
from simuljax.audio.pitch import PitchState
from simuljax.audio.pitch_track import Pitch
from simuljax.config.fields import setting


@dataclass(frozen=True, kw_only=True)
class Features:
    """80 filterbanks, or these with pitch: the 83 dimensions of Nguyen et al. 2021."""

    filterbank: Filterbank = setting(Filterbank(), help="Filterbank.")
    pitch: bool = setting(False, help="Add the three dimensions of pitch.")

    @property
    def dims(self) -> int:
        """Return the dimensions of a frame."""
        return self.filterbank.bins + (pitch.DIMS if self.pitch else 0)

    @property
    def pitch_config(self) -> Pitch:
        """Return the pitch settings that match the filterbank's frames."""
        bank = self.filterbank
        return Pitch(rate=bank.rate, frame_ms=bank.frame_ms, shift_ms=bank.shift_ms)

    def to_json(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Features":
        """Build settings from `to_json`'s output. All fields must be there and no others."""
        _same_fields("features", values, cls)
        bank: Mapping[str, Any] = values["filterbank"]
        _same_fields("filterbank", bank, Filterbank)
        if not isinstance(values["pitch"], bool):
            raise ValueError(f"features: pitch is {values['pitch']!r}; it must be true or false.")
        for name, value in bank.items():
            if not isinstance(value, int | float):
                raise ValueError(f"filterbank: {name} is {value!r}; it must be a number.")
        return cls(filterbank=Filterbank(**bank), pitch=values["pitch"])


@struct.dataclass
class FeatureState:
    """The stream states of both kinds of feature."""

    filterbank: FilterbankState
    pitch: PitchState | None


def extract(samples: Real[ArrayLike, "*batch N"], config: Features) -> Float[Array, "*batch F D"]:
    """Extract features of whole recordings: int16 samples, or float in [-1, 1]."""
    bank = filterbank.filterbank(samples, config.filterbank)
    if not config.pitch:
        return bank
    return jnp.concatenate([bank, pitch.pitch(samples, config.pitch_config)], -1)


def init_stream(config: Features, batch_shape: tuple[int, ...] = ()) -> FeatureState:
    """Return the state before the first sample."""
    return FeatureState(
        filterbank=filterbank.init_stream(config.filterbank, batch_shape),
        pitch=pitch.init_stream(config.pitch_config, batch_shape) if config.pitch else None,
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
    if config.pitch != (state.pitch is not None):
        raise ValueError("state and config disagree about pitch; use one config for both.")
    bank, features, count = filterbank.stream_step(
        state.filterbank, samples, length, config=config.filterbank
    )
    if state.pitch is None:
        return FeatureState(filterbank=bank, pitch=None), features, count
    tones, more, _ = pitch.stream_step(state.pitch, samples, length, config=config.pitch_config)
    features = jnp.concatenate([features, more], -1)
    return FeatureState(filterbank=bank, pitch=tones), features, count


def _same_fields(name: str, values: Any, kind: type) -> None:
    expected = {f.name for f in dataclasses.fields(kind)}
    found = set(values) if isinstance(values, Mapping) else {repr(values)}
    if found != expected:
        raise ValueError(
            f"{name}: missing {sorted(expected - found)}, unknown {sorted(found - expected)}."
        )
