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

Pitch is found by normalised cross-correlation. The correlation of frame f at lag l compares its
last 25 ms, v, with those l earlier, v_l:

    n[f](l) = v . v_l / sqrt(|v|^2 |v_l|^2 + b^2)

on samples low-passed to 1 kHz and decimated to 4 kHz, at whole lags, then interpolated to lags
1 % apart. The track follows the best path up to now, and never a later frame:

    score[f](l) = n[f](l) (1 - l / 100 ms) + max_m score[f-1](m) - (log l - log m)^2
    lag[f]      = argmax_l score[f](l), refined by a parabola through n[f]

The ballast b, .01 of the mean energy so far, keeps quiet frames from moving the path; the factor
prefers the shorter of two lags that fit equally well, since every multiple of a period is one.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, ArrayLike, Float, Int, Real

from simuljax.audio import filterbank
from simuljax.audio.filterbank import FRAME, RATE, SHIFT, FrameState, Framing

_LOW_RATE = 4_000  # after decimation: twice what four harmonics of the highest pitch need
_FACTOR = RATE // _LOW_RATE
_WINDOW = FRAME // _FACTOR  # of the correlation, in samples at the low rate
_CUTOFF_HZ = 1_000
_CROSSINGS = 2  # of the low-pass filter's sinc, each side
_MARGIN = 5  # whole lags each side that interpolation looks at
_STEP = 0.01  # between neighbouring lags, in logarithms
_BALLAST = 0.01  # of the mean energy
_QUIET = 1.0  # energy of a sample, int16 scale: silence correlates with nothing
_HIGHEST = jax.lax.Precision.HIGHEST
_LOW_HZ, _HIGH_HZ = 50.0, 400.0  # the pitches that are looked for
_MEAN_FRAMES = 150  # the 1.5 s whose mean is subtracted
_LOG_LAGS = -np.log(_HIGH_HZ) + _STEP * np.arange(int(np.log(_HIGH_HZ / _LOW_HZ) / _STEP) + 1)
_WHOLE_LAGS = np.arange(  # in samples at the low rate
    int(_LOW_RATE / _HIGH_HZ) - _MARGIN, int(np.ceil(_LOW_RATE / _LOW_HZ)) + _MARGIN + 1
)


DIMS = 3
_SLOPE = (-0.2, -0.1, 0.0, 0.1, 0.2)  # least squares over five frames


@struct.dataclass
class PitchState:
    """Samples that wait, the best paths so far, and the window whose mean is subtracted."""

    frames: FrameState  # samples that wait for their frame
    scores: jax.Array  # [..., S] of the best path that ends in each lag, the best of all 0
    energy: jax.Array  # [...] summed over the frames seen
    seen: jax.Array  # [...] int32, frames
    log_hz: jax.Array  # [..., W - 1] of the frames before
    weights: jax.Array  # [..., W - 1] their probabilities of voicing; 0 before the first frame


def init_stream(batch_shape: tuple[int, ...] = ()) -> PitchState:
    """Return the state before the first sample, in which all lags are equal."""
    past = jnp.zeros((*batch_shape, _MEAN_FRAMES - 1))
    return PitchState(
        frames=filterbank.init_frames(FRAMING, batch_shape),
        scores=jnp.zeros((*batch_shape, len(_LOG_LAGS))),
        energy=jnp.zeros(batch_shape),
        seen=jnp.zeros(batch_shape, jnp.int32),
        log_hz=past,
        weights=past,
    )


def track(
    state: PitchState, frames: Float[Array, "*batch F L"], count: Int[Array, "*batch"]
) -> tuple[PitchState, Float[Array, "*batch F"], Float[Array, "*batch F"]]:
    """Follow the pitch through more frames, of which the first `count` are real.

    Return the state, log f, and the correlation in [-1, 1], without ballast: how well it fits.
    """
    real = jnp.arange(frames.shape[-2]) < count[..., None]
    products, energies, own = _correlations(frames)
    energy = state.energy[..., None] + jnp.cumsum(jnp.where(real, own, 0), -1)
    mean = energy / (state.seen[..., None] + 1 + jnp.arange(frames.shape[-2]))
    squares = own[..., None] * energies
    steady = _at_lags(products, squares, _BALLAST * mean + _WINDOW * _QUIET)
    free = _at_lags(products, squares, jnp.full_like(own, _WINDOW * _QUIET))
    scores, best = _follow(state.scores, steady, real)
    last = jnp.concatenate([state.energy[..., None], energy], -1)[..., -1]
    state = dataclasses.replace(state, scores=scores, energy=last, seen=state.seen + count)
    correlation = jnp.take_along_axis(free, best[..., None], -1)[..., 0]
    return state, _log_hz(steady, best), correlation


