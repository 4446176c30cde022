"""Log-mel spectrograms as Whisper was trained on, in JAX.

    X[f]    = rfft(w x[160 f - 200 : 160 f + 200])   w a periodic Hann window, x mirrored at ends
    m[f, b] = log10 max(sum_k mel[b, k] |X[f, k]|^2, 1e-10)
    out     = (max(m, max_fb m - 8) + 4) / 4

with triangles `mel` on Slaney's scale (linear below 1 kHz, logarithmic above), each of area 1. The
frame at the very end, centred on the sample after the last, is left out: 100 frames a second.

The floor at 8 below the loudest makes a frame depend on the whole window. Silence that is added
changes no other frame unless all of the window is silent.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Real

from simuljax.audio.framing import Framing, split
from simuljax.models.whisper.config import HOP, RATE

FFT = 400


def log_mel(samples: Real[Array, "B N"], mels: int) -> Float[Array, "B F mels"]:
    """Return log-mel of windows of N samples, N a multiple of 160: int16, or float in [-1, 1]."""
    if samples.shape[-1] % HOP or samples.shape[-1] < FFT:
        raise ValueError(f"{samples.shape[-1]} samples; give a multiple of {HOP}, from {FFT}.")
    scale = 1 if jnp.issubdtype(samples.dtype, jnp.floating) else 32768
    samples = samples.astype(jnp.float32) / scale
    mirrored = jnp.pad(samples, [(0, 0), (FFT // 2, FFT // 2)], mode="reflect")
    frames = split(mirrored, Framing(length=FFT, shift=HOP))[:, :-1] * hann_window()
    spectrum = jnp.fft.rfft(frames)
    power = jnp.square(spectrum.real) + jnp.square(spectrum.imag)
    energy = jnp.matmul(power, mel_filters(mels).T, precision=jax.lax.Precision.HIGHEST)
    decades = jnp.log10(jnp.maximum(energy, 1e-10))
    loudest = decades.max((-2, -1), keepdims=True)
    return (jnp.maximum(decades, loudest - 8) + 4) / 4


def hann_window() -> Float[np.ndarray, " fft"]:
    """One period of 1/2 - cos/2: the next sample would be 0 again."""
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FFT) / FFT)).astype(np.float32)


def mel_filters(mels: int) -> Float[np.ndarray, "mels K"]:
    """Triangles between neighbours of mels + 2 corners, equally spaced from 0 to 8 kHz in mel."""
    corners = _hertz(np.linspace(0.0, _mel(RATE / 2), mels + 2))[:, None]
    left, centre, right = corners[:-2], corners[1:-1], corners[2:]
    points = np.arange(FFT // 2 + 1) * (RATE / FFT)
    up, down = (points - left) / (centre - left), (right - points) / (right - centre)
    return (np.maximum(np.minimum(up, down), 0) * 2 / (right - left)).astype(np.float32)


_BREAK_HZ, _BREAK_MEL = 1000.0, 15.0  # below, 3 mel are 200 Hz
_STEP = np.log(6.4) / 27  # above, 27 mel are a factor of 6.4


def _mel(hertz: float) -> float:
    if hertz < _BREAK_HZ:
        return hertz * 3 / 200
    return _BREAK_MEL + float(np.log(hertz / _BREAK_HZ)) / _STEP


def _hertz(mel: np.ndarray) -> np.ndarray:
    above = _BREAK_HZ * np.exp(_STEP * (mel - _BREAK_MEL))
    return np.where(mel < _BREAK_MEL, mel * 200 / 3, above)
