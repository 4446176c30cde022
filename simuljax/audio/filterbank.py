"""Log-mel filterbanks as Kaldi computes them, for whole recordings and streams.

Per frame x of 25 ms, on the scale of int16, without dither:

    x <- x - mean(x)                                    (no DC)
    x[i] <- x[i] - .97 x[i-1],  x[0] <- x[0] - .97 x[0]  (pre-emphasis)
    x <- x w,  w[i] = (.5 - .5 cos(2 pi i / (n-1)))^.85  (the window named after Povey)
    e[b] = sum_k mel[b,k] |rfft(x)[k]|^2                 (512 points, the Nyquist bin left out)
    log max(e, float32 epsilon)

A frame sees its own samples alone, so padding changes nothing and a stream can be cut anywhere.
Frame f holds the samples [f * shift, f * shift + length); one that would run past the end does not
exist. `history` zeros before the first sample let a frame look further back than the recording
goes without changing how many there are.

`kind="whisper"` has Whisper's frames instead: frame f is centred on the sample f * shift, the first
samples are mirrored before the recording (the one sample that a stream would have to wait for, 200,
has the weight 0), and a value is (m + 4) / 4 with

    m[f, b] = log10 max(sum_k mel[b, k] |rfft(w x[f])[k]|^2, 1e-10)

on the scale of 1. w is a periodic Hann window; `mel` has triangles on Slaney's scale (linear below
1 kHz, logarithmic above), each of area 1. The floor of Whisper's spectrogram, 8 below the loudest
m, depends on all frames, so its encoder applies it (`simuljax.models.encoders`).
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int, Real

from simuljax.audio.waveform import RATE
from simuljax.config.fields import Checked, setting

FRAME, SHIFT = 400, 160  # samples: 25 and 10 ms
SPECTRUM = 512  # points of the Fourier transform
LOWEST_HZ, PREEMPHASIS = 20.0, 0.97
# Fields that earlier versions stored: all of their runs had these values.
FIXED = {"rate": RATE, "frame_ms": 25.0, "shift_ms": 10.0}
FIXED |= {"low_hz": LOWEST_HZ, "high_hz": 0.0, "preemphasis": PREEMPHASIS}
Count = TypeVar("Count", int, jax.Array, np.ndarray)


@dataclass(frozen=True, kw_only=True)
class Framing:
    """Sizes in samples; `length` counts the history in."""

    length: int
    shift: int
    history: int = 0

    @property
    def pending(self) -> int:
        """Return the most samples that can wait for the rest of their frame."""
        return max(self.length, self.shift) - 1


@struct.dataclass
class FrameState:
    """Past samples that later frames need, at the start of a buffer of fixed size."""

    pending: jax.Array  # [..., framing.pending] float32
    count: jax.Array  # [...] int32: how many of them are real
    mirrors: jax.Array | None = None  # [...] bool: the history is still to be mirrored; None: zeros


def complete_frames(samples: Count, framing: Framing) -> Count:
    """Count the frames that these samples fill (history not included)."""
    count = 1 + (samples + framing.history - framing.length) // framing.shift
    return max(0, count) if isinstance(count, int) else jnp.maximum(count, 0)  # pyright: ignore[reportReturnType]


def to_int16_scale(samples: Real[ArrayLike, "*batch N"]) -> Float[Array, "*batch N"]:
    """Return float32 on the scale of int16, from either scale."""
    samples = jnp.asarray(samples)
    scale = 32768 if jnp.issubdtype(samples.dtype, jnp.floating) else 1
    return samples.astype(jnp.float32) * scale


def split(samples: Float[Array, "*batch N"], framing: Framing) -> Float[Array, "*batch F length"]:
    """Return every frame of a whole recording.

    Put together from pieces as long as the greatest common divisor of length and shift: slices,
    where a gather would be slow.
    """
    samples = jnp.pad(samples, [(0, 0)] * (samples.ndim - 1) + [(framing.history, 0)])
    return _split(samples, framing)


def init_frames(framing: Framing, batch_shape: tuple[int, ...] = ()) -> FrameState:
    """Return the state with nothing but the history."""
    return FrameState(
        pending=jnp.zeros((*batch_shape, framing.pending)),
        count=jnp.full(batch_shape, framing.history, jnp.int32),
    )


def frames_step(
    state: FrameState,
    samples: Real[ArrayLike, "*batch C"],
    length: Int[ArrayLike, "*batch"] | None,
    framing: Framing,
) -> tuple[FrameState, Float[Array, "*batch F length"], Int[Array, "*batch"]]:
    """Return the frames that the first `length` of these samples complete, and their real count."""
    samples = to_int16_scale(samples)
    length = _checked(length, samples.shape, state)
    position = jnp.arange(framing.pending + samples.shape[-1])
    total = (state.count + length)[..., None]
    joined = jnp.where(
        position < state.count[..., None],
        jnp.pad(state.pending, [(0, 0)] * (samples.ndim - 1) + [(0, samples.shape[-1])]),
        _shifted(samples, position - state.count[..., None]),
    )
    joined = jnp.where(position < total, joined, 0)
    if state.mirrors is not None:
        history = (position > 0) & (position < framing.history) & state.mirrors[..., None]
        mirrored = jnp.broadcast_to(2 * framing.history - position, joined.shape)
        joined = jnp.where(history, _shifted(joined, mirrored), joined)
    count = complete_frames(total[..., 0] - framing.history, framing)
    used = (count * framing.shift)[..., None]
    rest = used + jnp.arange(framing.pending)
    pending = jnp.where(rest < total, _shifted(joined, rest), 0)
    mirrors = None if state.mirrors is None else state.mirrors & (count == 0)
    state = FrameState(pending=pending, count=(total - used)[..., 0], mirrors=mirrors)
    return state, _split(joined, framing), count


def _split(samples: jax.Array, framing: Framing) -> jax.Array:
    size = math.gcd(framing.length, framing.shift)
    stride, width = framing.shift // size, framing.length // size
    count = max(0, 1 + (samples.shape[-1] - framing.length) // framing.shift)
    needed = (count - 1) * stride + width if count else 0
    pieces = samples[..., : needed * size].reshape(*samples.shape[:-1], needed, size)
    ends = [k + (count - 1) * stride + 1 if count else 0 for k in range(width)]
    return jnp.concatenate([pieces[..., k : ends[k] : stride, :] for k in range(width)], axis=-1)


def _shifted(x: jax.Array, index: jax.Array) -> jax.Array:
    """Return x at the indices along its last axis; indices outside are never read."""
    return jnp.take_along_axis(x, jnp.clip(index, 0, x.shape[-1] - 1), axis=-1)


def _checked(length, shape: tuple[int, ...], state: FrameState) -> jax.Array:
    """Check lengths of every stream against the chunk, where they are known."""
    if shape[:-1] != state.count.shape:
        raise ValueError(f"samples has shape {shape}; the state is of {state.count.shape} streams.")
    if shape[-1] < 1:
        raise ValueError("samples has no room for a sample; give chunks of 1 or more.")
    if length is None:
        length = shape[-1]
    known = not isinstance(length, Tracer)
    if known and np.size(length) and not 0 <= np.min(length) <= np.max(length) <= shape[-1]:
        raise ValueError(f"length is {length}; chunks of {shape[-1]} samples have 0 to that many.")
    return jnp.broadcast_to(jnp.asarray(length, jnp.int32), shape[:-1])


@dataclass(frozen=True, kw_only=True)
class Filterbank(Checked):
    """Filterbanks of frames of 25 ms, every 10 ms, of sound at 16 kHz."""

    kind: Literal["kaldi", "whisper"] = setting(
        "kaldi", help="Filterbanks of Kaldi, or the log-mel of Whisper."
    )
    bins: int = setting(80, help="Filters.", low=1)

    @property
    def framing(self) -> Framing:
        return Framing(length=FRAME, shift=SHIFT, history=FRAME // 2 * (self.kind == "whisper"))


def without_fixed(stored: Any) -> Any:
    """Return the stored settings of a filterbank without those that can have one value alone."""
    if not isinstance(stored, dict):
        return stored
    return {n: v for n, v in stored.items() if n not in FIXED or v != FIXED[n]}


def frame_count(samples: Count, config: Filterbank) -> Count:
    """Return 1 + (samples - 400) // 160, never below 0 (Kaldi's frames); int or array."""
    return complete_frames(samples, config.framing)