def _correlations(frames: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return v . v_l and |v_l|^2 for each whole lag [..., F, lags], and |v|^2 [..., F]."""
    low = jnp.matmul(frames, _decimation(), precision=_HIGHEST)
    low = low - low.mean(-1, keepdims=True)
    window, lags = low[..., -_WINDOW:], _WHOLE_LAGS
    starts = low.shape[-1] - _WINDOW - lags
    size = 1 << (low.shape[-1] - 1).bit_length()  # no lag is long enough to wrap around
    if not frames.size:  # no frame at all: an FFT of nothing is refused by some backends
        products = jnp.zeros((*low.shape[:-1], len(lags)))
    else:
        spectrum = jnp.conj(jnp.fft.rfft(window, size)) * jnp.fft.rfft(low, size)
        products = jnp.fft.irfft(spectrum, size)[..., starts]
    inside = np.arange(low.shape[-1])[:, None] - starts
    inside = ((inside >= 0) & (inside < _WINDOW)).astype(np.float32)
    energies = jnp.matmul(jnp.square(low), inside, precision=_HIGHEST)
    return products, energies, jnp.square(window).sum(-1)


def _at_lags(products: jax.Array, squares: jax.Array, ballast: jax.Array) -> jax.Array:
    """Interpolate the correlation at the fine lags [..., F, S]."""
    whole = products * jax.lax.rsqrt(squares + jnp.square(ballast)[..., None])
    return jnp.matmul(whole, _interpolation(), precision=_HIGHEST)


def _follow(
    scores: jax.Array, correlation: jax.Array, real: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Run Viterbi's forward pass: final scores, and the best lag at every frame."""
    cost = np.square(_LOG_LAGS[:, None] - _LOG_LAGS)
    local = correlation * (1 - 10 * np.exp(_LOG_LAGS))

    def frame(before: jax.Array, inputs: tuple[jax.Array, jax.Array]):
        local, real = inputs
        after = local + jnp.max(before[..., None, :] - cost.astype(np.float32), axis=-1)
        after = after - after.max(-1, keepdims=True)  # so that a long talk keeps its precision
        return jnp.where(real[..., None], after, before), jnp.argmax(after, axis=-1)

    inputs = jnp.moveaxis(local, -2, 0), jnp.moveaxis(real, -1, 0)
    scores, best = jax.lax.scan(frame, scores, inputs)
    return scores, jnp.moveaxis(best, 0, -1)


def _log_hz(correlation: jax.Array, best: jax.Array) -> jax.Array:
    """Refine the lag by the maximum of the parabola through the best lag and its neighbours."""
    inner = jnp.clip(best, 1, len(_LOG_LAGS) - 2)
    near = [
        jnp.take_along_axis(correlation, (inner + k)[..., None], -1)[..., 0] for k in (-1, 0, 1)
    ]
    bend = 2 * near[1] - near[0] - near[2]
    offset = jnp.where(bend > 1e-6, (near[2] - near[0]) / (2 * jnp.maximum(bend, 1e-6)), 0)
    offset = jnp.where(inner == best, jnp.clip(offset, -1, 1), 0)
    return -(_LOG_LAGS[0] + _STEP * (best + offset))


def _low_pass() -> Float[np.ndarray, " taps"]:
    """Return a sinc in a Hann window, of sum 1."""
    half = round(_CROSSINGS * RATE / (2 * _CUTOFF_HZ))
    position = np.arange(-half + 1, half)
    taps = np.sinc(2 * _CUTOFF_HZ * position / RATE) * (1 + np.cos(np.pi * position / half))
    return taps / taps.sum()


# The filterbank's framing, with history for the longest lag and the filter.
_NEEDED = (_WINDOW + int(_WHOLE_LAGS[-1]) - 1) * _FACTOR + len(_low_pass())
_PIECE = int(np.gcd(FRAME, SHIFT))
_HISTORY = -(-max(0, _NEEDED - FRAME) // _PIECE) * _PIECE
FRAMING = Framing(length=FRAME + _HISTORY, shift=SHIFT, history=_HISTORY)


def _decimation() -> Float[np.ndarray, "L D"]:
    """Return low-pass and decimation as one matrix; the last output uses the last sample."""
    taps, length, outputs = _low_pass(), FRAMING.length, _WINDOW + _WHOLE_LAGS[-1]
    matrix = np.zeros((length, outputs), np.float32)
    for k in range(outputs):
        end = length - _FACTOR * (outputs - 1 - k)
        matrix[end - len(taps) : end, k] = taps
    return matrix


def _interpolation() -> Float[np.ndarray, "lags S"]:
    """Return the interpolation from whole to fine lags, by a sinc in a Hann window."""
    distance = _LOW_RATE * np.exp(_LOG_LAGS) - _WHOLE_LAGS[:, None]
    window = np.where(np.abs(distance) < _MARGIN, 1 + np.cos(np.pi * distance / _MARGIN), 0) / 2
    return (np.sinc(distance) * window).astype(np.float32)


def pitch(samples: Real[ArrayLike, "*batch N"]) -> Float[Array, "*batch F 3"]:
    """Return voicing, pitch and delta of whole recordings, one per filterbank frame."""
    samples = filterbank.to_int16_scale(samples)
    state = init_stream(samples.shape[:-1])
    frames = filterbank.split(samples, FRAMING)
    return _features(state, frames, jnp.full(samples.shape[:-1], frames.shape[-2]))[1]


def voicing_probability(correlation: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """Return the probability that a frame is voiced, by Ghahremani et al.'s fit."""
    n = jnp.abs(correlation)
    odds = -5.2 + 5.4 * jnp.exp(7.5 * (n - 1)) + 4.8 * n - 2 * jnp.exp(-10 * n)
    return jax.nn.sigmoid(odds + 4.2 * jnp.exp(20 * (n - 1)))


def stream_step(
    state: PitchState,
    samples: Real[ArrayLike, "*batch C"],
    length: Int[ArrayLike, "*batch"] | None = None,
) -> tuple[PitchState, Float[Array, "*batch F 3"], Int[Array, "*batch"]]:
    """Return state, features and their real count, as the filterbank's `stream_step`."""
    waiting, frames, count = filterbank.frames_step(state.frames, samples, length, FRAMING)
    state, features = _features(dataclasses.replace(state, frames=waiting), frames, count)
    real = jnp.arange(frames.shape[-2]) < count[..., None]
    return state, jnp.where(real[..., None], features, 0), count


def _features(
    state: PitchState, frames: jax.Array, count: jax.Array
) -> tuple[PitchState, jax.Array]:
    """Compute the features of a whole recording or of a chunk."""
    first = (state.seen == 0)[..., None]
    tracked, found, correlation = track(state, frames, count)
    past = jnp.where(first, found[..., :1], state.log_hz) if frames.size else state.log_hz
    log_hz = jnp.concatenate([past, found], -1)
    correlation = jnp.clip(correlation, -1, 1)
    weights = jnp.concatenate([state.weights, voicing_probability(correlation)], -1)
    mean = _trailing_sum(weights * log_hz) / _trailing_sum(weights)
    voicing = 2 * ((1.0001 - correlation) ** 0.15 - 1)
    features = [voicing, 2 * (found - mean), 10 * _slope(log_hz, frames.shape[-2])]
    kept = count[..., None] + jnp.arange(state.weights.shape[-1])
    state = dataclasses.replace(
        tracked,
        log_hz=jnp.take_along_axis(log_hz, kept, -1),
        weights=jnp.take_along_axis(weights, kept, -1),
    )
    return state, jnp.stack(features, -1)


def _trailing_sum(x: jax.Array) -> jax.Array:
    """Sum the last W values, each time from scratch: differences of running sums would drift."""
    window = (1,) * (x.ndim - 1) + (_MEAN_FRAMES,)
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, window, (1,) * x.ndim, "valid")


def _slope(log_hz: jax.Array, frames: int) -> jax.Array:
    start = log_hz.shape[-1] - frames - len(_SLOPE) + 1
    return sum(
        (w * log_hz[..., start + k : start + k + frames] for k, w in enumerate(_SLOPE)),
        start=jnp.zeros(()),
    )
