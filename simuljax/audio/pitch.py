"""Three causal pitch features that follow 80 filterbanks in 83 dimensions.

    voicing   2 ((1.0001 - n)^.15 - 1)           n the correlation at the pitch's lag: about 0 for
                                                 noise, towards -1.5 for a clear tone
    pitch     2 (log f - mean)                   mean over the last 1.5 s, weighted by the
                                                 probability of voicing
    delta     10 slope of log f                  over this frame and the four before

The formulas of the first and of the weights are those of Ghahremani et al. 2014, "A pitch
extraction algorithm tuned for automatic speech recognition", and so are the scales. What differs
from Kaldi's features follows from one rule, that a frame depends on nothing after its own 25 ms:

- Kaldi traces the best path back from a later frame; here it ends at the frame itself.
- Kaldi's mean is over 1.5 s around the frame and its delta is centred on it; here both trail.
- Kaldi's ballast comes from the energy of the whole recording; here from the energy so far.
- Kaldi correlates the frame with samples after it; here with those before.
- No noise is added to the delta.

Hence the features are not interchangeable with Kaldi's: train on those that you decode with.
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, ArrayLike, Float, Int, Real

from simuljax.audio import framing
from simuljax.audio.framing import FrameState
from simuljax.audio.pitch_track import Pitch, Track, TrackState, init_track, track_step

DIMS = 3
_SLOPE = (-0.2, -0.1, 0.0, 0.1, 0.2)  # least squares over five frames


@struct.dataclass
class PitchState:
    """Samples that wait for their frame, the track, and the window whose mean is subtracted."""

    frames: FrameState
    track: TrackState
    log_hz: jax.Array  # [..., W - 1] of the frames before
    weights: jax.Array  # [..., W - 1] their probabilities of voicing; 0 before the first frame


def pitch(samples: Real[ArrayLike, "*batch N"], config: Pitch) -> Float[Array, "*batch F 3"]:
    """Return voicing, pitch and delta of whole recordings, one per filterbank frame."""
    samples = framing.to_int16_scale(samples)
    state = init_stream(config, samples.shape[:-1])
    frames = framing.split(samples, config.framing)
    return _features(state, frames, jnp.full(samples.shape[:-1], frames.shape[-2]), config)[1]


def track(samples: Real[ArrayLike, "*batch N"], config: Pitch) -> Track:
    """Return the pitch, and how well it fits."""
    samples = framing.to_int16_scale(samples)
    frames = framing.split(samples, config.framing)
    count = jnp.full(samples.shape[:-1], frames.shape[-2])
    return track_step(init_track(config, samples.shape[:-1]), frames, count, config)[1]


def voicing_probability(correlation: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """Return the probability that a frame is voiced, by Ghahremani et al.'s fit."""
    n = jnp.abs(correlation)
    odds = -5.2 + 5.4 * jnp.exp(7.5 * (n - 1)) + 4.8 * n - 2 * jnp.exp(-10 * n)
    return jax.nn.sigmoid(odds + 4.2 * jnp.exp(20 * (n - 1)))


def init_stream(config: Pitch, batch_shape: tuple[int, ...] = ()) -> PitchState:
    """Return the state before the first sample."""
    past = jnp.zeros((*batch_shape, _mean_frames(config) - 1))
    return PitchState(
        frames=framing.init_frames(config.framing, batch_shape),
        track=init_track(config, batch_shape),
        log_hz=past,
        weights=past,
    )


def stream_step(
    state: PitchState,
    samples: Real[ArrayLike, "*batch C"],
    length: Int[ArrayLike, "*batch"] | None = None,
    *,
    config: Pitch,
) -> tuple[PitchState, Float[Array, "*batch F 3"], Int[Array, "*batch"]]:
    """Return state, features and their real count, as the filterbank's `stream_step`."""
    waiting, frames, count = framing.frames_step(state.frames, samples, length, config.framing)
    state, features = _features(dataclasses.replace(state, frames=waiting), frames, count, config)
    real = jnp.arange(frames.shape[-2]) < count[..., None]
    return state, jnp.where(real[..., None], features, 0), count


def _features(
    state: PitchState, frames: jax.Array, count: jax.Array, config: Pitch
) -> tuple[PitchState, jax.Array]:
    """Compute the features of a whole recording or of a chunk."""
    first = (state.track.seen == 0)[..., None]
    tracked, found = track_step(state.track, frames, count, config)
    past = jnp.where(first, found.log_hz[..., :1], state.log_hz) if frames.size else state.log_hz
    log_hz = jnp.concatenate([past, found.log_hz], -1)
    correlation = jnp.clip(found.correlation, -1, 1)
    weights = jnp.concatenate([state.weights, voicing_probability(correlation)], -1)
    mean = _trailing_sum(weights * log_hz, config) / _trailing_sum(weights, config)
    voicing = 2 * ((1.0001 - correlation) ** 0.15 - 1)
    features = [voicing, 2 * (found.log_hz - mean), 10 * _slope(log_hz, frames.shape[-2])]
    kept = count[..., None] + jnp.arange(state.weights.shape[-1])
    state = dataclasses.replace(
        state,
        track=tracked,
        log_hz=jnp.take_along_axis(log_hz, kept, -1),
        weights=jnp.take_along_axis(weights, kept, -1),
    )
    return state, jnp.stack(features, -1)


def _trailing_sum(x: jax.Array, config: Pitch) -> jax.Array:
    """Sum the last W values, each time from scratch: differences of running sums would drift."""
    window = (1,) * (x.ndim - 1) + (_mean_frames(config),)
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, window, (1,) * x.ndim, "valid")


def _slope(log_hz: jax.Array, frames: int) -> jax.Array:
    start = log_hz.shape[-1] - frames - len(_SLOPE) + 1
    return sum(
        (w * log_hz[..., start + k : start + k + frames] for k, w in enumerate(_SLOPE)),
        start=jnp.zeros(()),
    )


def _mean_frames(config: Pitch) -> int:
    return max(len(_SLOPE), round(1000 * config.mean_s / config.shift_ms))