def filterbank(
    samples: Real[ArrayLike, "*batch N"], config: Filterbank
) -> Float[Array, "*batch F bins"]:
    """Extract filterbanks of whole recordings: int16 samples, or float in [-1, 1]."""
    samples, framing = to_int16_scale(samples), config.framing
    if config.kind == "kaldi":
        return _features(split(samples, framing), config)
    count = complete_frames(samples.shape[-1], framing)
    samples = jnp.pad(samples, [(0, 0)] * (samples.ndim - 1) + [(0, 1)])  # to mirror 200, take 201
    mirrored = samples[..., framing.history : 0 : -1]
    frames = _split(jnp.concatenate([mirrored, samples], -1), framing)[..., :count, :]
    return _features(frames, config)


def init_stream(config: Filterbank, batch_shape: tuple[int, ...] = ()) -> FrameState:
    """Return the state before the first sample."""
    state = init_frames(config.framing, batch_shape)
    if config.kind == "whisper":
        return replace(state, mirrors=jnp.ones(batch_shape, bool))
    return state


def stream_step(
    state: FrameState,
    samples: Real[ArrayLike, "*batch C"],
    length: Int[ArrayLike, "*batch"] | None = None,
    *,
    config: Filterbank,
) -> tuple[FrameState, Float[Array, "*batch F bins"], Int[Array, "*batch"]]:
    """Return state, features and their real count, after C more samples of which `length` are real.

    F depends on C alone; features beyond the real ones are zeros. Whatever the chunks, the real
    features together are those of the whole recording.
    """
    state, frames, count = frames_step(state, samples, length, config.framing)
    real = jnp.arange(frames.shape[-2]) < count[..., None]
    return state, jnp.where(real[..., None], _features(frames, config), 0), count


def _features(frames: jax.Array, config: Filterbank) -> jax.Array:
    """Return the features of frames on the scale of int16."""
    if config.kind == "whisper":
        return (log_energies(frames / 32768, config.bins) + 4) / 4
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FRAME) / (FRAME - 1))) ** 0.85
    frames = _emphasised(frames, np.float32(PREEMPHASIS)) * window.astype(np.float32)
    energy = _energies(frames, SPECTRUM, mel_weights(config.bins))
    return jnp.log(jnp.maximum(energy, jnp.finfo(jnp.float32).eps))


def log_energies(frames: Float[Array, "*batch F fft"], mels: int) -> Float[Array, "*batch F mels"]:
    """Return Whisper's log-mel of frames on the scale of 1: logarithms to the base of 10."""
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FRAME) / FRAME)).astype(np.float32)
    return jnp.log10(jnp.maximum(_energies(frames * window, FRAME, mel_filters(mels)), 1e-10))


def _energies(frames: jax.Array, points: int, filters: np.ndarray) -> jax.Array:
    """Weight the power spectrum; a filter has no weight beyond its last column."""
    if not frames.size:  # no frame at all: an FFT of nothing is refused by some backends
        return jnp.zeros((*frames.shape[:-1], len(filters)))
    spectrum = jnp.fft.rfft(frames, points)[..., : filters.shape[1]]
    power = jnp.square(spectrum.real) + jnp.square(spectrum.imag)
    return jnp.matmul(power, filters.T, precision=jax.lax.Precision.HIGHEST)


def _emphasised(x: jax.Array, factor: np.float32) -> jax.Array:
    """Remove DC, then apply pre-emphasis, with the mean subtracted once and last.

    Removing it first reads better, but compilers compute it once for x[i] and once for x[i-1], and
    round the two differently: up to .04 in the lowest bins of a recording with a large offset.
    Subtracting the first sample is exact, and leaves numbers no larger than the signal.
    """
    x = x - x[..., :1]
    before = jnp.concatenate([x[..., :1], x[..., :-1]], axis=-1)
    return x - factor * before - (np.float32(1) - factor) * x.mean(-1, keepdims=True)


def mel_weights(bins: int) -> Float[np.ndarray, "bins K"]:
    """Return Kaldi's triangles, with corners equally spaced in 1127 log(1 + f / 700)."""

    def mel(hertz):
        return 1127 * np.log1p(hertz / 700)

    corners = np.linspace(mel(LOWEST_HZ), mel(RATE / 2), bins + 2)[:, None]
    points = mel(np.arange(SPECTRUM // 2) * (RATE / SPECTRUM))
    return _triangles(corners, points).astype(np.float32)


def mel_filters(mels: int) -> Float[np.ndarray, "mels K"]:
    """Return Whisper's triangles, with corners equally spaced from 0 to 8 kHz on Slaney's scale.

    Below 1 kHz, 3 mel are 200 Hz; above, 27 mel are a factor of 6.4.
    """
    step = np.log(6.4) / 27
    highest = 15.0 + float(np.log(RATE / 2 / 1000.0)) / step
    mel = np.linspace(0.0, highest, mels + 2)
    corners = np.where(mel < 15.0, mel * 200 / 3, 1000.0 * np.exp(step * (mel - 15.0)))[:, None]
    triangles = _triangles(corners, np.arange(FRAME // 2 + 1) * (RATE / FRAME))
    return (triangles * 2 / (corners[2:] - corners[:-2])).astype(np.float32)


def _triangles(corners: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return triangles of height 1, each from one corner over the next to the one after."""
    left, centre, right = corners[:-2], corners[1:-1], corners[2:]
    up, down = (points - left) / (centre - left), (right - points) / (right - centre)
    return np.maximum(np.minimum(up, down), 0)
